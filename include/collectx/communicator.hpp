// SPDX-License-Identifier: Apache-2.0
/// The user's door: a group of ranks and its collectives, over any transport.
///
/// One call at a time per communicator, from any thread; a second at the same time is `errc::busy`. All ranks make the same calls in the
/// same order. A failed collective poisons its communicator: every later call returns the first failure.
#pragma once

#include "collectx/algo/automatic.hpp"
#include "collectx/arguments.hpp"
#include "collectx/exec/drive.hpp"
#include "collectx/plan_cache.hpp"
#include "collectx/reduce/functors.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>

namespace collectx {
inline namespace v0 {

struct call_options {
  std::chrono::nanoseconds timeout{0};  ///< longest wait without progress; 0: COLLECTX_TIMEOUT seconds, or 5 minutes
};

/// @tparam Tr  the wire: loopback_transport, shared_memory_transport, ...
template <Transport Tr>
class communicator {
 public:
  explicit communicator(Tr transport) : state_(std::make_unique<state>(std::move(transport))) {}

  int rank() const { return state_->transport.rank(); }
  int size() const { return state_->transport.size(); }
  Tr& transport() { return state_->transport; }

  /// Every rank ends with op over all ranks' `in`, in rank order where `op` is not commutative.
  /// in: count elements on every rank; out: count elements; the same memory or disjoint.
  template <Elements In, Elements Out, class Op, class A = algo::automatic>
  requires same_elements<In, Out> status all_reduce(In&& in, Out&& out, Op const& op, A const& algorithm = {},
                                                    call_options const& options = {}) {
    return reducing(collectx::all_reduce{}, view_const(in), view(out), op, algorithm, options);
  }
  template <class T, class Op, class A = algo::automatic>
  status all_reduce(in_place<T> both, Op const& op, A const& algorithm = {}, call_options const& options = {}) {
    return reducing(collectx::all_reduce{}, std::span<T const>(both.data), both.data, op, algorithm, options);
  }

  /// Rank r ends with block r of op over all ranks' `in`. in: size() * count elements, block after block; out: count elements.
  /// In place: size() * count elements; the result is in slot r, the rest stays as it was.
  template <Elements In, Elements Out, class Op, class A = algo::automatic>
  requires same_elements<In, Out> status reduce_scatter(In&& in, Out&& out, Op const& op, A const& algorithm = {},
                                                        call_options const& options = {}) {
    return reducing(collectx::reduce_scatter{}, view_const(in), view(out), op, algorithm, options);
  }
  template <class T, class Op, class A = algo::automatic>
  status reduce_scatter(in_place<T> both, Op const& op, A const& algorithm = {}, call_options const& options = {}) {
    if (status s = detail::divides(both.data.size(), size(), rank()); !s) return s;
    return reducing(collectx::reduce_scatter{}, std::span<T const>(both.data), own_slot(both.data), op, algorithm, options);
  }

  /// Every rank ends with all ranks' `in`, in rank order. in: count elements; out: size() * count elements.
  /// In place: size() * count elements; each rank's own are in slot r before.
  template <Elements In, Elements Out, class A = algo::automatic>
  requires same_elements<In, Out> status all_gather(In&& in, Out&& out, A const& algorithm = {}, call_options const& options = {}) {
    return moving(collectx::all_gather{}, view_const(in), view(out), algorithm, options);
  }
  template <class T, class A = algo::automatic>
  status all_gather(in_place<T> both, A const& algorithm = {}, call_options const& options = {}) {
    if (status s = detail::divides(both.data.size(), size(), rank()); !s) return s;
    return moving(collectx::all_gather{}, std::span<T const>(own_slot(both.data)), both.data, algorithm, options);
  }

  /// Every rank ends with the root's `both`: count elements on every rank.
  template <Elements Both, class A = algo::automatic>
  status broadcast(Both&& both, int root, A const& algorithm = {}, call_options const& options = {}) {
    if (status s = detail::is_rank(root, size(), rank()); !s) return s;
    auto const all = view(both);
    return moving(collectx::broadcast{root}, constant(all), all, algorithm, options);
  }

  /// The root ends with op over all ranks' `in`: count elements on every rank. out: count elements on the root; elsewhere not looked at
  /// (it may be empty) and not written. In place: on the root only.
  template <Elements In, Elements Out, class Op, class A = algo::automatic>
  requires same_elements<In, Out> status reduce(In&& in, Out&& out, Op const& op, int root, A const& algorithm = {},
                                                call_options const& options = {}) {
    if (status s = detail::is_rank(root, size(), rank()); !s) return s;
    auto const result = view(out);
    return reducing(collectx::reduce{root}, view_const(in), rank() == root ? result : result.first(0), op, algorithm, options);
  }
  template <class T, class Op, class A = algo::automatic>
  status reduce(in_place<T> both, Op const& op, int root, A const& algorithm = {}, call_options const& options = {}) {
    if (status s = detail::is_rank(root, size(), rank()); !s) return s;
    if (rank() != root) {
      return status::failure(errc::invalid_argument, rank(), "reduce: in_place on rank %d, but the root is %d: pass input and output there",
                             rank(), root);
    }
    return reducing(collectx::reduce{root}, std::span<T const>(both.data), both.data, op, algorithm, options);
  }

  /// Returns when all ranks have called it.
  template <class A = algo::automatic>
  status barrier(A const& algorithm = {}, call_options const& options = {}) {
    std::uint8_t token = 0;
    return reducing(collectx::all_reduce{}, std::span<std::uint8_t const>(&token, 1), std::span<std::uint8_t>(&token, 1), sum{}, algorithm,
                    options);
  }

  /// Ends the calls of all ranks; from any thread. The first report of the group wins and is returned.
  status abort(status const& why = {}) { return state_->transport.abort(why); }

 private:
  struct state {
    explicit state(Tr wire) : transport(std::move(wire)), plans(transport) {
      char const* const text = std::getenv("COLLECTX_TIMEOUT");
      double const seconds = text == nullptr ? 0 : std::strtod(text, nullptr);
      if (seconds > 0 && seconds < 1e9) timeout = static_cast<nanoseconds>(seconds * 1e9);
    }
    Tr transport;
    detail::plan_cache<Tr> plans;
    std::uint64_t sequence = 0;
    nanoseconds timeout = nanoseconds{300} * 1'000'000'000;
    std::atomic<bool> busy{false};
    status failure;
  };
  /// Holds the communicator for one call.
  struct turn {
    std::atomic<bool>& busy;
    bool mine;
    explicit turn(std::atomic<bool>& b) : busy(b), mine(!b.exchange(true, std::memory_order_acquire)) {}
    turn(turn const&) = delete;
    turn& operator=(turn const&) = delete;
    ~turn() {
      if (mine) busy.store(false, std::memory_order_release);
    }
  };

  template <class T>
  static std::span<T const> constant(std::span<T> s) {
    return s;
  }
  template <class T>
  std::span<T> own_slot(std::span<T> all) const {
    std::size_t const count = all.size() / static_cast<std::size_t>(size());
    return all.subspan(static_cast<std::size_t>(rank()) * count, count);
  }

  template <Collective C, class T, class Op, class A>
  status reducing(C const& collective, std::span<T const> in, std::span<T> out, Op const& op, A const& algorithm,
                  call_options const& options) {
    static_assert(
        Reduction<Op, T>,
        "collectx: the operation cannot combine two values of this type: it needs T operator()(T, T) const, T trivially copyable");
    detail::shape_of_call call;
    if (status s = call.fit(collective, size(), rank(), in, out); !s) return s;
    auto const with = [&](auto const& family) {
      constexpr bool ordered = !is_commutative_v<Op, T>;
      auto const schedule = detail::schedule_for<ordered>(family, collective);
      return execute<T>(collective, family, schedule, call, in.data(), out.data(), op, reduction_name<Op>(), options);
    };
    return dispatch<!is_commutative_v<Op, T>>(collective, algorithm, call.total_bytes, with);
  }

  template <Collective C, class T, class A>
  status moving(C const& collective, std::span<T const> in, std::span<T> out, A const& algorithm, call_options const& options) {
    static_assert(std::is_trivially_copyable_v<T>, "collectx: elements travel as bytes, so their type must be trivially copyable");
    detail::shape_of_call call;
    if (status s = call.fit(collective, size(), rank(), in, out); !s) return s;
    call.in_bytes(sizeof(T));
    auto const with = [&](auto const& family) {
      return execute<T>(collective, family, schedule_of(family, collective), call, reinterpret_cast<std::byte const*>(in.data()),
                        reinterpret_cast<std::byte*>(out.data()), detail::moves_only{}, "", options);
    };
    return dispatch<false>(collective, algorithm, call.total_bytes, with);
  }

  template <bool Ordered, Collective C, class A, class F>
  status dispatch(C const& collective, A const& algorithm, std::size_t bytes, F const& with) {
    if constexpr (std::is_same_v<A, algo::automatic>)
      return algo::with_choice<Ordered>(collective, size(), bytes, with);
    else
      return with(algorithm);
  }

  template <class Named, Collective C, class A, Schedule S, class T, class Op>
  status execute(C const& collective, A const&, S const& schedule, detail::shape_of_call const& call, T const* in, T* out, Op const& op,
                 char const* operation, call_options const& options) {
    state& mine = *state_;
    turn const held(mine.busy);
    if (!held.mine) return status::failure(errc::busy, rank(), "another call is under way on this communicator of rank %d", rank());
    if (!mine.failure.ok()) return mine.failure;
    detail::call_kind const kind = detail::call_kind::of<Named, A>(operation);
    auto* const cached = mine.plans.find(schedule, collective, kind);
    if (cached == nullptr) return mine.plans.refusal(schedule, collective, kind);

    ++mine.sequence;
    call_record& record = cached->record;
    record.sequence = mine.sequence;
    record.count = call.count_given;
    record.tag = detail::tag_of(cached->identity, record.count, record.sequence);
    exec::buffers<T> const memory{in, call.input_origin, out, call.output_origin, call.count, record.tag};
    exec::run<Tr, T, Op> run(cached->bound, mine.transport, memory, op);
    if (!run.fits()) {
      return status::failure(errc::invalid_configuration, rank(),
                             "slots of %zu bytes cannot hold %d elements of %zu bytes, which %.40s sends at once: raise slot_bytes",
                             mine.transport.slot_bytes(), cached->bound.content().largest_message, sizeof(T), record.what);
    }
    mine.transport.begin(record);
    nanoseconds const timeout = options.timeout.count() > 0 ? options.timeout.count() : mine.timeout;
    status const s = exec::drive(run, mine.transport, record, timeout);
    if (s.ok())
      mine.transport.end();
    else
      mine.failure = s;
    return s;
  }

  std::unique_ptr<state> state_;
};

}  // namespace v0
}  // namespace collectx
