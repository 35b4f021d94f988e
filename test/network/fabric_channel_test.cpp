// SPDX-License-Identifier: Apache-2.0
// compile: -O0
#include <collectx/libfabric.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <string>

namespace cx = collectx;

namespace {

constexpr int slots = 8;  // with fewer every credit is a message of its own
constexpr cx::nanoseconds patience = 20'000'000'000;

cx::status in_vain(int rank, char const* what) {
  return cx::status::failure(cx::errc::timeout, rank, "rank %d waits in vain %s", rank, what);
}

/// Sends `number`, when there is a slot for it.
template <class Tr>
cx::status send(Tr& wire, int peer, int number) {
  auto& to = wire.channel_to(peer, 0);
  for (cx::nanoseconds const until = wire.now() + patience; wire.now() < until; wire.progress()) {
    std::byte* const slot = to.try_acquire(sizeof number);
    if (slot == nullptr) continue;
    std::memcpy(slot, &number, sizeof number);
    to.commit(sizeof number, 0);
    return {};
  }
  return in_vain(wire.rank(), "for a slot to send from");
}

/// Receives what must be `number`, and gives its slot back.
template <class Tr>
cx::status receive(Tr& wire, int peer, int number) {
  auto& from = wire.channel_from(peer, 0);
  for (cx::nanoseconds const until = wire.now() + patience; wire.now() < until; wire.progress()) {
    cx::message const m = from.try_peek();
    if (m.data == nullptr) continue;
    bool const right = m.bytes == sizeof number && std::memcmp(m.data, &number, sizeof number) == 0;
    from.release();
    if (right) return {};
    return cx::status::failure(cx::errc::mismatch, wire.rank(), "message %d is another one", number);
  }
  return in_vain(wire.rank(), "for a message");
}

}  // namespace

TEST_CASE("a rank that waits for a slot to send from hears of it in messages that it has not looked at yet") {
  for (char const* provider : {"net", "tcp;ofi_rxm", "shm"}) {
    CAPTURE(std::string(provider));
    cx::libfabric::options options;
    options.provider = provider;
    options.slots = slots;
    cx::status const s = cx::libfabric::run(2, options, [](auto& comm) -> cx::status {
      auto& wire = comm.transport();
      for (int i = 0; i < slots; ++i) {
        if (comm.rank() == 0) {
          if (cx::status failed = send(wire, 1, i); !failed) return failed;
          continue;
        }
        // One for one: each message that goes back says what has been released, and no credit is sent besides.
        if (cx::status failed = receive(wire, 0, i); !failed) return failed;
        if (cx::status failed = send(wire, 0, i); !failed) return failed;
      }
      // Rank 0 has used all slots, and looks at nothing before it has sent once more.
      if (comm.rank() == 1) return receive(wire, 0, slots);
      if (cx::status failed = send(wire, 1, slots); !failed) return failed;
      for (int i = 0; i < slots; ++i)
        if (cx::status failed = receive(wire, 1, i); !failed) return failed;
      return {};
    });
    CHECK_MESSAGE(s.ok(), std::string(s.what()));
  }
}
