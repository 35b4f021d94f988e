// SPDX-License-Identifier: Apache-2.0
// Sections on which the driver of the fail tests must itself fail.
// expect COMPILES: anything
// expect OTHER_WORDS: collectx: words that nobody says
#if defined(OTHER_WORDS)
static_assert(sizeof(int) == 1, "collectx: other words");  // collectx: words that nobody says
#endif
