// SPDX-License-Identifier: Apache-2.0
/// What ranks and the store say to each other: frames of at most 416 bytes, the same on every machine. The parser is a pure function that
/// takes anything for input and believes nothing.
#pragma once

#include "collectx/config.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/rendezvous/siphash.hpp"
#include "collectx/status.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

namespace collectx {
inline namespace v0 {
namespace detail {

enum class frame_kind : std::uint8_t {
  challenge = 1,  ///< store: the number that the rank's proof has to be about
  hello,          ///< rank: who I am, and the proof that I know the secret. The same in every version, so that versions know each other
  welcome,        ///< store: come in, and the proof that I know it too
  verdict,        ///< store: it failed, for you or for all. Nothing follows
  put,            ///< rank
  get,            ///< rank
  conclude,       ///< rank
  bye,            ///< rank: nothing follows
  answer,         ///< store: to put, get, conclude
};

/// The sentence of a status without the library's name, which `status::failure` puts in front again.
inline char const* sentence_of(status const& s) noexcept { return s.ok() ? "" : s.what() + (sizeof "collectx: " - 1); }

/// A frame taken apart. Which fields count depends on the kind: see `each_field`.
struct store_frame {
  static constexpr std::size_t header = 8, most_payload = 408, capacity = header + most_payload;
  static constexpr std::uint32_t magic = 0x74737863;

  frame_kind kind = frame_kind::bye;
  std::uint32_t version = COLLECTX_VERSION;
  std::int32_t rank = -1, size = 0, code = 0;
  std::uint64_t process = 0, proof = 0;
  std::int64_t patience = 0;
  std::uint8_t nonce[16] = {};
  char key[32] = {};   ///< of a value
  char host[64] = {};  ///< where the rank runs
  std::size_t bytes = 0;
  std::byte data[rendezvous_value::capacity + 128] = {};  ///< a value, or the sentence of a failure

  bool failed() const noexcept { return code != 0; }
  rendezvous_value value() const noexcept { return {data, bytes < rendezvous_value::capacity ? bytes : rendezvous_value::capacity}; }
  status spell() const noexcept {
    return status::failure(code > static_cast<int>(errc::system) ? errc::system : static_cast<errc>(code), rank, "%.*s",
                           static_cast<int>(bytes), reinterpret_cast<char const*>(data));
  }
  static store_frame of(frame_kind kind, status const& s) noexcept {
    store_frame f;
    f.kind = kind;
    f.code = static_cast<std::int32_t>(s.code());
    f.rank = s.rank();
    f.bytes = ::strnlen(sentence_of(s), sizeof f.data);
    std::memcpy(f.data, sentence_of(s), f.bytes);
    return f;
  }
};
static_assert(status::capacity <= sizeof(store_frame::data));

inline bool is_key(char const* text, std::size_t length) noexcept {
  if (length == 0 || length >= sizeof(store_frame::key)) return false;
  for (std::size_t i = 0; i < length; ++i)
    if (text[i] <= ' ' || text[i] > '~') return false;
  return true;
}

/// The one description of what a frame of each kind holds, in order; a cursor reads it or writes it.
template <class Cursor, class Frame>
void each_field(Cursor& c, Frame& f) noexcept {
  switch (f.kind) {
    case frame_kind::challenge:
      c.number(f.version);
      c.raw(f.nonce);
      return;
    case frame_kind::hello:
      c.number(f.version);
      c.number(f.rank);
      c.number(f.size);
      c.number(f.process);
      c.raw(f.nonce);
      c.text(f.host, sizeof f.proof);
      c.number(f.proof);
      return;
    case frame_kind::welcome:
      c.number(f.proof);
      return;
    case frame_kind::verdict:
    case frame_kind::answer:
      c.number(f.code);
      c.number(f.rank);
      c.rest(f.data, f.bytes);
      return;
    case frame_kind::put:
      c.short_text(f.key);
      c.rest(f.data, f.bytes);
      return;
    case frame_kind::get:
      c.number(f.patience);
      c.text(f.key, 0);
      return;
    case frame_kind::conclude:
    case frame_kind::bye:
      return;
  }
  c.refuse();
}

/// Little endian, whatever the machine.
class frame_writer {
 public:
  explicit frame_writer(std::byte* out) noexcept : begin_(out), at_(out) {}
  template <class T>
  void number(T value) noexcept {
    auto const bits = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) *at_++ = static_cast<std::byte>((bits >> (8 * i)) & 0xff);
  }
  template <std::size_t Count>
  void raw(std::uint8_t const (&bytes)[Count]) noexcept {
    rest(bytes, Count);
  }
  void text(char const* text, std::size_t) noexcept { rest(text, std::strlen(text)); }
  void short_text(char const* text) noexcept {
    number(static_cast<std::uint8_t>(std::strlen(text)));
    rest(text, std::strlen(text));
  }
  void rest(void const* data, std::size_t bytes) noexcept {
    std::memcpy(at_, data, bytes);
    at_ += bytes;
  }
  void refuse() noexcept {}
  std::size_t size() const noexcept { return static_cast<std::size_t>(at_ - begin_); }

 private:
  std::byte *begin_, *at_;
};

class frame_reader {
 public:
  frame_reader(std::byte const* data, std::size_t bytes) noexcept : at_(data), left_(bytes) {}
  template <class T>
  void number(T& value) noexcept {
    std::make_unsigned_t<T> bits = 0;
    if (!take(sizeof(T))) return;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      bits = static_cast<std::make_unsigned_t<T>>(bits | static_cast<std::make_unsigned_t<T>>(std::make_unsigned_t<T>(at_[i]) << (8 * i)));
    at_ += sizeof(T);
    value = static_cast<T>(bits);
  }
  template <std::size_t Count>
  void raw(std::uint8_t (&bytes)[Count]) noexcept {
    copy(bytes, Count);
  }
  /// All but the last `behind` bytes.
  template <std::size_t Capacity>
  void text(char (&text)[Capacity], std::size_t behind) noexcept {
    if (left_ < behind || left_ - behind >= Capacity) return refuse();
    std::size_t const length = left_ - behind;
    copy(text, length);
    text[length] = 0;
    good_ = good_ && is_visible(text, length);
  }
  template <std::size_t Capacity>
  void short_text(char (&text)[Capacity]) noexcept {
    std::uint8_t length = 0;
    number(length);
    if (length >= Capacity || length > left_) return refuse();
    this->text(text, left_ - length);
  }
  template <std::size_t Capacity>
  void rest(std::byte (&data)[Capacity], std::size_t& bytes) noexcept {
    if (left_ > Capacity) return refuse();
    bytes = left_;
    copy(data, left_);
  }
  void refuse() noexcept { good_ = false; }
  bool good() const noexcept { return good_ && left_ == 0; }

 private:
  bool take(std::size_t bytes) noexcept {
    good_ = good_ && left_ >= bytes;
    if (good_) left_ -= bytes;
    return good_;
  }
  void copy(void* out, std::size_t bytes) noexcept {
    if (!take(bytes)) return;
    std::memcpy(out, at_, bytes);
    at_ += bytes;
  }
  static bool is_visible(char const* text, std::size_t length) noexcept {
    for (std::size_t i = 0; i < length; ++i)
      if (text[i] <= ' ' || text[i] > '~') return false;
    return true;
  }

  std::byte const* at_;
  std::size_t left_;
  bool good_ = true;
};

/// Writes a frame to `out`, which has room for `store_frame::capacity` bytes; returns how many it takes.
inline std::size_t write_frame(store_frame const& f, std::byte* out) noexcept {
  frame_writer payload(out + store_frame::header);
  each_field(payload, f);
  frame_writer header(out);
  header.number(store_frame::magic);
  header.number(static_cast<std::uint8_t>(f.kind));
  header.number(std::uint8_t{0});
  header.number(static_cast<std::uint16_t>(payload.size()));
  return store_frame::header + payload.size();
}

struct parsed_frame {
  enum : std::uint8_t { unfinished, good, bad } state = unfinished;
  std::size_t bytes = 0;  ///< that a good frame takes
};

/// Takes the frame apart that `data` begins with. What cannot become a frame is bad as soon as that can be seen, so that nobody waits for
/// the rest of it. `f` counts only where the state is good.
inline parsed_frame parse_frame(std::byte const* data, std::size_t bytes, store_frame& f) noexcept {
  for (std::size_t i = 0; i < bytes && i < 4; ++i)
    if (data[i] != static_cast<std::byte>((store_frame::magic >> (8 * i)) & 0xff)) return {parsed_frame::bad};
  if (bytes < store_frame::header) return {};
  std::uint32_t magic = 0;
  std::uint16_t length = 0;
  std::uint8_t kind = 0, unused = 0;
  frame_reader header(data, store_frame::header);
  header.number(magic);
  header.number(kind);
  header.number(unused);
  header.number(length);
  if (unused != 0 || length > store_frame::most_payload) return {parsed_frame::bad};
  if (bytes < store_frame::header + length) return {};

  f = store_frame{};
  f.kind = static_cast<frame_kind>(kind);
  frame_reader payload(data + store_frame::header, length);
  each_field(payload, f);
  bool valid = payload.good() && f.code >= 0;
  if (f.kind == frame_kind::put) valid = valid && f.bytes >= 1 && f.bytes <= rendezvous_value::capacity;
  if (f.kind == frame_kind::put || f.kind == frame_kind::get) valid = valid && is_key(f.key, std::strlen(f.key));
  if (f.kind == frame_kind::verdict) valid = valid && f.failed();
  if (f.kind == frame_kind::answer && !f.failed()) valid = valid && f.bytes <= rendezvous_value::capacity;
  if (!valid) return {parsed_frame::bad};
  return {parsed_frame::good, store_frame::header + length};
}

/// What a rank's hello proves to the store that has sent `challenge`: all that the hello says, under the key.
inline std::uint64_t proof_of(store_frame const& hello, std::uint8_t const (&challenge)[16], siphash_key key) noexcept {
  std::byte text[16 + store_frame::capacity];
  std::memcpy(text, challenge, sizeof challenge);
  std::size_t const bytes = 16 + write_frame(hello, text + 16) - sizeof hello.proof;  // the proof is the last field
  return siphash(key, reinterpret_cast<unsigned char const*>(text), bytes);
}

/// What the store's welcome proves to the rank: that it has the key, for this pair of numbers and in this direction.
inline std::uint64_t counter_proof_of(std::uint8_t const (&nonce)[16], std::uint8_t const (&challenge)[16], siphash_key key) noexcept {
  unsigned char text[39] = "welcome";
  std::memcpy(text + 7, nonce, 16);
  std::memcpy(text + 23, challenge, 16);
  return siphash(key, text, sizeof text);
}

}  // namespace detail
}  // namespace v0
}  // namespace collectx
