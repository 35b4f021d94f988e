// SPDX-License-Identifier: Apache-2.0
/// Some ranks of a group find each other on its notice board, to found a group of their own.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/transport.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

namespace collectx {
inline namespace v0 {

/// Rank i here is rank members[i] of the old group. Models Rendezvous.
///
/// Keys are put on the board behind `name`, which tells apart the foundings that one group goes through; together at most 31 characters.
/// `members` and the transport have to live as long. With `among_survivors` it works on a group that has failed; without, it fails with it.
template <Transport Tr>
class board_rendezvous {
 public:
  board_rendezvous(Tr& transport, std::span<int const> members, int rank, char const* name, bool among_survivors) noexcept
      : transport_(&transport), members_(members), rank_(rank), name_(name), survivors_(among_survivors) {}

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(members_.size()); }

  status put(char const* key, rendezvous_value const& value) noexcept {
    full_key const full(name_, key);
    rendezvous_value seen;
    for (int member : members_) {
      if (member == transport_->rank() || !transport_->posted(member, full.text, seen)) continue;
      return status::failure(errc::busy, member, "rendezvous: rank %d has put %s", member, full.text);
    }
    if (status s = transport_->post(full.text, value); !s) return s;
    for (full_key& mine : put_) {
      if (*mine.text != 0 && std::strcmp(mine.text, full.text) != 0) continue;
      mine = full;
      return {};
    }
    transport_->withdraw(full.text);
    return status::failure(errc::out_of_memory, transport_->rank(), "rendezvous: a rank puts at most %d keys", most_keys);
  }

  result<rendezvous_value> get(char const* key, nanoseconds deadline) noexcept {
    full_key const full(name_, key);
    rendezvous_value seen;
    nanoseconds hopeless = 0, looked = detail::monotonic_now();
    for (int polls = 0;; ++polls) {
      for (int member : members_)
        if (member != transport_->rank() && transport_->posted(member, full.text, seen)) return seen;
      transport_->progress();
      nanoseconds const now = detail::monotonic_now();
      if (now >= deadline) return status::failure(errc::timeout, -1, "rendezvous: nobody has put %s", full.text);
      if (now - looked > look_interval) {
        looked = now;
        status const s = trouble();
        // One that has gone may have got all it wanted before, and what this rank waits for is on its way.
        if (!s && hopeless == 0) hopeless = now + grace;
        if (!s && (now >= hopeless || s.code() != errc::peer_lost)) return s;
      }
      detail::nap(polls < 100 ? 1'000 : 100'000);
    }
  }

  /// A member that is lost will not come any more; nor does anybody where the old group has failed.
  status trouble() noexcept {
    if (!survivors_) {
      if (status s = transport_->verdict(); !s) return s;
    }
    rendezvous_value seen;
    for (int member : members_) {
      if (member == transport_->rank()) continue;
      transport_->posted(member, "", seen);  // takes in what has come: who waits for trouble may look at nothing else
      if (transport_->lost(member)) return status::failure(errc::peer_lost, member, "rank %d was lost while ranks founded a group", member);
    }
    return {};
  }

  void conclude() noexcept {
    for (full_key& mine : put_) {
      if (*mine.text != 0) transport_->withdraw(mine.text);
      mine = {};
    }
  }

 private:
  static constexpr int most_keys = 3;
  static constexpr nanoseconds look_interval = 10'000'000, grace = 1'000'000'000;

  struct full_key {
    full_key() = default;
    full_key(char const* name, char const* key) noexcept { std::snprintf(text, sizeof text, "%.15s.%.15s", name, key); }
    char text[32] = {};
  };

  Tr* transport_;
  std::span<int const> members_;
  int rank_;
  char const* name_;
  bool survivors_;
  full_key put_[most_keys];
};

}  // namespace v0
}  // namespace collectx
