// SPDX-License-Identifier: Apache-2.0
// labels: sanitize
#include <collectx/transport/hostile.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace cx = collectx;

namespace {

std::vector<cx::hostile_transport> all_of(cx::hostile_group& group) {
  std::vector<cx::hostile_transport> ranks;
  for (int r = 0; r < group.size(); ++r) {
    auto t = group.transport(r);
    REQUIRE(t.has_value());
    ranks.push_back(*t);
  }
  return ranks;
}

cx::call_record call(std::uint64_t sequence, std::uint32_t tag = 1) {
  cx::call_record r;
  r.sequence = sequence;
  r.tag = tag;
  return r;
}

/// A rank that sends `rounds` numbers to every peer on every lane and adds up what comes; advanced a little at a time.
class exchange {
 public:
  exchange(cx::hostile_transport& t, std::uint64_t rounds, bool release_early) : t_(t), rounds_(rounds), early_(release_early) {
    std::size_t const ends = static_cast<std::size_t>(t.size() * t.lanes());
    sent_.resize(ends);
    taken_.resize(ends);
    t.begin(call(1));
  }

  /// One look at each channel; true when all is done or failed.
  bool advance() {
    if (done_) return true;
    bool moved = false, open = false;
    int waits_for = t_.rank();
    for (int peer = 0; peer < t_.size(); ++peer) {
      for (int lane = 0; lane < t_.lanes() && peer != t_.rank(); ++lane) {
        std::size_t const at = static_cast<std::size_t>(peer * t_.lanes() + lane);
        std::uint64_t number = 0;
        if (sent_[at] < rounds_) {
          std::size_t const bytes = sent_[at] % 2 == 0 ? 8 : 200;
          if (std::byte* slot = t_.channel_to(peer, lane).try_acquire(bytes)) {
            std::memset(slot, static_cast<int>(sent_[at]), bytes);
            t_.channel_to(peer, lane).commit(bytes, static_cast<std::uint32_t>(sent_[at]++));
            moved = true;
          }
        }
        if (taken_[at] < rounds_) {
          cx::message const m = t_.channel_from(peer, lane).try_peek();
          if (m.data != nullptr) {
            if (early_) t_.channel_from(peer, lane).release();
            std::byte const expected = static_cast<std::byte>(taken_[at]);
            for (std::size_t i = 0; i < m.bytes; ++i) wrong += m.data[i] == expected ? 0 : 1;
            number = taken_[at]++;
            wrong += m.tag == number && m.bytes == (number % 2 == 0 ? 8u : 200u) ? 0 : 1;
            if (!early_) t_.channel_from(peer, lane).release();
            moved = true;
          }
        }
        if (sent_[at] < rounds_ || taken_[at] < rounds_) open = true, waits_for = peer;
      }
    }
    if (!open) {
      t_.end();
      return done_ = true;
    }
    if (moved) {
      polls_ = 0;
      return false;
    }
    end = t_.idle(++polls_, waits_for);
    return done_ = !end.ok();
  }

  long wrong = 0;
  cx::status end;

 private:
  cx::hostile_transport& t_;
  std::uint64_t rounds_;
  bool early_;
  bool done_ = false;
  int polls_ = 0;
  std::vector<std::uint64_t> sent_, taken_;
};

struct outcome {
  long wrong = 0;
  cx::nanoseconds time = 0;
  std::uint64_t next = 0;
  std::vector<cx::status> ends;
  cx::status settled;
};

outcome run(int size, std::uint64_t seed, cx::hostile_options const& options, bool release_early = false) {
  auto group = cx::hostile_group::create(size, seed, options);
  REQUIRE(group.has_value());
  std::vector<cx::hostile_transport> ranks = all_of(*group);
  std::vector<exchange> work;
  for (cx::hostile_transport& t : ranks) work.emplace_back(t, 20, release_early);
  std::vector<bool> done(static_cast<std::size_t>(size));
  for (int left = size; left > 0;) {
    std::size_t const r = static_cast<std::size_t>(group->random() % static_cast<std::uint64_t>(size));
    if (done[r]) continue;
    done[r] = work[r].advance();
    if (done[r]) --left;
  }
  outcome o;
  for (exchange& e : work) {
    o.wrong += e.wrong;
    o.ends.push_back(e.end);
  }
  o.time = group->now();
  o.next = group->random();
  o.settled = group->settled();
  return o;
}

cx::hostile_options ring(int slots, int lanes) {
  cx::hostile_options o;
  o.slots = slots;
  o.lanes = lanes;
  return o;
}

}  // namespace

