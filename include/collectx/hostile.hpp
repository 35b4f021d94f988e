// SPDX-License-Identifier: Apache-2.0
/// `hostile::run`: ranks are threads of which a seed lets one run at a time, on a wire that does all that a wire may legally do. For tests;
/// include it by name.
#pragma once

#include "collectx/launch.hpp"
#include "collectx/transport/hostile.hpp"

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {

namespace detail {

/// One rank runs at a time. Whoever can do nothing draws who is next, so that a seed decides the order of everything.
class token {
 public:
  token(hostile_group& group, int size) : group_(group), here_(static_cast<std::size_t>(size), true) {}

  void wait_for(int rank) const {
    for (int holder = holder_.load(std::memory_order_acquire); holder != rank; holder = holder_.load(std::memory_order_acquire))
      holder_.wait(holder, std::memory_order_acquire);
  }
  void hand_over(int rank) {
    int const next = draw();
    if (next == rank || next < 0) return;
    pass(next);
    wait_for(rank);
  }
  void leave(int rank) {
    here_[static_cast<std::size_t>(rank)] = false;
    if (int const next = draw(); next >= 0) pass(next);
  }

 private:
  int draw() {
    int left = 0;
    for (bool here : here_) left += here ? 1 : 0;
    if (left == 0) return -1;
    std::uint64_t skip = group_.random() % static_cast<std::uint64_t>(left);
    for (std::size_t r = 0;; ++r)
      if (here_[r] && skip-- == 0) return static_cast<int>(r);
  }
  void pass(int next) {
    holder_.store(next, std::memory_order_release);
    holder_.notify_all();
  }
  hostile_group& group_;
  std::vector<bool> here_;
  std::atomic<int> holder_{0};
};

}  // namespace detail

/// The hostile wire under code that blocks. Models Transport.
class hostile_thread_transport : public hostile_transport {
 public:
  hostile_thread_transport(hostile_transport base, detail::token& token) : hostile_transport(std::move(base)), token_(&token) {}
  status idle(int polls, int peer) {
    token_->hand_over(rank());
    return hostile_transport::idle(polls, peer);
  }
  void begin(call_record const& record) {
    token_->hand_over(rank());
    hostile_transport::begin(record);
  }

 private:
  detail::token* token_;
};

namespace hostile {

using options = hostile_options;

/// Runs f(communicator&) -> status on `size` ranks over a wire that does everything a wire may legally do, as `seed` decides: the same
/// seed, the same run. Returns the first failure; a rank killed by the options is none, what it does to the others is.
template <class F>
status run(int size, std::uint64_t seed, options const& chosen, F&& f) {
  result<hostile_group> group = hostile_group::create(size, seed, chosen);
  if (!group) return group.error();
  detail::token token(*group, size);
  detail::first_failure failure;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      token.wait_for(r);
      if (result<hostile_transport> transport = group->transport(r); transport) {
        communicator<hostile_thread_transport> comm(hostile_thread_transport(std::move(*transport), token));
        status const s = detail::call(comm, f);
        if (!group->is_dead(r)) failure.report(s);
      } else {
        failure.report(transport.error());
      }
      token.leave(r);
    });
  for (std::thread& t : threads) t.join();
  return failure.what().ok() && chosen.kill_rank < 0 ? group->settled() : failure.what();
}

}  // namespace hostile

}  // namespace v0
}  // namespace collectx
