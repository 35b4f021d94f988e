// SPDX-License-Identifier: Apache-2.0
/// A wire whose rank comes to an end at a chosen message: killed, or stopped, or whatever the signal does.
#pragma once

#include <collectx/transport.hpp>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace support {

/// Raises `signal` at the `at`-th thing that is sent or given back, counted from 0. Models Transport.
template <class Tr>
class doomed : public Tr {
  struct fate {
    int at, signal;
    int count = 0;
    void pass() {
      if (count++ == at) std::raise(signal);
    }
  };

 public:
  class sender {
   public:
    using real = std::remove_reference_t<decltype(std::declval<Tr&>().channel_to(0, 0))>;
    std::byte* try_acquire(std::size_t bytes) { return wire->try_acquire(bytes); }
    void commit(std::size_t bytes, std::uint32_t tag) {
      end->pass();
      wire->commit(bytes, tag);
    }
    real* wire = nullptr;
    fate* end = nullptr;
  };
  class receiver {
   public:
    using real = std::remove_reference_t<decltype(std::declval<Tr&>().channel_from(0, 0))>;
    collectx::message try_peek() { return wire->try_peek(); }
    void release() {
      end->pass();
      wire->release();
    }
    real* wire = nullptr;
    fate* end = nullptr;
  };

  doomed(Tr wire, int at, int signal)
      : Tr(std::move(wire)), fate_(new fate{at, signal}), senders_(channel(this->size(), 0)), receivers_(senders_.size()) {}

  sender& channel_to(int peer, int lane) {
    sender& s = senders_[channel(peer, lane)];
    s.wire = &Tr::channel_to(peer, lane);
    s.end = fate_.get();
    return s;
  }
  receiver& channel_from(int peer, int lane) {
    receiver& r = receivers_[channel(peer, lane)];
    r.wire = &Tr::channel_from(peer, lane);
    r.end = fate_.get();
    return r;
  }

 private:
  std::size_t channel(int peer, int lane) {
    return static_cast<std::size_t>(peer) * (static_cast<std::size_t>(this->lanes()) + 1) + static_cast<std::size_t>(lane);
  }
  std::unique_ptr<fate> fate_;
  std::vector<sender> senders_;
  std::vector<receiver> receivers_;
};

}  // namespace support
