// SPDX-License-Identifier: Apache-2.0
// labels: sanitize
#include <collectx/rendezvous/in_process.hpp>
#include <collectx/transport/loopback.hpp>

#include <doctest/doctest.h>

#include "processes.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace cx = collectx;
using processes::pass_round;

namespace {

/// Runs `f(transport)` on a thread per rank; gives what each said.
template <class F>
std::vector<cx::status> on_threads(cx::loopback::group const& group, F&& f) {
  std::vector<cx::status> said(static_cast<std::size_t>(group.size()));
  std::vector<std::thread> threads;
  for (int r = 0; r < group.size(); ++r) {
    threads.emplace_back([&, r] {
      auto t = group.transport(r);
      said[static_cast<std::size_t>(r)] = t ? f(*t) : t.error();
    });
  }
  for (std::thread& t : threads) t.join();
  return said;
}

void wants(cx::transport_options const& options, int size, char const* words) {
  auto group = cx::loopback::group::create(size, options);
  REQUIRE(!group.has_value());
  CHECK(group.error().code() == cx::errc::invalid_configuration);
  CHECK_MESSAGE(std::strstr(group.error().what(), words) != nullptr, group.error().what());
}

cx::call_record call(std::uint64_t sequence, std::uint32_t tag = 1) {
  cx::call_record r;
  r.sequence = sequence;
  r.tag = tag;
  return r;
}

/// Waits for a message of `peer` that never comes; gives what ends the wait.
template <class T>
cx::status wait_in_vain(T& t, int peer) {
  for (int polls = 1;; ++polls) {
    if (t.channel_from(peer, 0).try_peek().data != nullptr) return {};
    if (cx::status s = t.idle(polls, peer); !s) return s;
  }
}

}  // namespace

TEST_CASE("1 to 9 threads pass messages of several sizes on all lanes") {
  for (int n : {1, 2, 3, 4, 5, 9}) {
    auto group = cx::loopback::group::create(n);
    REQUIRE(group.has_value());
    for (cx::status const& s : on_threads(*group, [](auto& t) -> cx::status {
           std::uint64_t sequence = 0;
           for (int i = 0; i < 10; ++i) {
             for (std::size_t bytes : {std::size_t{0}, std::size_t{48}, std::size_t{49}, std::size_t{4000}}) {
               for (int lane = 0; lane < t.lanes(); ++lane) {
                 if (cx::status s2 = pass_round(t, ++sequence, bytes, lane); !s2) return s2;
               }
             }
           }
           return {};
         })) {
      CHECK_MESSAGE(s.ok(), s.what());
    }
  }
}

TEST_CASE("an option that cannot work is named") {
  cx::transport_options o;
  wants(o, 0, "a group of 0 ranks");
  wants(o, -1, "a group of -1 ranks");
  o.slots = 0;
  wants(o, 2, "option slots is 0");
  o = {};
  o.slot_bytes = 32;
  wants(o, 2, "option slot_bytes is 32");
  o.slot_bytes = 100;
  wants(o, 2, "option slot_bytes is 100");
  o = {};
  o.lanes = 0;
  wants(o, 2, "option lanes is 0");
  o = {};
  o.memory = 1 << 20;
  wants(o, 2, "option memory is 1048576: the group needs ");
  o = {};
  o.slots = 1 << 24;
  o.slot_bytes = std::size_t{1} << 31;
  wants(o, 1000, "exceed what can be addressed");
}

TEST_CASE("a bound on memory that suffices is kept to") {
  cx::transport_options o;
  o.memory = 1 << 20;
  o.slots = 4;
  o.slot_bytes = 4096;
  o.lanes = 1;
  auto layout = cx::detail::lay_out(2, o);
  REQUIRE(layout.has_value());
  CHECK(layout->bytes <= o.memory);
  CHECK(cx::loopback::group::create(2, o).has_value());
}

