// SPDX-License-Identifier: Apache-2.0
// compile: -O0
#include <collectx/algo/hierarchical.hpp>
#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace cx = collectx;
using support::on_each_rank;
using support::says;
using support::text;

namespace {

using ints = std::vector<int>;

/// An error of the caller: it comes at once, nothing was sent, and the communicator is as good as before.
template <class Comm>
cx::status still_works(Comm& comm, cx::status const& refused) {
  int in = comm.rank() + 1, out = 0;
  if (cx::status s = comm.all_reduce(std::span(&in, 1), std::span(&out, 1), cx::sum{}); !s) return s;
  if (out != comm.size() * (comm.size() + 1) / 2) return support::wrong(comm.rank(), "wrong sum after an error");
  return refused;
}

void all_refuse(std::vector<cx::status> const& ends, cx::errc code, std::vector<char const*> const& parts) {
  for (cx::status const& s : ends) {
    CHECK_MESSAGE(s.code() == code, text(s));
    for (char const* part : parts) CHECK_MESSAGE(says(s, part), text(s));
  }
}

cx::loopback::options with(int slots, std::size_t slot_bytes, int lanes) {
  cx::loopback::options o;
  o.slots = slots;
  o.slot_bytes = slot_bytes;
  o.lanes = lanes;
  return o;
}

cx::call_options const in_a_second{std::chrono::seconds(1)};

}  // namespace

TEST_CASE("counts that do not fit together are refused, with the counts in the message") {
  all_refuse(on_each_rank(2,
                          [](auto& comm) {
                            ints in(3), out(4);
                            return still_works(comm, comm.all_reduce(in, out, cx::sum{}));
                          }),
             cx::errc::invalid_argument, {"all_reduce on rank ", "input of 3 and output of 4 elements do not fit together"});
  all_refuse(on_each_rank(3,
                          [](auto& comm) {
                            ints in(7), out(2);
                            return still_works(comm, comm.reduce_scatter(in, out, cx::sum{}));
                          }),
             cx::errc::invalid_argument, {"reduce_scatter on rank ", "input of 7 and output of 2", "3 rank(s) share 3 and 1 block(s)"});
  all_refuse(on_each_rank(3,
                          [](auto& comm) {
                            ints in(2), out(7);
                            return still_works(comm, comm.all_gather(in, out));
                          }),
             cx::errc::invalid_argument, {"all_gather on rank ", "input of 2 and output of 7"});
  all_refuse(on_each_rank(1,
                          [](auto& comm) {
                            ints in(2), out(3);
                            return still_works(comm, comm.reduce(in, out, cx::sum{}, 0));
                          }),
             cx::errc::invalid_argument, {"reduce on rank 0", "input of 2 and output of 3"});
}

TEST_CASE("in place, a buffer that is not one equal share per rank is refused") {
  all_refuse(on_each_rank(3,
                          [](auto& comm) {
                            ints both(7);
                            return still_works(comm, comm.all_gather(cx::in_place(both)));
                          }),
             cx::errc::invalid_argument, {"7 elements in place are no equal shares for 3 ranks"});
  all_refuse(on_each_rank(3,
                          [](auto& comm) {
                            ints both(8);
                            return still_works(comm, comm.reduce_scatter(cx::in_place(both), cx::sum{}));
                          }),
             cx::errc::invalid_argument, {"8 elements in place are no equal shares for 3 ranks"});
}

TEST_CASE("a root that is no rank is refused") {
  for (int root : {-1, 2, 1000}) {
    std::string const named = "root " + std::to_string(root) + " is not in a group of 2 ranks";
    all_refuse(on_each_rank(2,
                            [root](auto& comm) {
                              ints both(2);
                              return still_works(comm, comm.broadcast(both, root));
                            }),
               cx::errc::invalid_argument, {named.c_str()});
    all_refuse(on_each_rank(2,
                            [root](auto& comm) {
                              ints in(2), out(2);
                              return still_works(comm, comm.reduce(in, out, cx::sum{}, root));
                            }),
               cx::errc::invalid_argument, {named.c_str()});
    all_refuse(on_each_rank(2,
                            [root](auto& comm) {
                              ints both(2);
                              return still_works(comm, comm.reduce(cx::in_place(both), cx::sum{}, root));
                            }),
               cx::errc::invalid_argument, {named.c_str()});
  }
}

