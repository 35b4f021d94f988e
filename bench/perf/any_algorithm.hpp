// SPDX-License-Identifier: Apache-2.0
/// Algorithms that are chosen at run time. A schedule is only looked at when its plan is made, so that behind pointers its plan is the
/// same and runs as fast; but one instantiation of a collective serves all algorithms, which keeps this program's build short.
#pragma once

#include <collectx/algo/automatic.hpp>
#include <collectx/communicator.hpp>

#include <string_view>
#include <vector>

#include "bandwidth.hpp"

namespace perf {

/// A RankContext that passes on what it is told.
class any_rank {
 public:
  enum class verb { send, recv, reduce };

  int rank() const { return rank_; }
  int size() const { return size_; }
  int chunks() const { return chunks_; }
  int blocks() const { return blocks_; }
  template <collectx::Runs R>
  void send(int peer, R const& runs, int lane = 0) {
    pass(verb::send, peer, runs, lane);
  }
  template <collectx::Runs R>
  void recv(int peer, R const& runs, int lane = 0) {
    pass(verb::recv, peer, runs, lane);
  }
  template <collectx::Runs R>
  void reduce(int peer, R const& runs, int lane = 0) {
    pass(verb::reduce, peer, runs, lane);
  }

 protected:
  /// Runs as the archetype of the concept, but owned.
  struct run_list {
    std::vector<collectx::chunks> all;
    template <class F>
    void for_each(F&& f) const {
      for (collectx::chunks run : all) f(run);
    }
  };

  any_rank(int rank, int size, int chunks, int blocks) : rank_(rank), size_(size), chunks_(chunks), blocks_(blocks) {}
  ~any_rank() = default;
  virtual void move(verb what, int peer, run_list const& runs, int lane) = 0;

 private:
  template <class R>
  void pass(verb what, int peer, R const& runs, int lane) {
    run_list list;
    runs.for_each([&](collectx::chunks run) { list.all.push_back(run); });
    move(what, peer, list, lane);
  }
  int rank_, size_, chunks_, blocks_;
};

template <class Me>
class rank_of final : public any_rank {
 public:
  explicit rank_of(Me& me) : any_rank(me.rank(), me.size(), me.chunks(), me.blocks()), me_(me) {}

 private:
  void move(verb what, int peer, run_list const& runs, int lane) override {
    switch (what) {
      case verb::send:
        return me_.send(peer, runs, lane);
      case verb::recv:
        return me_.recv(peer, runs, lane);
      case verb::reduce:
        return me_.reduce(peer, runs, lane);
    }
  }
  Me& me_;
};

/// The members of a family's schedule for one collective, the root being theirs to know.
struct schedule_face {
  bool (*admits)(int root, int n);
  int (*lanes)(int root);
  int (*steps)(int root, int n);
  int (*parts)(int root, int n);
  void (*step)(int root, int k, any_rank& me);
};

/// A Schedule.
struct any_schedule {
  schedule_face const* face = nullptr;
  int root = 0;
  bool admits(int n) const { return face->admits(root, n); }
  int lanes() const { return face->lanes(root); }
  int steps(int n) const { return face->steps(root, n); }
  int parts(int n) const { return face->parts(root, n); }
  template <collectx::RankContext Me>
  void step(int k, Me& me) const {
    rank_of<Me> behind(me);
    face->step(root, k, behind);
  }
  friend bool operator==(any_schedule const&, any_schedule const&) = default;
};

/// A family of which the one member that is asked for is known.
struct any_algorithm {
  static constexpr char const* name = "chosen";
  schedule_face const* face = nullptr;
  any_schedule all_reduce() const { return {face, 0}; }
  any_schedule reduce_scatter() const { return {face, 0}; }
  any_schedule all_gather() const { return {face, 0}; }
  any_schedule broadcast(int root) const { return {face, root}; }
  any_schedule reduce(int root) const { return {face, root}; }
};

struct algorithm_entry {
  char const* name;
  schedule_face const* of[5];  ///< by collective; null where it is not offered
};

/// All algorithms that can be named, `auto` apart.
std::vector<algorithm_entry> const& algorithms();

/// What the library would take where no algorithm is named.
schedule_face const* automatic_choice(collective what, int ranks, std::size_t bytes);

/// With fewer slots per channel the ranks would wait for each other for ever.
int slots_needed(collective what, schedule_face const& face, int root, int ranks);

}  // namespace perf
