// SPDX-License-Identifier: Apache-2.0
/// For schedules that are chosen at run time: a RankContext behind virtual calls. A schedule is only looked at when its plan is made, so
/// that behind a pointer its plan is the same and runs as fast, while one instantiation of a collective serves all. Include it by name.
#pragma once

#include "collectx/schedule.hpp"

#include <vector>

namespace collectx {
inline namespace v0 {
namespace exec {

/// A RankContext that passes on what it is told.
class any_rank : public context_base {
 public:
  enum class verb { send, recv, reduce };

  any_rank(any_rank&&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  int chunks() const { return chunks_; }
  int blocks() const { return blocks_; }
  template <Runs R>
  void send(int peer, R const& runs, int lane = 0) {
    pass(verb::send, peer, runs, lane);
  }
  template <Runs R>
  void recv(int peer, R const& runs, int lane = 0) {
    pass(verb::recv, peer, runs, lane);
  }
  template <Runs R>
  void reduce(int peer, R const& runs, int lane = 0) {
    pass(verb::reduce, peer, runs, lane);
  }

 protected:
  /// Runs, but owned.
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

/// `me` as an any_rank.
template <class Me>
class rank_behind final : public any_rank {
 public:
  explicit rank_behind(Me& me) : any_rank(me.rank(), me.size(), me.chunks(), me.blocks()), me_(me) {}

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

}  // namespace exec
}  // namespace v0
}  // namespace collectx
