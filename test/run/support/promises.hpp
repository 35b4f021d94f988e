// SPDX-License-Identifier: Apache-2.0
/// What every Rendezvous promises, between two ranks.
#pragma once

#include <collectx/process.hpp>
#include <collectx/rendezvous.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace support {

inline collectx::rendezvous_value value(std::string const& text) { return {text.data(), text.size()}; }
inline std::string text(collectx::rendezvous_value const& v) { return {reinterpret_cast<char const*>(v.data()), v.size()}; }
inline collectx::nanoseconds in(std::int64_t ms) { return collectx::detail::monotonic_now() + ms * 1'000'000; }

template <class R>
void keeps_its_promises(R& a, R& b) {
  CHECK(a.get("k", in(0)).error().code() == collectx::errc::timeout);
  CHECK(a.put("k", value("one")).ok());
  CHECK(text(*b.get("k", in(0))) == "one");
  CHECK(b.put("k", value("two")).code() == collectx::errc::busy);
  CHECK(b.put("other", value(std::string(256, '\xff'))).ok());
  CHECK(text(*a.get("other", in(0))) == std::string(256, '\xff'));
  CHECK(text(*a.get("k", in(0))) == "one");
  a.conclude();
  CHECK(b.get("k", in(0)).error().code() == collectx::errc::timeout);
  CHECK(text(*a.get("other", in(0))) == std::string(256, '\xff'));
  CHECK(b.put("k", value("two")).ok());
  CHECK(text(*a.get("k", in(0))) == "two");
  b.conclude();
  CHECK(a.get("other", in(0)).error().code() == collectx::errc::timeout);
}

}  // namespace support
