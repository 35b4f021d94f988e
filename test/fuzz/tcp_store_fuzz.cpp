// SPDX-License-Identifier: Apache-2.0
/// For libFuzzer: whatever comes from the network, the parser of the TCP store stays within it, decides, and reads only what it would
/// write.
#include <collectx/rendezvous/store_frame.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace cx = collectx;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using cx::detail::parsed_frame, cx::detail::store_frame;
  // A copy of just this size, so that one byte too far is found.
  std::unique_ptr<std::byte[]> const input(new std::byte[size]);
  if (size > 0) std::memcpy(input.get(), data, size);
  std::size_t at = 0;
  while (at < size) {
    std::byte const* const begin = input.get() + at;
    std::size_t const left = size - at;
    store_frame f;
    parsed_frame const p = cx::detail::parse_frame(begin, left, f);
    if (p.state != parsed_frame::good) {
      require(p.bytes == 0);
      require(p.state == parsed_frame::bad || left < store_frame::capacity);
      break;
    }
    require(p.bytes >= store_frame::header && p.bytes <= left && p.bytes <= store_frame::capacity);
    std::byte out[store_frame::capacity];
    require(cx::detail::write_frame(f, out) == p.bytes);
    require(std::memcmp(out, begin, p.bytes) == 0);
    // Less of it is not a frame yet, and nothing else.
    for (std::size_t some = 0; some < p.bytes; some += 1 + some / 4) {
      store_frame g;
      require(cx::detail::parse_frame(begin, some, g).state == parsed_frame::unfinished);
    }
    if (f.failed()) require(!f.spell().ok());
    at += p.bytes;
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

/// Mutates bytes, or puts a frame that is right at the end of them: chance alone finds few.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  using cx::detail::frame_kind, cx::detail::store_frame;
  if (seed % 4 != 0) return LLVMFuzzerMutate(data, size, most);
  auto random = [&seed](unsigned below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 16) % below;
  };
  auto word = [&](char* text, unsigned longest) {
    unsigned const length = random(longest);
    for (unsigned i = 0; i < length; ++i) text[i] = static_cast<char>('!' + random('~' - '!' + 1));
    text[length] = 0;
  };
  store_frame f;
  f.kind = static_cast<frame_kind>(1 + random(9));
  f.rank = static_cast<std::int32_t>(random(8));
  f.size = static_cast<std::int32_t>(random(8));
  f.code = static_cast<std::int32_t>(random(3));
  f.proof = seed;
  word(f.key, sizeof f.key);
  word(f.host, sizeof f.host);
  bool const sentence = f.failed() && (f.kind == frame_kind::verdict || f.kind == frame_kind::answer);
  f.bytes = random(sentence ? sizeof f.data + 1 : cx::rendezvous_value::capacity + 1);
  std::byte out[store_frame::capacity];
  std::size_t const bytes = cx::detail::write_frame(f, out);
  if (bytes > most) return size;
  std::size_t const at = size + bytes <= most ? size : most - bytes;
  std::memcpy(data + at, out, bytes);
  return at + bytes;
}