TEST_CASE("ROO-03: only the root of a reduce may say in place; whoever else does is told, and the others do not hang") {
  std::vector<cx::status> const legal = on_each_rank(3, [](auto& comm) -> cx::status {
    std::vector<double> both{comm.rank() + 1.0}, none;
    cx::status const s = comm.rank() == 1 ? comm.reduce(cx::in_place(both), cx::sum{}, 1) : comm.reduce(both, none, cx::sum{}, 1);
    double const expected = comm.rank() == 1 ? 6.0 : comm.rank() + 1.0;
    return s.ok() && both[0] != expected ? support::wrong(comm.rank(), "wrong sum") : s;
  });
  for (cx::status const& s : legal) CHECK_MESSAGE(s.ok(), text(s));

  std::vector<cx::status> const illegal = on_each_rank(3, [](auto& comm) -> cx::status {
    std::vector<double> both{1.0}, none;
    if (comm.rank() != 0) return comm.reduce(both, both, cx::sum{}, 1);
    return comm.reduce(cx::in_place(both), cx::sum{}, 1);
  });
  CHECK(illegal[0].code() == cx::errc::invalid_argument);
  CHECK_MESSAGE(says(illegal[0], "in_place on rank 0, but the root is 1"), text(illegal[0]));
  CHECK(illegal[1].code() == cx::errc::peer_lost);  // the root needs rank 0, which has gone
  CHECK(illegal[1].rank() == 0);
}

TEST_CASE("INP-08: buffers that overlap without being in place are refused, the same buffer twice is in place") {
  all_refuse(on_each_rank(2,
                          [](auto& comm) {
                            ints memory(12);
                            return still_works(comm, comm.all_reduce(std::span(memory).first(8), std::span(memory).last(8), cx::sum{}));
                          }),
             cx::errc::invalid_argument, {"all_reduce on rank ", "input and output overlap without being in place"});
  all_refuse(on_each_rank(2,
                          [](auto& comm) {
                            ints memory(4);
                            return still_works(comm, comm.all_gather(std::span(memory).subspan(1, 2), std::span(memory)));
                          }),
             cx::errc::invalid_argument, {"all_gather on rank ", "overlap"});
  support::all_succeed(2, [](auto& comm) -> cx::status {
    ints both(8, comm.rank() + 1);
    if (cx::status s = comm.all_reduce(both, both, cx::sum{}); !s) return s;
    return both == ints(8, 3) ? cx::status{} : support::wrong(comm.rank(), "wrong sum");
  });
  support::all_succeed(2, [](auto& comm) -> cx::status {
    ints halves(8, comm.rank() + 1);
    std::span<int> const in = std::span(halves).first(4), out = std::span(halves).last(4);
    if (cx::status s = comm.all_reduce(in, out, cx::sum{}); !s) return s;
    return halves[3] == comm.rank() + 1 && halves[4] == 3 ? cx::status{} : support::wrong(comm.rank(), "wrong sum beside the input");
  });
}

TEST_CASE("a schedule that is not defined for this number of ranks is refused on all of them alike") {
  using two_nodes = cx::algo::hierarchical<cx::algo::ring, cx::algo::ring, cx::algo::sizes<3, 1, 2>>;
  all_refuse(on_each_rank(4,
                          [](auto& comm) {
                            ints in(2), out(2);
                            return still_works(comm, comm.all_reduce(in, out, cx::sum{}, two_nodes{}));
                          }),
             cx::errc::not_supported, {"all_reduce by hierarchical is not defined for 4 ranks"});
}

TEST_CASE("too few lanes for the algorithm: the message says how many it needs") {
  all_refuse(on_each_rank(4, with(64, 4096, 1),
                          [](auto& comm) {
                            ints in(2), out(2);
                            return still_works(comm, comm.all_reduce(in, out, cx::sum{}, cx::algo::double_binary_tree{}));
                          }),
             cx::errc::invalid_configuration, {"all_reduce by double_binary_tree needs 2 lanes, the transport has 1: raise lanes"});
}

