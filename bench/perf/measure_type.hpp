// SPDX-License-Identifier: Apache-2.0
/// How one rank measures and checks.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "call.hpp"
#include "data.hpp"
#include "measure.hpp"

namespace perf {

/// Where the buffers of calls lie, and who makes the calls: memory of the host, and the communicator itself. What is said of another
/// group has to be seen by its measure_*.
template <class Group>
class stage {
 public:
  explicit stage(Group& comm) : comm_(comm) {}
  template <class Op, class T>
  collectx::status make(job const&, collective_call<T> const& call) {
    return reduces(call.what) ? make_reduction<Op>(comm_, call) : make_move(comm_, call);
  }
  /// Ends when all calls have.
  collectx::status finish() { return {}; }
  std::size_t slots() { return static_cast<std::size_t>(comm_.transport().slots()); }
  std::size_t slot_bytes() { return comm_.transport().slot_bytes(); }

  static void* allocate(std::size_t bytes) { return ::operator new(bytes, page, std::nothrow); }
  static void release(void* memory) { ::operator delete(memory, page); }

 private:
  static constexpr std::align_val_t page{4096};
  Group& comm_;
};

/// Elements of one rank, on a page of their own.
template <class Group, class T>
class storage {
 public:
  explicit storage(std::size_t count) : memory_(static_cast<T*>(stage<Group>::allocate(count * sizeof(T) + 1))), count_(count) {}
  explicit operator bool() const { return memory_ != nullptr; }
  std::span<T> first(std::size_t count) const { return {memory_.get(), count}; }
  std::size_t count() const { return count_; }

 private:
  struct release {
    void operator()(T* p) const { stage<Group>::release(p); }
  };
  std::unique_ptr<T, release> memory_;
  std::size_t count_;
};

/// One for all operations: what depends on the operation asks for it, outside of what is measured but for one branch a call.
template <class Group, class T>
class bench {
 public:
  bench(Group& comm, job const& what)
      : comm_(comm),
        stage_(comm),
        what_(what),
        ranks_(static_cast<std::size_t>(comm.size())),
        rank_(static_cast<std::size_t>(comm.rank())),
        in_(what.all->sizes.back() / sizeof(T)),
        out_(in_.count()) {}

  collectx::status run(row_taker take, void* context) {
    if (!in_ || !out_) {
      return collectx::status::failure(collectx::errc::out_of_memory, comm_.rank(), "rank %d has no memory for two buffers of %zu bytes",
                                       comm_.rank(), what_.all->sizes.back());
    }
    if (collectx::status s = warm_up_slots(); !s) return s;
    for (std::size_t i = 0; i < what_.all->sizes.size(); ++i) {
      shape(what_.all->sizes[i]);
      row r{total_ * sizeof(T), share_, {}, {}};
      if (what_.what != collective::broadcast) {
        in_place_ = false;
        if (collectx::status s = measure(r.out_of_place); !s) return s;
      }
      in_place_ = true;
      if (collectx::status s = measure(r.in_place); !s) return s;
      if (rank_ == 0) take(what_, i, r, context);
    }
    return {};
  }

 private:
  bool is_root() const { return comm_.rank() == what_.root; }
  bool blocked() const { return what_.what == collective::reduce_scatter || what_.what == collective::all_gather; }

  void shape(std::size_t bytes) {
    share_ = bytes / sizeof(T) / (blocked() ? ranks_ : 1);
    total_ = share_ * (blocked() ? ranks_ : 1);
    algorithm_.face = what_.face != nullptr ? what_.face : automatic_choice(what_.what, comm_.size(), total_ * sizeof(T));
  }

  /// What is measured.
  collectx::status call() {
    std::span<T> const in = in_.first(what_.what == collective::all_gather ? share_ : total_);
    std::span<T> out = out_.first(what_.what == collective::reduce_scatter && !in_place_ ? share_ : total_);
    bool const gives_only = what_.what == collective::reduce && !is_root();
    if (gives_only) out = out.first(0);
    collective_call<T> const made{what_.what, in_place_ && !gives_only, in, out, what_.root, algorithm_};
    return with_operation(what_.op, [&]<class Op>(Op) { return stage_.template make<Op, T>(what_, made); });
  }

  collectx::status calls(int count) {
    for (int i = 0; i < count; ++i)
      if (collectx::status s = call(); !s) return s;
    return stage_.finish();
  }

  /// The first use of a slot is a page fault, many times as long as what is measured. So all are used beforehand, at the largest size: a
  /// call uses at least one slot of each of its channels, and as many as a share of the vector fills.
  collectx::status warm_up_slots() {
    if (what_.all->warmup == 0) return {};
    shape(what_.all->sizes.back());
    in_place_ = true;
    prepare(0);
    std::size_t const share = total_ * sizeof(T) / ranks_;
    std::size_t const slots_of_call = (std::max)(share / stage_.slot_bytes(), std::size_t{1});
    return calls(static_cast<int>((stage_.slots() + slots_of_call - 1) / slots_of_call));
  }

  /// Seconds per call on this rank.
  collectx::status time(int count, double& seconds) {
    if (collectx::status s = meet(comm_); !s) return s;
    auto const begin = std::chrono::steady_clock::now();
    if (collectx::status s = calls(count); !s) return s;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
    return {};
  }

