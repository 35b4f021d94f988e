// SPDX-License-Identifier: Apache-2.0
/// All ranks of a group on one thread: each is a state machine, and whoever tests decides which moves next.
#pragma once

#include <collectx/arguments.hpp>
#include <collectx/exec/drive.hpp>
#include <collectx/exec/passes.hpp>
#include <collectx/transport/hostile.hpp>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perform.hpp"
#include "plans.hpp"
#include "seed.hpp"

namespace support {

/// A series of calls of one algorithm; the calls share one plan per rank, as in a communicator.
struct trial {
  algorithm const* how = nullptr;
  int n = 1;
  int root = 0;
  placement where = placement::out_of_place;
  std::vector<call> calls;
};

template <class C, class Op, class T>
cx::exec::list<cx::exec::plan> plans_for(trial const& t) {
  constexpr bool ordered = !cx::is_commutative_v<Op, T>;
  C const collective = about<C>(t.root);
  auto const schedule = cx::detail::schedule_for<ordered>(t.how->template erased<ordered>(), collective);
  return plans_of(schedule, collective, t.n);
}

template <class C, class Op, class T>
int slots_for(trial const& t) {
  constexpr bool ordered = !cx::is_commutative_v<Op, T>;
  return cx::cost_of(cx::detail::schedule_for<ordered>(t.how->template erased<ordered>(), about<C>(t.root)), about<C>(t.root), t.n).slots;
}

/// How the memory of one call lies in the collective's blocks.
template <class C, class T>
cx::exec::buffers<T> buffers_of(exchange_of<C, T> const& memory) {
  bool const wide = memory.out.size() == 0 && !std::is_same_v<C, cx::reduce>;
  cx::exec::buffers<T> where;
  where.count = memory.count;
  where.input = memory.in.data();
  where.output = memory.in_place || wide ? memory.in.data() : memory.out.data();
  std::size_t const mine = memory.me * memory.count;
  if constexpr (std::is_same_v<C, cx::reduce_scatter>) {
    where.output_origin = mine;
    if (memory.in_place) where.output += mine;
  } else if constexpr (std::is_same_v<C, cx::all_gather>) {
    where.input_origin = mine;
    if (memory.in_place) where.input += mine;
  }
  return where;
}

/// One rank's part of a trial.
template <class Tr, class C, class T, class Op>
class rank_at_work {
 public:
  using run_type = cx::exec::run<Tr, T, Op>;
  /// On the transport's clock, which runs away from a rank that polls in vain: some hundred thousand polls, during which the others have
  /// as many steps.
  static constexpr cx::nanoseconds patience = 10'000'000'000'000'000;

  rank_at_work(Tr& transport, cx::exec::plan const& plan, trial const& t, Op const& op)
      : transport_(transport), plan_(cx::exec::plan(plan), transport), trial_(t), op_(op) {
    begin();
  }
  rank_at_work(rank_at_work&&) = delete;

  bool ended() const { return ended_; }
  cx::status const& end() const { return end_; }
  std::string const& defect() const { return defect_; }
  std::size_t calls_done() const { return at_; }
  exchange_of<C, T> const& memory() const { return *memory_; }
  cx::exec::bound_plan<Tr>& plan() { return plan_; }

  /// `judge(rank, memory, call)` gives what is wrong with the result of a call, or nothing.
  template <class Judge>
  void advance(Judge const& judge) {
    switch (run_->advance()) {
      case cx::exec::progress::done: {
        transport_.end();
        defect_ = judge(transport_.rank(), *memory_, trial_.calls[at_]);
        ++at_;
        return begin();
      }
      case cx::exec::progress::conflict:
        return stop(transport_.conflict(run_->peer()));
      case cx::exec::progress::moved:
        polls_ = 0;
        return;
      case cx::exec::progress::stuck:
        return wait();
    }
  }

 private:
  void begin() {
    if (at_ == trial_.calls.size() || !defect_.empty()) return stop({});
    call const& c = trial_.calls[at_];
    memory_ =
        std::make_unique<exchange_of<C, T>>(trial_.n, transport_.rank(), task{trial_.how, trial_.where, {c.count, c.salt, trial_.root}, 0});
    cx::exec::buffers<T> where = buffers_of(*memory_);
    record_ = {};
    record_.sequence = at_ + 1;
    record_.count = c.count;
    std::snprintf(record_.what, sizeof record_.what, "%s", C::name);
    where.tag = record_.tag = static_cast<std::uint32_t>(2 * at_ + 1);
    run_.emplace(plan_, transport_, where, op_);
    if (!run_->fits()) return stop(cx::status::failure(cx::errc::invalid_configuration, transport_.rank(), "slots are too small"));
    transport_.begin(record_);
    polls_ = 0;
    since_ = -1;
  }

