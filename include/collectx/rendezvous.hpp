// SPDX-License-Identifier: Apache-2.0
/// How ranks that know nothing of each other but a number find each other: a few small values, put by one and got by the others.
#pragma once

#include "collectx/process.hpp"
#include "collectx/status.hpp"
#include "collectx/transport.hpp"

#include <concepts>
#include <cstddef>
#include <cstring>

namespace collectx {
inline namespace v0 {

/// A value of 1 to 256 bytes: small enough to need no memory of its own.
class rendezvous_value {
 public:
  static constexpr std::size_t capacity = 256;

  rendezvous_value() = default;
  /// @pre 1 <= bytes <= capacity
  rendezvous_value(void const* data, std::size_t bytes) noexcept : bytes_(bytes) { std::memcpy(data_, data, bytes); }

  std::byte const* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }

 private:
  std::size_t bytes_ = 0;
  std::byte data_[capacity] = {};
};

/// A Rendezvous lets `size()` ranks exchange values under short names without blanks, at most 31 characters.
///
/// 1. `put(key, value)` makes the value visible to all ranks. A key that a living rank has put is not overwritten: `errc::busy`.
/// 2. `get(key, deadline)` waits for the value until `deadline` on the monotonic clock, then fails with `errc::timeout`.
/// 3. `conclude()` withdraws what this rank has put: joining is over, well or badly. Afterwards the keys may be put again.
///
/// It may have a `trouble()`: why there is no use in waiting on for those that have not come, or ok.
///
/// Not required: that values outlive their writer, or speed.
template <class R>
concept Rendezvous = requires(R& rendezvous, char const* key, rendezvous_value const& value, nanoseconds deadline) {
  { rendezvous.rank() } -> std::same_as<int>;
  { rendezvous.size() } -> std::same_as<int>;
  { rendezvous.put(key, value) } -> std::same_as<status>;
  { rendezvous.get(key, deadline) } -> std::same_as<result<rendezvous_value>>;
  rendezvous.conclude();
};

namespace detail {

inline constexpr nanoseconds usual_join_patience = 60'000'000'000;

/// How long ranks may take to come together: as long as was chosen, or, where nothing was, COLLECTX_JOIN_TIMEOUT seconds, or 60.
/// Errors: invalid_configuration where that variable holds no seconds.
inline result<nanoseconds> join_patience(nanoseconds chosen, int rank) noexcept {
  if (chosen > 0) return lesser(chosen, years);
  return time_in("COLLECTX_JOIN_TIMEOUT", usual_join_patience, rank);
}

template <Rendezvous R>
status trouble_of([[maybe_unused]] R& rendezvous) noexcept {
  if constexpr (requires { rendezvous.trouble(); })
    return rendezvous.trouble();
  else
    return {};
}

}  // namespace detail

}  // namespace v0
}  // namespace collectx