TEST_CASE("whatever the seed and however few the slots, every message arrives once, whole and in order") {
  for (int slots : {1, 2, 3, 9}) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      outcome const o = run(2 + static_cast<int>(seed % 4), seed, ring(slots, 2));
      CHECK(o.wrong == 0);
      for (cx::status const& s : o.ends) CHECK_MESSAGE(s.ok(), s.what());
      CHECK_MESSAGE(o.settled.ok(), o.settled.what());
    }
  }
}

TEST_CASE("the same seed gives the same run, another seed another") {
  outcome const a = run(4, 11, ring(2, 2)), b = run(4, 11, ring(2, 2)), c = run(4, 12, ring(2, 2));
  CHECK(a.time == b.time);
  CHECK(a.next == b.next);
  CHECK(a.time != c.time);
}

TEST_CASE("a receiver that releases a slot and then reads it reads garbage") { CHECK(run(3, 5, ring(2, 1), true).wrong > 0); }

TEST_CASE("a new slot holds nothing of what was there before") {
  auto group = cx::hostile_group::create(2, 1, ring(1, 1));
  REQUIRE(group.has_value());
  std::vector<cx::hostile_transport> t = all_of(*group);
  for (int round = 0; round < 3; ++round) {
    std::byte* slot;
    while ((slot = t[0].channel_to(1, 0).try_acquire(100)) == nullptr) REQUIRE(t[0].idle(1, 1).ok());
    for (int i = 0; i < 100; ++i) CHECK(slot[i] == std::byte{cx::detail::hostile_wire::written_over});
    std::memset(slot, 1, 100);
    CHECK(t[0].channel_to(1, 0).try_acquire(100) == slot);
    CHECK(slot[50] == std::byte{1});
    t[0].channel_to(1, 0).commit(100, 0);
    while (t[1].channel_from(0, 0).try_peek().data == nullptr) REQUIRE(t[1].idle(1, 0).ok());
    t[1].channel_from(0, 0).release();
  }
}

TEST_CASE("channels overtake one another: of two messages the second may be seen first") {
  int first_wins = 0, second_wins = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    auto group = cx::hostile_group::create(2, seed, ring(2, 2));
    REQUIRE(group.has_value());
    std::vector<cx::hostile_transport> t = all_of(*group);
    for (int lane = 0; lane < 2; ++lane) {
      REQUIRE(t[0].channel_to(1, lane).try_acquire(8) != nullptr);
      t[0].channel_to(1, lane).commit(8, 0);
    }
    bool first = false, second = false;
    while (!first && !second) {
      first = t[1].channel_from(0, 0).try_peek().data != nullptr;
      second = t[1].channel_from(0, 1).try_peek().data != nullptr;
      REQUIRE(t[1].idle(1, 0).ok());
    }
    first_wins += first && !second ? 1 : 0;
    second_wins += second && !first ? 1 : 0;
  }
  CHECK(first_wins > 10);
  CHECK(second_wins > 10);
}

TEST_CASE("a rank may die at any of its operations: the others end and name it, or had all they needed") {
  for (std::int64_t at = 1; at < 200; ++at) {
    cx::hostile_options o = ring(2, 1);
    o.kill_rank = static_cast<int>(at % 3);
    o.kill_at = at;
    outcome const result = run(3, static_cast<std::uint64_t>(at), o);
    CHECK(result.wrong == 0);
    for (int r = 0; r < 3; ++r) {
      cx::status const& s = result.ends[static_cast<std::size_t>(r)];
      // It takes 40 operations to send a peer its 20 messages, and 160 to do all.
      if (at <= 40) CHECK(!s.ok());
      if (at > 160) CHECK(s.ok());
      if (r == o.kill_rank) CHECK(s.ok() == (at >= 160));
      if (s.ok()) continue;
      CHECK(s.code() == cx::errc::peer_lost);
      CHECK(s.rank() == o.kill_rank);
    }
  }
}