TEST_CASE("ALN-04: slots that cannot hold an element of each chunk of a message are refused, and so are slots that are none") {
  struct large {
    std::int64_t words[5];
  };
  auto const first = cx::commutative([](large const& l, large const&) { return l; });
  all_refuse(on_each_rank(8, with(4, 64, 2),
                          [&](auto& comm) {
                            std::vector<large> in(16), out(2);
                            return still_works(comm, comm.reduce_scatter(in, out, first, cx::algo::recursive_halving{}));
                          }),
             cx::errc::invalid_configuration, {"slots of 64 bytes cannot hold 4 elements of 40 bytes", "raise slot_bytes"});
  auto const nothing = [](auto&) { return cx::status{}; };
  cx::status const none = cx::loopback::run(2, with(0, 64, 1), nothing);
  CHECK(none.code() == cx::errc::invalid_configuration);
  CHECK_MESSAGE(says(none, "slots is 0"), text(none));
  cx::status const odd = cx::loopback::run(2, with(4, 100, 1), nothing);
  CHECK(odd.code() == cx::errc::invalid_configuration);
  CHECK_MESSAGE(says(odd, "slot_bytes is 100"), text(odd));
}

TEST_CASE("MIS-01: counts that differ between ranks end the call on all of them, and the message has both") {
  for (auto [odd, common] : {std::pair{256000, 512000}, std::pair{1, 2}, std::pair{100, 200}}) {
    for (int who = 0; who < 4; ++who) {
      std::vector<cx::status> const ends = on_each_rank(4, [&, odd = odd, common = common](auto& comm) {
        std::size_t const count = static_cast<std::size_t>(comm.rank() == who ? odd : common);
        std::vector<float> in(count), out(count);
        return comm.all_reduce(in, out, cx::sum{});
      });
      std::string const one = " of " + std::to_string(odd), other = " of " + std::to_string(common),
                        name = "rank " + std::to_string(who) + " calls all_reduce float32 sum";  // as one of the two that differ
      all_refuse(ends, cx::errc::mismatch, {one.c_str(), other.c_str(), name.c_str()});
    }
  }
}

TEST_CASE("MIS-03: another collective on one rank ends the call on all of them, and the message has both") {
  std::vector<cx::status> const ends = on_each_rank(4, [](auto& comm) -> cx::status {
    std::vector<float> in(4), out(4), all(16);
    if (comm.rank() == 2) return comm.all_gather(in, all);
    return comm.all_reduce(in, out, cx::sum{});
  });
  all_refuse(ends, cx::errc::mismatch, {"rank 2 calls all_gather float32", "calls all_reduce float32 sum", " of 4"});

  support::all_succeed(4, [](auto& comm) -> cx::status {  // no false alarm
    std::vector<float> in(4, 1.0F), out(4), all(16);
    for (int i = 0; i < 500; ++i) {
      if (cx::status s = comm.all_reduce(in, out, cx::sum{}); !s) return s;
      if (cx::status s = comm.all_gather(in, all); !s) return s;
    }
    return out[3] < 4.0F || all[15] < 1.0F ? support::wrong(comm.rank(), "wrong result") : cx::status{};
  });
}

TEST_CASE("element types, operations and algorithms that differ between ranks end the call on all of them") {
  all_refuse(on_each_rank(3,
                          [](auto& comm) {
                            std::vector<float> in(4), out(4);
                            std::vector<int> in_too(4), out_too(4);
                            return comm.rank() == 1 ? comm.all_reduce(in, out, cx::sum{}) : comm.all_reduce(in_too, out_too, cx::sum{});
                          }),
             cx::errc::mismatch, {"rank 1 calls all_reduce float32 sum", "calls all_reduce int32 sum"});
  all_refuse(on_each_rank(3,
                          [](auto& comm) {
                            ints in(4), out(4);
                            return comm.rank() == 2 ? comm.all_reduce(in, out, cx::max{}) : comm.all_reduce(in, out, cx::min{});
                          }),
             cx::errc::mismatch, {"rank 2 calls all_reduce int32 max", "calls all_reduce int32 min"});
  all_refuse(on_each_rank(3,
                          [](auto& comm) {
                            ints in(4), out(4);
                            return comm.rank() == 0 ? comm.all_reduce(in, out, cx::sum{}, cx::algo::two_shot{})
                                                    : comm.all_reduce(in, out, cx::sum{}, cx::algo::ring{});
                          }),
             cx::errc::mismatch, {"rank 0 calls all_reduce int32 sum two_shot", "calls all_reduce int32 sum ring"});
}

