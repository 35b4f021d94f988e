// SPDX-License-Identifier: Apache-2.0
/// The user's door: a group of ranks, its collectives and messages, over any transport.
///
/// One call at a time per communicator, from any thread; a second at the same time is `errc::busy`. All ranks make the same collective
/// calls in the same order. A failed call poisons its communicator: every later call returns the first failure, and `shrink` goes on
/// without those that died.
#pragma once

#include "collectx/calls.hpp"
#include "collectx/planned_call.hpp"
#include "collectx/split.hpp"
#include "collectx/stream_calls.hpp"
#include "collectx/tasks.hpp"

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {

namespace detail {

/// Takes the arguments of collective calls, to make plans of them.
template <Transport Tr>
class call_planner : public collective_calls<call_planner<Tr>, planned_call<Tr>> {
 public:
  call_planner(std::shared_ptr<member<Tr>> const& whose, int rank, int size) : member_(whose), rank_(rank), size_(size) {}

 private:
  friend class collective_calls<call_planner<Tr>, planned_call<Tr>>;
  int rank() const { return rank_; }
  int size() const { return size_; }
  static constexpr bool dear_messages = messages_are_dear<Tr>();
  std::uint8_t* token() { return &member_->token; }
  algo::placed nodes() const requires knows_nodes<Tr> { return member_->nodes.groups(); }

  template <class T, class Op, class F>
  planned_call<Tr> perform(shape_of_call const& call, T const* in, T* out, Op const& op, F const& find, call_options const& options) {
    turn const held(member_->at_work);
    if (!held.mine) return member_->busy_elsewhere();
    auto* const cached = find(member_->plans);
    if (cached == nullptr) return member_->plans.refusal();
    exec::buffers<T> const memory{in, call.input_origin, out, call.output_origin, call.count, 0};
    auto task = std::make_unique<collective_task<Tr, T, Op>>(*member_, *cached, memory, call.count_given, op);
    return {member_, std::move(task), options};
  }

  std::shared_ptr<member<Tr>> member_;
  int rank_, size_;
};

}  // namespace detail

template <Transport Tr>
class background_progress;

/// @tparam Tr  the wire: loopback_transport, shared_memory_transport, ...
template <Transport Tr>
class communicator : public detail::calls_of<communicator<Tr>, Tr> {
 public:
  explicit communicator(Tr transport)
      : member_(std::make_shared<detail::member<Tr>>(std::move(transport))),
        rank_(member_->transport.rank()),
        size_(member_->transport.size()) {}
  communicator(communicator&& other) noexcept
      : member_(std::move(other.member_)), rank_(std::exchange(other.rank_, -1)), size_(std::exchange(other.size_, 0)) {}
  communicator& operator=(communicator&& other) noexcept {
    std::swap(member_, other.member_);
    std::swap(rank_, other.rank_);
    std::swap(size_, other.size_);
    return *this;
  }

  int rank() const { return rank_; }  ///< -1 in an empty communicator
  int size() const { return size_; }  ///< 0 in an empty communicator: a split left this rank out, or it has been moved from
  /// @pre size() > 0
  Tr& transport() { return member_->transport; }

  /// The collective calls, put onto a stream: `comm.on(stream).all_reduce(in, out, sum{}, ring{})`. See stream_calls.hpp.
  template <class Stream>
  requires puts_on_streams<Tr, Stream> detail::stream_caller<Tr, Stream> on(Stream stream) { return {member_, rank_, size_, stream}; }

  /// Sends `out` to rank `to`, whose recv is for as many elements of the same type. Messages between two ranks match in order. Returns when
  /// `out` may be changed: a short message is on its way before the receiver asks for it, a long one waits for it.
  template <Elements Out>
  status send(Out&& out, int to, call_options const& options = {}) {
    return transfer(outgoing(view_const(out), to), options);
  }
  /// Receives from rank `from` what it sends, as many elements as `in` has.
  template <Elements In>
  status recv(In&& in, int from, call_options const& options = {}) {
    return transfer(incoming(view(in), from), options);
  }
  /// Both at once: neither waits for the other. To oneself and from oneself it is a copy.
  template <Elements Out, Elements In>
  status send_recv(Out&& out, int to, In&& in, int from, call_options const& options = {}) {
    return transfer(both(outgoing(view_const(out), to), incoming(view(in), from)), options);
  }

  /// A call made ready, to be started again and again and to be under way beside others. Takes what the call of that name takes; options
  /// are those of its waits. What cannot be called is said by start().
  template <class... What>
  planned_call<Tr> plan_all_reduce(What&&... what) {
    return planner().all_reduce(std::forward<What>(what)...);
  }
  template <class... What>
  planned_call<Tr> plan_reduce_scatter(What&&... what) {
    return planner().reduce_scatter(std::forward<What>(what)...);
  }
  template <class... What>
  planned_call<Tr> plan_all_gather(What&&... what) {
    return planner().all_gather(std::forward<What>(what)...);
  }
  template <class... What>
  planned_call<Tr> plan_broadcast(What&&... what) {
    return planner().broadcast(std::forward<What>(what)...);
  }
  template <class... What>
  planned_call<Tr> plan_reduce(What&&... what) {
    return planner().reduce(std::forward<What>(what)...);
  }
  template <class... What>
  planned_call<Tr> plan_barrier(What&&... what) {
    return planner().barrier(std::forward<What>(what)...);
  }
  template <Elements Out>
  planned_call<Tr> plan_send(Out&& out, int to, call_options const& options = {}) {
    return plan_transfer(outgoing(view_const(out), to), options);
  }
  template <Elements In>
  planned_call<Tr> plan_recv(In&& in, int from, call_options const& options = {}) {
    return plan_transfer(incoming(view(in), from), options);
  }
  template <Elements Out, Elements In>
  planned_call<Tr> plan_send_recv(Out&& out, int to, In&& in, int from, call_options const& options = {}) {
    return plan_transfer(both(outgoing(view_const(out), to), incoming(view(in), from)), options);
  }

  /// One new communicator for the ranks of each color, in the order of their keys, then of their ranks here. A negative color: this rank
  /// gets an empty one. All ranks call it. The new one owns nothing of this one, and may outlive it. The options' timeout is also the time
  /// that a group has to come together (else the transport's join_timeout).
  template <std::integral Color>
  result<communicator> split(Color color, std::int64_t key = 0, call_options const& options = {}) {
    bool const fits = std::in_range<std::int64_t>(color);
    detail::ballot const mine{fits ? static_cast<std::int64_t>(color) : -1, key, 0};
    result<communicator> made = divide(mine, options);
    if (fits || !made) return made;
    return status::failure(errc::invalid_argument, rank_, "rank %d: a color beyond 63 bits; this rank is in no group", rank_);
  }
  /// A new communicator for these ranks, in this order; the others get an empty one. All ranks call it, with the same list.
  template <Elements Ranks>
  result<communicator> subgroup(Ranks&& ranks, call_options const& options = {}) {
    std::span<int const> const list = view_const(ranks);
    if (status s = detail::are_ranks(list, size_, rank_); !s) return s;
    detail::ballot mine{-1, 0, detail::hash_of(list)};
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i] == rank_) mine = {0, static_cast<std::int64_t>(i), mine.list};
    return divide(mine, options);
  }
  /// A new communicator of the same ranks, whose calls do not mix with those here. All ranks call it.
  result<communicator> duplicate(call_options const& options = {}) { return split(0, rank_, options); }

  /// A new communicator without the ranks that are named, in the same order. Works where this one has failed. All that are not named call
  /// it, with the same ranks in any order; nobody waits for those that are named. What fails here may be tried again with better knowledge.
  template <Elements Ranks>
  result<communicator> shrink(Ranks&& dead, call_options const& options = {}) {
    if (size_ == 0) return detail::no_member();
    detail::turn const held(member_->at_work);
    if (!held.mine) return member_->busy_elsewhere();
    std::span<int const> const named = view_const(dead);
    if (status s = detail::are_ranks(named, size_, rank_); !s) return s;
    std::vector<int> gone, members;
    for (int r = 0; r < size_; ++r) (detail::contains(named, r) ? gone : members).push_back(r);
    if (detail::contains(gone, rank_)) {
      return status::failure(errc::invalid_argument, rank_, "rank %d names itself among the dead", rank_);
    }
    int const attempt = ++member_->foundings;
    Tr& wire = member_->transport;
    if (status s = detail::agree_on_dead(wire, gone, attempt, member_->patience(options)); !s) return s;
    char name[16];
    std::snprintf(name, sizeof name, "k%d", attempt);
    result<Tr> made = detail::found(wire, members, name, true, options);
    if (!made) return made.error();
    return communicator(std::move(*made));
  }

  /// The ranks that are known to be dead or gone, ascending. Costs microseconds per rank.
  std::vector<int> lost() {
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r)
      if (r != rank_ && member_->transport.lost(r)) ranks.push_back(r);
    return ranks;
  }

  /// The hosts of the group's ranks, as groups: hierarchical takes them where it is given none.
  algo::placed nodes() const requires detail::knows_nodes<Tr> { return member_->nodes.groups(); }

  /// Ends the calls of all ranks; from any thread. The first report of the group wins and is returned.
  status abort(status const& why = {}) {
    if (size_ == 0) return detail::no_member();
    return member_->transport.abort(why);
  }

 private:
  friend class detail::collective_calls<communicator<Tr>, status>;
  friend class detail::calls_of<communicator<Tr>, Tr>;
  template <Transport>
  friend class background_progress;
  communicator() = default;

  static constexpr bool dear_messages = detail::messages_are_dear<Tr>();

  std::uint8_t* token() { return &member_->token; }
  detail::call_planner<Tr> planner() { return {member_, rank_, size_}; }

  template <class T, class Op, class F>
  status perform(detail::shape_of_call const& call, T const* in, T* out, Op const& op, F const& find, call_options const& options) {
    detail::member<Tr>& mine = *member_;
    detail::turn const held(mine.at_work);
    if (!held.mine) return mine.busy_elsewhere();
    if (!mine.fit()) return mine.failure;
    auto* const plan = find(mine.plans);
    if (plan == nullptr) return mine.plans.refusal();
    exec::buffers<T> const memory{in, call.input_origin, out, call.output_origin, call.count, 0};
    return carry_out(*plan, memory, call.count_given, op, options);
  }
  /// One instance for all collectives and algorithms.
  template <class T, class Op>
  status carry_out(typename detail::plan_cache<Tr>::entry& plan, exec::buffers<T> memory, std::uint64_t count_given, Op const& op,
                   call_options const& options) {
    detail::member<Tr>& mine = *member_;
    if (!mine.line.empty()) [[unlikely]] {
      detail::collective_task<Tr, T, Op> task(mine, plan, memory, count_given, op);
      return mine.through(task, mine.patience(options));
    }
    memory.tag = plan.stamp(++mine.sequence, count_given);
    exec::run<Tr, T, Op> run(plan.bound, mine.transport, memory, op);
    if (!run.fits()) return plan.too_large(mine.transport, sizeof(T));
    mine.transport.begin(plan.record);
    status const s = exec::drive(run, mine.transport, plan.record, mine.patience(options));
    if (s.ok())
      mine.transport.end();
    else
      mine.failure = s;
    return s;
  }

  detail::letters outgoing(auto out, int to) const { return detail::letters::sent(out, to); }
  detail::letters incoming(auto in, int from) const { return detail::letters::received(in, from); }
  static detail::letters both(detail::letters const& out, detail::letters const& in) { return {out.out, out.from, in.in, in.to}; }

  status transfer(detail::letters what, call_options const& options) {
    if (status s = what.fit(rank_, size_); !s) return s;
    detail::member<Tr>& mine = *member_;
    detail::turn const held(mine.at_work);
    if (!held.mine) return mine.busy_elsewhere();
    if (!mine.fit()) return mine.failure;
    if (!mine.line.empty() || what.to_self(rank_)) [[unlikely]] {
      detail::transfer_task<Tr> task(mine, what);
      return mine.through(task, mine.patience(options));
    }
    bool const sends = what.out.peer >= 0, receives = what.in.peer >= 0;
    if (sends) what.out.number = ++mine.mail_of(what.out.peer).sent;
    if (receives) what.in.number = ++mine.mail_of(what.in.peer).received;
    status s;
    if (!receives) {
      exec::sending<Tr> run(mine.transport, what.out, what.from);
      s = mine.carry(run, options);
    } else if (!sends) {
      exec::receiving<Tr> run(mine.transport, what.in, what.to);
      s = mine.carry(run, options);
    } else {
      exec::exchanging<Tr> run({mine.transport, what.out, what.from}, {mine.transport, what.in, what.to});
      s = mine.carry(run, options);
    }
    if (sends) mine.mail_of(what.out.peer).sent_ended = what.out.number;
    if (receives) mine.mail_of(what.in.peer).received_ended = what.in.number;
    return s;
  }
  planned_call<Tr> plan_transfer(detail::letters const& what, call_options const& options) {
    if (status s = what.fit(rank_, size_); !s) return s;
    return {member_, std::make_unique<detail::transfer_task<Tr>>(*member_, what), options};
  }

  result<communicator> divide(detail::ballot const& mine, call_options const& options) {
    std::vector<detail::ballot> all(static_cast<std::size_t>(size_));
    std::span<detail::ballot const> const one(&mine, 1);
    if (status s = this->moving(collectx::all_gather{}, one, std::span(all), algo::automatic{}, options, "for split"); !s) return s;
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (all[r].list == mine.list) continue;
      return status::failure(errc::mismatch, static_cast<int>(r), "rank %d and rank %d call subgroup with different lists of ranks", rank_,
                             static_cast<int>(r));
    }
    if (mine.color < 0) return communicator();
    detail::turn const held(member_->at_work);
    if (!held.mine) return member_->busy_elsewhere();
    char name[16];
    std::snprintf(name, sizeof name, "s%llx", static_cast<unsigned long long>(member_->sequence) & 0xffffffffffffu);
    std::vector<int> const members = detail::members_of(all, mine.color);
    result<Tr> made = detail::found(member_->transport, members, name, false, options);
    if (!made) return made.error();
    return communicator(std::move(*made));
  }

  std::shared_ptr<detail::member<Tr>> member_;
  int rank_ = -1, size_ = 0;
};

}  // namespace v0
}  // namespace collectx
