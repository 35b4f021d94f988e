// SPDX-License-Identifier: Apache-2.0
/// New groups out of old ones: who belongs to which, how survivors agree on who is dead, and how a group is founded on the old one's board.
#pragma once

#include "collectx/pending.hpp"
#include "collectx/transport/board_rendezvous.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// What each rank tells all others when a group is split.
struct ballot {
  std::int64_t color = -1;  // negative: in no group
  std::int64_t key = 0;
  std::uint64_t list = 0;  // of the ranks that make a subgroup, hashed
};

inline std::uint64_t hash_of(std::span<int const> ranks) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u + ranks.size();
  for (int r : ranks) hash = (hash ^ static_cast<std::uint64_t>(r)) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
  return hash;
}

/// The ranks of one color, by key, then by rank.
inline std::vector<int> members_of(std::span<ballot const> ballots, std::int64_t color) {
  std::vector<int> members;
  auto const key_of = [&](int rank) { return ballots[static_cast<std::size_t>(rank)].key; };
  for (int r = 0; r < static_cast<int>(ballots.size()); ++r) {
    if (ballots[static_cast<std::size_t>(r)].color != color) continue;
    auto place = members.end();
    while (place != members.begin() && key_of(r) < key_of(place[-1])) --place;
    members.insert(place, r);
  }
  return members;
}

inline bool contains(std::span<int const> ranks, int rank) noexcept {
  for (int r : ranks)
    if (r == rank) return true;
  return false;
}

/// That a list names ranks of the group, each once.
inline status are_ranks(std::span<int const> ranks, int size, int rank) {
  std::vector<bool> named(static_cast<std::size_t>(size));
  for (int r : ranks) {
    if (r < 0 || r >= size) return status::failure(errc::invalid_argument, rank, "rank %d is not in a group of %d", r, size);
    if (named[static_cast<std::size_t>(r)]) return status::failure(errc::invalid_argument, rank, "rank %d is named twice", r);
    named[static_cast<std::size_t>(r)] = true;
  }
  return {};
}

/// Founds the group of `members`, of which this rank is one; all of them call it with the same name.
template <Transport Tr>
result<Tr> found(Tr& transport, std::span<int const> members, char const* name, bool among_survivors, call_options const& options) {
  int place = 0;
  while (members[static_cast<std::size_t>(place)] != transport.rank()) ++place;
  board_rendezvous<Tr> meeting(transport, members, place, name, among_survivors);
  auto alike = transport.options();
  if constexpr (requires { alike.join_timeout = options.timeout; })
    if (options.timeout.count() > 0) alike.join_timeout = options.timeout;
  if constexpr (requires { alike.host.join_timeout = options.timeout; })
    if (options.timeout.count() > 0) alike.host.join_timeout = options.timeout;
  constexpr bool can_join = requires { Tr::join(meeting, alike); };
  static_assert(can_join,
                "collectx: communicators over this transport cannot be split, since it has no `static result<Tr> join(R& rendezvous, "
                "options)`: use loopback or shared_memory");
  if constexpr (can_join) return Tr::join(meeting, alike);
}

/// Who a rank that goes on takes for dead. Shown under one key, which a later attempt replaces.
struct obituary {
  static constexpr int most = 56;
  std::uint32_t attempt = 0, count = 0;
  std::uint64_t hash = 0;
  std::int32_t first[most] = {};

  obituary() = default;
  obituary(std::uint32_t number, std::span<int const> dead) noexcept
      : attempt(number), count(static_cast<std::uint32_t>(dead.size())), hash(hash_of(dead)) {
    for (std::size_t i = 0; i < dead.size() && i < most; ++i) first[i] = dead[i];
  }
  bool same_dead(obituary const& other) const noexcept { return count == other.count && hash == other.hash; }
  /// "2, 5"
  void spell(char* text, std::size_t capacity) const noexcept {
    std::size_t used = static_cast<std::size_t>(std::snprintf(text, capacity, "%s", count == 0 ? "nobody" : ""));
    for (std::uint32_t i = 0; i < count && i < most && used + 16 < capacity; ++i)
      used += static_cast<std::size_t>(std::snprintf(text + used, capacity - used, "%s%d", i == 0 ? "" : ", ", static_cast<int>(first[i])));
  }
};
static_assert(sizeof(obituary) <= rendezvous_value::capacity);

/// Waits until all who are not in `dead` (ascending) have said that they take the same ranks for dead. Never waits for the dead.
template <Transport Tr>
status agree_on_dead(Tr& transport, std::span<int const> dead, int attempt, nanoseconds patience) {
  static constexpr char const* key = "collectx.dead";
  int const me = transport.rank();
  obituary const mine(static_cast<std::uint32_t>(attempt), dead);
  if (status s = transport.post(key, rendezvous_value(&mine, sizeof mine)); !s) return s;
  nanoseconds const begun = monotonic_now();
  for (int r = 0; r < transport.size(); ++r) {
    if (r == me || contains(dead, r)) continue;
    for (nanoseconds looked = begun;;) {
      rendezvous_value seen;
      obituary theirs;
      if (transport.posted(r, key, seen) && seen.size() == sizeof theirs) std::memcpy(&theirs, seen.data(), sizeof theirs);
      if (theirs.attempt >= mine.attempt) {
        char my_dead[96], their_dead[96];
        mine.spell(my_dead, sizeof my_dead);
        theirs.spell(their_dead, sizeof their_dead);
        if (!mine.same_dead(theirs)) {
          return status::failure(errc::mismatch, r, "rank %d shrinks the group without %s, rank %d without %s: name the same ranks", me,
                                 my_dead, r, their_dead);
        }
        if (theirs.attempt == mine.attempt) break;
        return status::failure(errc::mismatch, r, "rank %d has given up attempt %d to shrink the group, in which rank %d is: try again", r,
                               attempt, me);
      }
      transport.progress();
      nanoseconds const now = monotonic_now();
      if (now - looked > 5'000'000) {
        looked = now;
        if (transport.lost(r)) {
          return status::failure(errc::peer_lost, r, "rank %d is lost, too: shrink the group without it", r);
        }
      }
      if (now - begun > patience) {
        return status::failure(errc::timeout, r, "timeout: rank %d waited %.3f s for rank %d to shrink the group", me,
                               static_cast<double>(now - begun) * 1e-9, r);
      }
      nap(20'000);
    }
  }
  return {};
}

}  // namespace detail
}  // namespace v0
}  // namespace collectx
