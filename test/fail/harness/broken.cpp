// SPDX-License-Identifier: Apache-2.0
#error "stands for a file with a typo"