TEST_CASE("the rings of a group do not overlap") {
  cx::transport_options o;
  o.slots = 3;
  o.slot_bytes = 128;
  o.lanes = 2;
  auto layout = cx::detail::lay_out(4, o);
  REQUIRE(layout.has_value());
  std::vector<int> owner(layout->bytes, -1);
  auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 20);
  int ring_number = 0, twice = 0;
  auto claim = [&](void const* from, std::size_t bytes) {
    std::size_t const first = static_cast<std::size_t>(static_cast<std::byte const*>(from) - base);
    REQUIRE(first >= cx::detail::board_memory::bytes(4));
    REQUIRE(first + bytes <= owner.size());
    for (std::size_t i = first; i < first + bytes; ++i) twice += std::exchange(owner[i], ring_number) == -1 ? 0 : 1;
  };
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      for (int lane = 0; lane < 2 && from != to; ++lane, ++ring_number) {
        cx::slot_ring const ring = layout->ring(base, from, to, lane);
        claim(ring.lines, 3 * sizeof(cx::slot_line));
        claim(ring.released, 64);
        for (std::size_t i = 0; i < 3; ++i) claim(ring.data + i * cx::slot_ring::stride(128), 128);
      }
    }
  }
  CHECK(ring_number == 24);
  CHECK(twice == 0);
}

TEST_CASE("a rank is made once, and only a rank of the group") {
  auto group = cx::loopback::group::create(2);
  REQUIRE(group.has_value());
  CHECK(group->transport(2).error().code() == cx::errc::invalid_argument);
  CHECK(group->transport(-1).error().code() == cx::errc::invalid_argument);
  auto first = group->transport(1);
  REQUIRE(first.has_value());
  auto again = group->transport(1);
  REQUIRE(!again.has_value());
  CHECK(std::string(again.error().what()) == "collectx: rank 1 of this group was taken before");
}

TEST_CASE("transports outlive their group") {
  std::optional<cx::loopback_transport> a, b;
  {
    auto group = cx::loopback::group::create(2);
    REQUIRE(group.has_value());
    a.emplace(std::move(*group->transport(0)));
    b.emplace(std::move(*group->transport(1)));
  }
  std::byte* const slot = a->channel_to(1, 0).try_acquire(1000);
  REQUIRE(slot != nullptr);
  slot[999] = std::byte{5};
  a->channel_to(1, 0).commit(1000, 3);
  a.reset();  // what is sent stays sent
  cx::message const m = b->channel_from(0, 0).try_peek();
  REQUIRE(m.data != nullptr);
  CHECK(m.data[999] == std::byte{5});
}

TEST_CASE("a moved transport keeps its channels where they are") {
  auto group = cx::loopback::group::create(2);
  REQUIRE(group.has_value());
  auto made = group->transport(0);
  REQUIRE(made.has_value());
  auto* const channel = &made->channel_to(1, 3);
  cx::loopback_transport moved(std::move(*made));
  CHECK(&moved.channel_to(1, 3) == channel);
}

TEST_CASE("a sender can have all slots in flight although its receiver returns credits in batches") {
  cx::transport_options o;
  o.slots = 64;
  o.slot_bytes = 64;
  auto group = cx::loopback::group::create(2, o);
  REQUIRE(group.has_value());
  auto said = on_threads(*group, [](auto& t) -> cx::status {
    t.begin(call(1));
    if (t.rank() == 0) {
      for (int sent = 0; sent < 65; ++sent) {
        std::byte* slot;
        for (int polls = 1; (slot = t.channel_to(1, 0).try_acquire(8)) == nullptr; ++polls) {
          if (cx::status s = t.idle(polls, 1); !s) return s;
        }
        t.channel_to(1, 0).commit(8, 0);
      }
      t.channel_to(1, 1).try_acquire(8);
      t.channel_to(1, 1).commit(8, 0);
    } else {
      // One of 64 is released: less than a batch. The sender's 65th message needs it, and only then comes what we wait for.
      for (int polls = 1; t.channel_from(0, 0).try_peek().data == nullptr; ++polls) {
        if (cx::status s = t.idle(polls, 0); !s) return s;
      }
      t.channel_from(0, 0).release();
      for (int polls = 1; t.channel_from(0, 1).try_peek().data == nullptr; ++polls) {
        if (cx::status s = t.idle(polls, 0); !s) return s;
      }
    }
    t.end();
    return {};
  });
  for (cx::status const& s : said) CHECK_MESSAGE(s.ok(), s.what());
}

TEST_CASE("abort on one rank ends the wait of all with the same words") {
  auto group = cx::loopback::group::create(3);
  REQUIRE(group.has_value());
  auto said = on_threads(*group, [](auto& t) -> cx::status {
    t.begin(call(1));
    if (t.rank() == 1) return t.abort(cx::status::failure(cx::errc::aborted, 1, "rank 1 has had enough"));
    return wait_in_vain(t, 1);
  });
  for (cx::status const& s : said) {
    CHECK(s.code() == cx::errc::aborted);
    CHECK(std::string(s.what()) == "collectx: rank 1 has had enough");
  }
}