TEST_CASE("what a call is said to be ends where there is no room for more, and shows that") {
  auto const differing = [](auto const& op) {
    return on_each_rank(2, [&op](auto& comm) {
      std::vector<float> in(4, 1.0F), out(4);
      return comm.rank() == 0 ? comm.all_reduce(in, out, op, cx::algo::recursive_halving{})
                              : comm.all_reduce(in, out, op, cx::algo::recursive_doubling{});
    });
  };
  all_refuse(differing(cx::sum{}), cx::errc::mismatch,
             {"all_reduce float32 sum recursive_halving of 4", "all_reduce float32 sum recursive_doubl.. of 4"});
  all_refuse(differing(cx::prod{}), cx::errc::mismatch,
             {"all_reduce float32 prod recursive_halv.. of 4", "all_reduce float32 prod recursive_doub.. of 4"});
}

TEST_CASE("roots that differ between ranks end this call or the next, on all ranks") {
  std::vector<cx::status> const ends = on_each_rank(3, [](auto& comm) -> cx::status {
    ints both(4);
    // Who has sent all it had to is done, so that it may hear of it only later.
    if (cx::status s = comm.broadcast(both, comm.rank() == 0 ? 0 : 1); !s) return s;
    return comm.barrier();
  });
  for (cx::status const& s : ends) {
    CHECK_MESSAGE(s.code() == cx::errc::mismatch, text(s));
    bool const seen_in_time = says(s, "broadcast int32 direct of 4 with root 0") && says(s, "with root 1");
    bool const seen_later = says(s, "is left from before: their calls have differed") || says(s, "is in its call");
    CHECK_MESSAGE((seen_in_time || seen_later), text(s));
  }
}

TEST_CASE("a rank that makes its calls in another order is found out") {
  std::vector<cx::status> const ends = on_each_rank(2, [](auto& comm) -> cx::status {
    ints in(4), out(4), all(8);
    if (comm.rank() == 0) {
      if (cx::status s = comm.all_reduce(in, out, cx::sum{}); !s) return s;
      return comm.all_gather(in, all);
    }
    if (cx::status s = comm.all_gather(in, all); !s) return s;
    return comm.all_reduce(in, out, cx::sum{});
  });
  all_refuse(ends, cx::errc::mismatch, {"all_reduce int32 sum", "all_gather int32"});
}