TEST_CASE("a deadline of five minutes is some hundred polls away, and no time passes on any clock") {
  auto group = cx::hostile_group::create(2, 3, {});
  REQUIRE(group.has_value());
  std::vector<cx::hostile_transport> t = all_of(*group);
  t[0].begin(call(1));
  int polls = 0;
  while (t[0].now() < 300'000'000'000) REQUIRE(t[0].idle(++polls, 1).ok());
  CHECK(polls < 1000);
  CHECK(t[0].blame(0) == 1);
}

TEST_CASE("calls that differ are noticed, and abort reaches everybody") {
  auto group = cx::hostile_group::create(3, 3, {});
  REQUIRE(group.has_value());
  std::vector<cx::hostile_transport> t = all_of(*group);
  t[0].begin(call(1, 5));
  t[1].begin(call(1, 6));
  t[2].begin(call(1, 6));
  cx::status s;
  for (int polls = 1; s.ok(); ++polls) s = t[1].idle(polls, 0);
  CHECK(s.code() == cx::errc::mismatch);
  CHECK(s.rank() == 0);
  CHECK(std::string(t[2].idle(1, 0).what()) == s.what());
  CHECK(std::string(t[0].abort(cx::status::failure(cx::errc::aborted, 0, "too late")).what()) == s.what());
}

TEST_CASE("a broken rule of the channels is told to all, and what is left in a channel at the end") {
  auto start = [] {
    auto group = cx::hostile_group::create(2, 3, {});
    REQUIRE(group.has_value());
    return std::move(*group);
  };
  auto ends_with = [](cx::hostile_group& group, std::vector<cx::hostile_transport>& t, char const* words) {
    cx::status const s = t[1].idle(1, 0);
    CHECK_MESSAGE(std::strstr(s.what(), words) != nullptr, s.what());
    CHECK(!group.settled().ok());
  };
  {
    auto group = start();
    auto t = all_of(group);
    t[0].channel_to(1, 0).commit(8, 0);
    ends_with(group, t, "rank 0 commits what it has not acquired");
  }
  {
    auto group = start();
    auto t = all_of(group);
    t[0].channel_to(1, 0).try_acquire(8);
    t[0].channel_to(1, 0).commit(9, 0);
    ends_with(group, t, "rank 0 commits 9 bytes of 8");
  }
  {
    auto group = start();
    auto t = all_of(group);
    t[0].channel_to(1, 0).try_acquire(8);
    t[0].channel_to(1, 0).try_acquire(9);
    ends_with(group, t, "rank 0 acquires 8 bytes, then 9 in the same slot");
  }
  {
    auto group = start();
    auto t = all_of(group);
    t[0].channel_to(1, 0).try_acquire(257);
    ends_with(group, t, "rank 0 acquires 257 bytes in a smaller slot");
  }
  {
    auto group = start();
    auto t = all_of(group);
    t[0].channel_from(1, 0).release();
    ends_with(group, t, "rank 0 releases what it has not peeked at");
  }
  {
    auto group = start();
    auto t = all_of(group);
    CHECK(group.settled().ok());
    t[0].channel_to(1, 2).try_acquire(8);
    CHECK(std::strstr(group.settled().what(), "a slot not committed") != nullptr);
    t[0].channel_to(1, 2).commit(8, 0);
    CHECK(std::strstr(group.settled().what(), "channel from rank 0 to rank 1: 1 sent, 0 received") != nullptr);
  }
}

TEST_CASE("a rank of a hostile group is made once, and options are checked") {
  auto group = cx::hostile_group::create(2, 1);
  REQUIRE(group.has_value());
  CHECK(group->transport(0).has_value());
  CHECK(!group->transport(0).has_value());
  CHECK(!group->transport(2).has_value());
  CHECK(cx::hostile_group::create(2, 1, ring(0, 1)).error().code() == cx::errc::invalid_configuration);
}