TEST_CASE("a wait for a rank that has left ends and names it") {
  auto group = cx::loopback::group::create(3);
  REQUIRE(group.has_value());
  auto said = on_threads(*group, [](auto& t) -> cx::status {
    if (t.rank() == 2) return {};
    t.begin(call(1));
    return wait_in_vain(t, 1 - t.rank());  // who waits for whom does not matter: rank 2 owes its part
  });
  for (int r = 0; r < 2; ++r) {
    CHECK(said[static_cast<std::size_t>(r)].code() == cx::errc::peer_lost);
    CHECK(said[static_cast<std::size_t>(r)].rank() == 2);
    CHECK(std::strstr(said[static_cast<std::size_t>(r)].what(), "rank 2 has left") != nullptr);
  }
}

TEST_CASE("ranks that make different calls are told both") {
  auto group = cx::loopback::group::create(3);
  REQUIRE(group.has_value());
  auto said = on_threads(*group, [](auto& t) -> cx::status {
    cx::call_record r = call(1, t.rank() == 2 ? 8 : 7);
    r.count = 4;
    std::snprintf(r.what, sizeof r.what, "%s", t.rank() == 2 ? "all_gather float direct" : "all_reduce float sum ring");
    t.begin(r);
    return wait_in_vain(t, (t.rank() + 1) % 3);
  });
  for (cx::status const& s : said) {
    CHECK(s.code() == cx::errc::mismatch);
    CHECK_MESSAGE(std::strstr(s.what(), "all_gather float direct of 4") != nullptr, s.what());
    CHECK_MESSAGE(std::strstr(s.what(), "all_reduce float sum ring of 4") != nullptr, s.what());
    CHECK(std::string(s.what()) == said[0].what());
  }
}

TEST_CASE("blame finds the rank that waits for nobody") {
  auto group = cx::loopback::group::create(3);
  REQUIRE(group.has_value());
  std::atomic<bool> over{false};
  auto said = on_threads(*group, [&](auto& t) -> cx::status {
    t.begin(call(1));
    if (t.rank() == 2) {
      while (!over) std::this_thread::yield();
      return {};
    }
    // 0 waits for 1, 1 for 2, and 2 is elsewhere.
    for (int polls = 1; t.rank() == 1 || t.blame(1) != 2; ++polls) {
      if (cx::status s = t.idle(polls, t.rank() + 1); !s) return s;
      if (over) return {};
    }
    over = true;
    return {};
  });
  for (cx::status const& s : said) CHECK_MESSAGE(s.ok(), s.what());
}

TEST_CASE("threads that know nothing but a rendezvous found a group, laid out as rank 0 asks") {
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  std::vector<cx::status> ends(3);
  std::vector<int> slots(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      auto rendezvous = table->of(r);
      cx::transport_options o;
      o.slots = 5 + r;
      o.join_timeout = std::chrono::seconds(40 + r);
      auto t = cx::loopback_transport::join(rendezvous, o);
      if (!t) {
        ends[static_cast<std::size_t>(r)] = t.error();
        return;
      }
      slots[static_cast<std::size_t>(r)] = t->slots();
      if (t->options().slots != 5 || t->options().join_timeout != o.join_timeout) slots[static_cast<std::size_t>(r)] = -1;
      for (std::uint64_t i = 1; i <= 20 && ends[static_cast<std::size_t>(r)].ok(); ++i)
        ends[static_cast<std::size_t>(r)] = processes::pass_round(*t, i, 100, t->lanes());
    });
  for (std::thread& t : threads) t.join();
  for (cx::status const& s : ends) CHECK_MESSAGE(s.ok(), std::string(s.what()));
  CHECK(slots == std::vector<int>{5, 5, 5});
}

TEST_CASE("a thread that never comes is named at the deadline on all that came") {
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  std::vector<cx::status> ends(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      auto rendezvous = table->of(r);
      cx::transport_options o;
      o.join_timeout = std::chrono::milliseconds(r == 0 ? 200 : 40000);
      ends[static_cast<std::size_t>(r)] = cx::loopback_transport::join(rendezvous, o).error();
    });
  for (std::thread& t : threads) t.join();
  for (cx::status const& s : ends) {
    CHECK(s.code() == cx::errc::timeout);
    CHECK(s.rank() == 2);
    CHECK(std::string(s.what()).find("rank 2 of 3 never came to join") != std::string::npos);
  }
}