  /// As many calls as take about 5 ms, the same on every rank.
  collectx::status choose_iterations(int& count) {
    count = what_.all->iterations;
    if (count > 0) return {};
    constexpr double aim = 5e-3;
    double seconds = 0;
    for (count = 1;; count *= 8) {
      if (collectx::status s = time(count, seconds); !s) return s;
      if (collectx::status s = slowest_of(comm_, std::span(&seconds, 1)); !s) return s;
      if (seconds * count > aim / 8 || count >= 4096) break;
    }
    count = std::clamp(static_cast<int>(aim / seconds), 1, 100000);
    return {};
  }

  collectx::status measure(measurement& out) {
    out.offered = true;
    prepare(0);
    if (collectx::status s = calls(what_.all->warmup); !s) return s;
    int count = 0;
    if (collectx::status s = choose_iterations(count); !s) return s;
    std::vector<double> seconds(static_cast<std::size_t>(what_.all->batches));
    for (double& batch : seconds)
      if (collectx::status s = time(count, batch); !s) return s;
    if (collectx::status s = slowest_of(comm_, seconds); !s) return s;
    std::sort(seconds.begin(), seconds.end());
    out.seconds = (seconds[(seconds.size() - 1) / 2] + seconds[seconds.size() / 2]) / 2;

    for (int c = 1; c <= what_.all->checked; ++c) {
      prepare(c);
      if (collectx::status s = calls(1); !s) return s;
      if (comm_.rank() == what_.all->plant_wrong) plant();
      out.wrong += wrong(c);
    }
    return total_of(comm_, out.wrong);
  }

  /// Where this rank's own input lies, and which element of all of them it begins with.
  std::span<T> input() const {
    if (what_.what == collective::broadcast && !is_root()) return {};
    bool const at_output = what_.what == collective::broadcast || (in_place_ && (what_.what != collective::reduce || is_root()));
    if (what_.what != collective::all_gather) return (at_output ? out_ : in_).first(total_);
    return at_output ? out_.first(total_).subspan(rank_ * share_, share_) : in_.first(share_);
  }
  std::span<T> output() const {
    if (what_.what == collective::reduce && !is_root()) return {};
    if (what_.what != collective::reduce_scatter) return out_.first(total_);
    return in_place_ ? out_.first(total_).subspan(rank_ * share_, share_) : out_.first(share_);
  }

  T value(int rank, std::size_t element, int call) const {
    return with_operation(what_.op, [&]<class Op>(Op) { return value_of<Op, T>(rank, element, call); });
  }
  T result(std::size_t element, int call) const {
    return with_operation(what_.op, [&]<class Op>(Op) { return result_of<Op, T>(comm_.size(), element, call); });
  }

  void prepare(int call) {
    poison(out_.first(total_).data(), total_);
    std::span<T> const mine = input();
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = value(comm_.rank(), i, call);
  }

  void plant() {
    std::span<T> const mine = output();
    if (mine.empty()) return;
    T& element = mine[mine.size() / 2];
    element = same_bits(element, T{}) ? static_cast<T>(1) : T{};
  }

  std::int64_t wrong(int call) const {
    std::int64_t sum = 0;
    std::span<T const> const got = output();
    auto const expect = [&](std::size_t i, T wanted) { sum += same_bits(got[i], wanted) ? 0 : 1; };
    std::size_t const origin = what_.what == collective::reduce_scatter ? rank_ * share_ : 0;
    switch (what_.what) {
      case collective::all_gather:
        for (std::size_t r = 0; r < ranks_; ++r)
          for (std::size_t i = 0; i < share_; ++i) expect(r * share_ + i, value(static_cast<int>(r), i, call));
        break;
      case collective::broadcast:
        for (std::size_t i = 0; i < got.size(); ++i) expect(i, value(what_.root, i, call));
        break;
      case collective::all_reduce:
      case collective::reduce_scatter:
      case collective::reduce:
        for (std::size_t i = 0; i < got.size(); ++i) expect(i, result(origin + i, call));
    }
    // Out of place the input is only read.
    std::span<T const> const mine = input();
    if (!in_place_)
      for (std::size_t i = 0; i < mine.size(); ++i) sum += same_bits(mine[i], value(comm_.rank(), i, call)) ? 0 : 1;
    return sum;
  }

  Group& comm_;
  stage<Group> stage_;
  job const& what_;
  std::size_t ranks_, rank_;
  storage<Group, T> in_, out_;
  any_algorithm algorithm_;
  bool in_place_ = false;
  std::size_t share_ = 0, total_ = 0;
};

template <class Group, class T>
collectx::status measure_type(Group& group, job const& what, row_taker take, void* context) {
  return bench<Group, T>(group, what).run(take, context);
}

}  // namespace perf

/// Instantiates it for one type, over every transport of the host.
#define COLLECTX_PERF_MEASURES(type)               \
  COLLECTX_PERF_MEASURES_OVER(shared_memory, type) \
  COLLECTX_PERF_MEASURES_OVER(loopback, type)      \
  COLLECTX_PERF_MEASURES_OVER_NETWORK(type)
#define COLLECTX_PERF_MEASURES_OVER(wire, type)                                                           \
  template collectx::status perf::measure_type<collectx::communicator<collectx::wire##_transport>, type>( \
      collectx::communicator<collectx::wire##_transport>&, perf::job const&, perf::row_taker, void*);
#if COLLECTX_PERF_LIBFABRIC
#define COLLECTX_PERF_MEASURES_OVER_NETWORK(type) COLLECTX_PERF_MEASURES_OVER(libfabric, type)
#else
#define COLLECTX_PERF_MEASURES_OVER_NETWORK(type)
#endif