  void wait() {
    transport_.progress();
    if (cx::status s = transport_.idle(++polls_, run_->peer()); !s) return stop(s);
    if (polls_ == 1) since_ = transport_.now();
    if (transport_.now() - since_ > patience) stop(cx::exec::detail::timed_out(*run_, transport_, record_, patience));
  }

  void stop(cx::status const& why) {
    end_ = why;
    ended_ = true;
  }

  Tr& transport_;
  cx::exec::bound_plan<Tr> plan_;
  trial const& trial_;
  Op const& op_;
  std::size_t at_ = 0;
  std::unique_ptr<exchange_of<C, T>> memory_;
  cx::call_record record_;
  std::optional<run_type> run_;
  int polls_ = 0;
  cx::nanoseconds since_ = -1;
  bool ended_ = false;
  cx::status end_;
  std::string defect_;
};

/// How a group of ranks came out.
struct outcome {
  std::vector<cx::status> ends;
  std::string defect;  ///< of the first rank that had one
  bool hangs = false;
  bool clean() const {
    for (cx::status const& s : ends)
      if (!s.ok()) return false;
    return defect.empty() && !hangs;
  }
  std::string text() const {
    if (!defect.empty()) return defect;
    for (cx::status const& s : ends)
      if (!s.ok()) return s.what();
    return hangs ? "does not end" : "clean";
  }
};

/// Advances ranks in the order that `random` gives until all have ended or one has found a defect.
template <class Work, class Random, class Judge>
outcome advance_all(std::vector<std::unique_ptr<Work>>& ranks, Random&& random, Judge const& judge) {
  outcome o;
  std::vector<std::size_t> open;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (!ranks[r]->ended()) open.push_back(r);
  for (long steps = 0; !open.empty() && o.defect.empty(); ++steps) {
    if (steps > 20'000'000) {
      o.hangs = true;
      break;
    }
    std::size_t const i = static_cast<std::size_t>(random() % open.size());
    Work& rank = *ranks[open[i]];
    rank.advance(judge);
    if (!rank.ended()) continue;
    o.defect = rank.defect();
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (auto const& rank : ranks) o.ends.push_back(rank->end());
  return o;
}

/// Compares with the reference.
template <class C, class T, class Op>
class by_reference {
 public:
  by_reference(trial const& t, Op const& op) : trial_(t) {
    for (call const& c : t.calls) expected_.push_back(reference<C, T>(t.n, {c.count, c.salt, t.root}, op));
  }
  std::string operator()(int rank, exchange_of<C, T> const& memory, call const& c) const {
    std::size_t const index = static_cast<std::size_t>(&c - trial_.calls.data());
    task const t{trial_.how, trial_.where, {c.count, c.salt, trial_.root}, 0};
    std::string const wrong = detail::defect<C, T>(rank, t, memory, expected_[index]);
    return wrong.empty() ? wrong : "rank " + std::to_string(rank) + " " + wrong + " in call " + std::to_string(index + 1);
  }

 private:
  trial const& trial_;
  std::vector<std::vector<T>> expected_;
};

/// A trial over the hostile transport.
template <class C, class T, class Op>
outcome run_hostile(trial const& t, cx::exec::list<cx::exec::plan> const& plans, cx::hostile_options const& options, std::uint64_t seed,
                    Op const& op) {
  using work = rank_at_work<cx::hostile_transport, C, T, Op>;
  outcome failed;
  auto group = cx::hostile_group::create(t.n, seed, options);
  if (!group) {
    failed.ends.push_back(group.error());
    return failed;
  }
  std::vector<cx::hostile_transport> transports;
  for (int r = 0; r < t.n; ++r) transports.push_back(*group->transport(r));
  std::vector<std::unique_ptr<work>> ranks;
  for (int r = 0; r < t.n; ++r) ranks.push_back(std::make_unique<work>(transports[static_cast<std::size_t>(r)], plans[r], t, op));
  outcome o = advance_all(
      ranks, [&] { return group->random(); }, by_reference<C, T, Op>(t, op));
  if (o.clean()) {
    if (cx::status s = group->settled(); !s) o.defect = s.what();
  }
  return o;
}

}  // namespace support