TEST_CASE("a result can take the place of another, whatever either holds, and nothing is lost or kept") {
  struct counted {
    explicit counted(int* count, int number) : alive(count), value(number) { ++*alive; }
    counted(counted&& other) noexcept : alive(other.alive), value(other.value) { ++*alive; }
    counted& operator=(counted&&) = delete;
    ~counted() { --*alive; }
    int* alive;
    int value;
  };
  int alive = 0;
  {
    using results = cx::result<counted>;
    results kept = counted(&alive, 1);
    kept = results(counted(&alive, 2));
    CHECK(kept->value == 2);
    CHECK(alive == 1);
    kept = cx::status::failure(cx::errc::busy, 3, "no");
    CHECK(!kept);
    CHECK(kept.error().rank() == 3);
    CHECK(alive == 0);
    kept = counted(&alive, 4);
    CHECK(kept->value == 4);
    CHECK(kept.error().ok());
    results& same = kept;
    kept = std::move(same);
    CHECK(kept->value == 4);
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
  support::all_succeed(4, [](auto& comm) -> cx::status {
    auto group = comm.split(comm.rank() % 2);
    for (int halvings = 0; halvings < 2 && group; ++halvings) group = group->split(0);
    if (!group) return group.error();
    return group->size() == 2 ? group->barrier() : support::wrong(comm.rank(), "the group is another");
  });
}

TEST_CASE("a communicator that has failed returns its first failure ever after") {
  std::vector<cx::status> const ends = on_each_rank(2, [](auto& comm) -> cx::status {
    std::size_t const count = comm.rank() == 0 ? 3 : 4;
    ints in(count), out(count);
    cx::status const first = comm.all_reduce(in, out, cx::sum{});
    for (int i = 0; i < 3; ++i) {
      cx::status const again = i == 0 ? comm.barrier() : i == 1 ? comm.broadcast(in, 0) : comm.all_reduce(in, out, cx::sum{});
      if (again.code() != first.code() || again.rank() != first.rank() || std::string(again.what()) != first.what())
        return support::wrong(comm.rank(), again.what());
    }
    return first;
  });
  all_refuse(ends, cx::errc::mismatch, {" of 3", " of 4"});
}

TEST_CASE("a second call at the same time on one communicator is refused, the first one completes") {
  std::atomic<int> refused{0};
  support::all_succeed(2, [&](auto& comm) -> cx::status {
    if (comm.rank() == 1) {
      while (refused == 0) std::this_thread::yield();  // until then, whichever of the two came first waits for this rank
      return comm.barrier();
    }
    cx::status ends[2];
    auto const call = [&](int i) {
      ends[i] = comm.barrier();
      if (ends[i].code() == cx::errc::busy) ++refused;
    };
    std::thread other(call, 1);
    call(0);
    other.join();
    cx::status const &passed = ends[0].ok() ? ends[0] : ends[1], &not_passed = ends[0].ok() ? ends[1] : ends[0];
    if (!passed) return passed;
    if (not_passed.code() != cx::errc::busy || !says(not_passed, "another call is under way on this communicator of rank 0"))
      return support::wrong(0, not_passed.what());
    return {};
  });
  CHECK(refused == 1);
}

TEST_CASE("abort from another thread ends the call of every rank with the same report") {
  std::vector<cx::status> const ends = on_each_rank(3, [](auto& comm) -> cx::status {
    if (comm.rank() == 2) {
      // Never calls, so the others are in their call until the abort.
      cx::status s;
      std::thread([&] { s = comm.abort(cx::status::failure(cx::errc::aborted, 2, "the user has had enough")); }).join();
      return s;
    }
    if (comm.rank() == 1) return comm.barrier();
    cx::status of_thread;
    std::thread caller([&] { of_thread = comm.barrier(); });
    caller.join();
    return of_thread;
  });
  all_refuse(ends, cx::errc::aborted, {"the user has had enough"});
  for (cx::status const& s : ends) CHECK(s.rank() == 2);
}

TEST_CASE("abort while its own rank waits in a call") {
  std::vector<cx::status> const ends = on_each_rank(2, [](auto& comm) -> cx::status {
    if (comm.rank() == 1) {
      int in = 0, out = 0;
      while (true)
        if (cx::status s = comm.transport().idle(1, 0); !s) return s;  // sees the verdict without ever calling
      return comm.all_reduce(std::span(&in, 1), std::span(&out, 1), cx::sum{});
    }
    cx::status of_call;
    std::thread caller([&] { of_call = comm.barrier(); });
    cx::status const mine = comm.abort();
    caller.join();
    return of_call.code() == mine.code() ? mine : support::wrong(0, of_call.what());
  });
  all_refuse(ends, cx::errc::aborted, {"rank 0 called abort"});
}

TEST_CASE("a rank whose function fails ends the calls of the others, and its failure is what run returns") {
  cx::status const s = cx::loopback::run(3, [](auto& comm) -> cx::status {
    if (comm.rank() == 1) return cx::status::failure(cx::errc::invalid_argument, 1, "rank 1 read a bad file");
    return comm.barrier();
  });
  CHECK(s.code() == cx::errc::invalid_argument);
  CHECK_MESSAGE(says(s, "rank 1 read a bad file"), text(s));
}

TEST_CASE("what a rank throws ends the calls of the others, and is what run returns") {
  cx::status const named = cx::loopback::run(2, [](auto& comm) -> cx::status {
    if (comm.rank() == 1) throw std::runtime_error("bad file");
    return comm.barrier();
  });
  CHECK(named.code() == cx::errc::aborted);
  CHECK_MESSAGE(says(named, "rank 1 threw: bad file"), text(named));
  cx::status const nameless = cx::shared_memory::run(2, [](auto& comm) -> cx::status {
    if (comm.rank() == 0) throw 42;
    return comm.barrier();
  });
  CHECK(nameless.code() == cx::errc::aborted);
  CHECK_MESSAGE(says(nameless, "rank 0 threw something that is no std::exception"), text(nameless));
}

TEST_CASE("a rank that leaves while others need it is named") {
  std::vector<cx::status> const ends = on_each_rank(3, [](auto& comm) -> cx::status {
    if (cx::status s = comm.barrier(); !s) return s;
    if (comm.rank() == 1) return {};
    return comm.barrier();
  });
  CHECK(ends[1].ok());
  for (std::size_t r : {std::size_t{0}, std::size_t{2}}) {
    CHECK(ends[r].code() == cx::errc::peer_lost);
    CHECK(ends[r].rank() == 1);
    CHECK_MESSAGE(says(ends[r], "rank 1 has left"), text(ends[r]));
  }
}

TEST_CASE("a rank that never calls makes the others time out, and they say whom they waited for") {
  std::atomic<int> timed_out{0}, ready{0};
  std::vector<cx::status> const ends = on_each_rank(3, [&](auto& comm) -> cx::status {
    if (comm.rank() == 1) {
      while (timed_out < 2) std::this_thread::yield();
      return comm.barrier();  // of a group that has failed
    }
    ints in(4), out(4);
    for (++ready; ready < 2;) std::this_thread::yield();
    cx::status const s = comm.all_reduce(in, out, cx::sum{}, cx::algo::direct{}, in_a_second);
    ++timed_out;
    return s;
  });
  for (cx::status const& s : ends) {
    CHECK_MESSAGE(s.code() == cx::errc::timeout, text(s));
    CHECK_MESSAGE(says(s, "in all_reduce int32 sum direct, call 1"), text(s));
    CHECK_MESSAGE(s.rank() == 1, text(s));
  }
}

TEST_CASE("DIE-04: ranks 1 and 3 of 5 never come to a barrier: nobody passes, and the error lists exactly them") {
  std::atomic<int> failed{0}, ready{0};
  std::vector<cx::status> const ends = on_each_rank(5, [&](auto& comm) -> cx::status {
    if (comm.rank() == 1 || comm.rank() == 3) {
      while (failed < 3) std::this_thread::yield();
      return {};
    }
    for (++ready; ready < 3;) std::this_thread::yield();
    cx::status const s = comm.barrier(cx::algo::automatic{}, in_a_second);
    ++failed;
    return s;
  });
  all_refuse({ends[0], ends[2], ends[4]}, cx::errc::timeout, {"not yet in this call: 1, 3", "in all_reduce uint8 sum direct, call 1"});
}

TEST_CASE("COLLECTX_TIMEOUT is the deadline in seconds, and what is no number of seconds is refused by each call") {
  for (char const* text : {"abc", "", "0", "-3", "10s"}) {
    ::setenv("COLLECTX_TIMEOUT", text, 1);
    auto const ends = on_each_rank(2, {}, [](auto& comm) -> cx::status {
      static_cast<void>(comm.barrier());
      return comm.barrier();
    });
    all_refuse(ends, cx::errc::invalid_configuration, {"COLLECTX_TIMEOUT", text});
  }
  ::setenv("COLLECTX_TIMEOUT", "0.2", 1);
  std::atomic<bool> over{false};
  auto const ends = on_each_rank(2, [&](auto& comm) -> cx::status {
    while (comm.rank() == 1 && !over) std::this_thread::yield();
    cx::status const s = comm.barrier();
    over = true;
    return s;
  });
  ::unsetenv("COLLECTX_TIMEOUT");
  for (cx::status const& s : ends) CHECK_MESSAGE(s.code() == cx::errc::timeout, text(s));
}

TEST_CASE("ALN-04: fewer slots than the algorithm needs are refused before anybody waits for ever") {
  all_refuse(on_each_rank(4, with(1, 4096, 2),
                          [](auto& comm) {
                            ints in(4), out(4);
                            if (cx::status s = comm.all_reduce(in, out, cx::sum{}, cx::algo::direct{}); !s) return s;
                            return still_works(comm, comm.all_reduce(in, out, cx::sum{}, cx::algo::ring{}));
                          }),
             cx::errc::invalid_configuration,
             {"all_reduce by ring among 4 ranks would wait for ever with 1 slots per channel: raise slots"});
}

TEST_CASE("ALN-04: an element larger than a slot is refused") {
  struct huge {
    char bytes[65];
  };
  auto const first = cx::commutative([](huge const& l, huge const&) { return l; });
  all_refuse(on_each_rank(2, with(4, 64, 1),
                          [&](auto& comm) {
                            std::vector<huge> in(2), out(2);
                            return still_works(comm, comm.all_reduce(in, out, first));
                          }),
             cx::errc::invalid_configuration, {"slots of 64 bytes cannot hold ", " elements of 65 bytes"});
}

TEST_CASE("what the library cannot get of the system is a status, not the end of the process") {
  auto const no_thread = []() -> cx::status { throw std::system_error(EAGAIN, std::generic_category(), "a thread"); };
  auto const no_memory = []() -> cx::status { throw std::bad_alloc(); };
  for (cx::status const& s : {cx::detail::within_memory(3, no_thread), cx::detail::within_memory(3, no_memory)}) {
    CHECK(s.code() == cx::errc::out_of_memory);
    CHECK(s.rank() == 3);
  }
  CHECK(std::string(cx::detail::within_memory(3, no_thread).what()).find("a thread") != std::string::npos);
}
