// SPDX-License-Identifier: Apache-2.0
// compile: -O1
// timeout: 300
// The same for plans: each operation, source and target of each rank's plan is spoilt, one at a time. What a mutant means is found out by
// an interpreter that shares nothing with the proof: it moves words, by place in the slot as a rank does, and knows no names.
#include "film.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

namespace {

namespace cx = collectx;
using cx::exec::operation;
using cx::exec::place;
using cx::exec::plan;
using plans = cx::exec::list<plan>;

/// What ranks end with, as far as anybody was promised.
struct meaning {
  bool right = true;  ///< every promised chunk has every contribution once, and nothing is left over
  bool rank_order = true;
  bool agreement = true;
  bool operator==(meaning const&) const = default;
};

/// A contribution is a letter for its rank and the name of its chunk; a fold writes its operands side by side, in parentheses.
std::string contribution(int rank, int chunk) { return static_cast<char>('a' + rank) + std::to_string(chunk) + ' '; }

template <class C>
class interpreter {
 public:
  interpreter(plans const& all, C const& collective) : all_(all), collective_(collective), form_(all[0].form), next_(size(), 0) {
    for (int r = 0; r < form_.size; ++r) {
      cx::chunks const names = form_.names(collective.input(form_.size, r));
      for (int c = names.first; c < names.first + names.count; ++c) memory_[{r, place::input, c}] = contribution(r, c);
    }
  }

  meaning run() {
    bool broken = false;
    for (bool moved = true; moved && !broken;) {
      moved = false;
      for (int r = 0; r < form_.size && !broken; ++r)
        while (!broken && next_[at(r)] < all_[r].operations.size() && ready(r)) {
          broken = !perform(r, all_[r].operations[next_[at(r)]++]);
          moved = true;
        }
    }
    for (int r = 0; r < form_.size; ++r) broken = broken || next_[at(r)] < all_[r].operations.size();
    for (auto const& [ends, messages] : wire_) broken = broken || !messages.empty();
    return broken ? meaning{false, false, false} : judge();
  }

 private:
  using message = std::vector<std::string>;
  std::size_t size() const { return at(form_.size); }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  bool ready(int r) {
    for (cx::exec::endpoint const e : all_[r].operations[next_[at(r)]].in)
      if (wire_[{e.peer, r, e.lane}].empty()) return false;
    return true;
  }

  /// False where a message is too short, too long, or memory is read that nobody wrote.
  bool perform(int r, operation const& o) {
    std::vector<message> in, out(at(o.out.size()));
    std::vector<std::size_t> read(at(o.in.size()), 0);
    for (cx::exec::endpoint const e : o.in) {
      in.push_back(std::move(wire_[{e.peer, r, e.lane}].front()));
      wire_[{e.peer, r, e.lane}].pop_front();
    }
    for (cx::exec::segment const& s : o.segments) {
      message folded;
      for (int c = s.run.first; c < s.run.first + s.run.count; ++c) {
        std::string value;
        for (cx::exec::source const& x : s.sources) {
          std::string operand;
          if (x.from == place::slot) {
            if (read[at(x.in)] == in[at(x.in)].size()) return false;
            operand = in[at(x.in)][read[at(x.in)]++];
          } else {
            operand = memory_[{r, x.from, c}];
          }
          if (operand.empty()) return false;
          if (value.empty())
            value = operand;
          else
            value = x.left ? "(" + operand + value + ")" : "(" + value + operand + ")";
        }
        for (cx::exec::target const& x : s.targets) {
          if (x.to == place::slot)
            out[at(x.out)].push_back(value);
          else
            memory_[{r, x.to, c}] = value;
        }
      }
    }
    for (std::size_t i = 0; i < in.size(); ++i)
      if (read[i] != in[i].size()) return false;
    for (int i = 0; i < o.out.size(); ++i) wire_[{r, o.out[i].peer, o.out[i].lane}].push_back(std::move(out[at(i)]));
    return true;
  }

  meaning judge() {
    meaning m;
    for (int c = 0; c < form_.chunks; ++c) {
      std::string everyone, expression;
      for (int r = 0; r < form_.size; ++r) everyone += contribution(r, c);
      std::string const expected = C::reduces ? everyone : contribution(collective_.source(form_.size, c / form_.per_block()), c);
      for (int r = 0; r < form_.size; ++r) {
        cx::chunks const names = form_.names(collective_.output(form_.size, r));
        if (c < names.first || c >= names.first + names.count) continue;
        std::string const& value = memory_[{r, place::output, c}];
        std::string flat;
        for (char const letter : value)
          if (letter != '(' && letter != ')') flat += letter;
        if (flat != expected) m.rank_order = false;
        if (sorted(flat) != sorted(expected)) m.right = false;
        if (!expression.empty() && expression != value) m.agreement = false;
        expression = value;
      }
    }
    return m;
  }
  static std::vector<std::string> sorted(std::string const& flat) {
    std::vector<std::string> words(1);
    for (char const letter : flat)
      if (letter == ' ')
        words.emplace_back();
      else
        words.back() += letter;
    std::sort(words.begin(), words.end());
    return words;
  }

  plans const& all_;
  C const& collective_;
  cx::exec::shape form_;
  std::vector<int> next_;
  std::map<std::tuple<int, place, int>, std::string> memory_;
  std::map<std::tuple<int, int, int>, std::deque<message>> wire_;
};

struct tally {
  int made = 0, meaningful = 0, found = 0, overcautious = 0;
};

template <class C>
class spoiler {
 public:
  spoiler(std::string const& name, plans const& all, C const& collective, tally& count)
      : name_(name),
        all_(all),
        collective_(collective),
        count_(count),
        whole_(interpreter(all, collective).run()),
        proved_(cx::exec::verify_plans(collective, all, 64)) {
    REQUIRE(whole_.right);
    REQUIRE(proved_.finding.ok());
    REQUIRE(whole_.rank_order == proved_.rank_order);
    REQUIRE(whole_.agreement == proved_.agreement);
  }

  void spoil_all() {
    for (int r = 0; r < all_.size(); ++r)
      for (int i = 0; i < all_[r].operations.size(); ++i) {
        operation const& o = all_[r].operations[i];
        try_out("operation dropped", [&](plans& p) { p[r].operations.erase(i); });
        for (int j = i + 1; j < all_[r].operations.size(); ++j)
          if (share_a_channel(o, all_[r].operations[j]))
            try_out("sends swapped", [&](plans& p) { std::swap(p[r].operations[i], p[r].operations[j]); });
        for (int s = 0; s < o.segments.size(); ++s) {
          for (int x = 0; x < o.segments[s].sources.size(); ++x) spoil_source(r, i, s, x);
          for (int x = 0; x < o.segments[s].targets.size(); ++x) spoil_target(r, i, s, x);
        }
      }
  }

 private:
  static bool share_a_channel(operation const& a, operation const& b) {
    for (cx::exec::endpoint const e : a.out)
      for (cx::exec::endpoint const f : b.out)
        if (e == f) return true;
    return false;
  }
  void spoil_source(int r, int i, int s, int x) {
    auto const source = [=](plans& p) -> cx::exec::source& { return p[r].operations[i].segments[s].sources[x]; };
    try_out("left flipped", [&](plans& p) { source(p).left = !source(p).left; });
    try_out("source dropped", [&](plans& p) { p[r].operations[i].segments[s].sources.erase(x); });
    if (int const count = all_[r].operations[i].in.size(); all_[r].operations[i].segments[s].sources[x].from == place::slot && count > 1)
      try_out("another slot in", [&](plans& p) { source(p).in = (source(p).in + 1) % count; });
    if (all_[r].operations[i].segments[s].sources[x].from != place::slot)
      try_out("another memory read", [&](plans& p) { source(p).from = source(p).from == place::input ? place::output : place::input; });
  }
  void spoil_target(int r, int i, int s, int x) {
    auto const target = [=](plans& p) -> cx::exec::target& { return p[r].operations[i].segments[s].targets[x]; };
    try_out("target dropped", [&](plans& p) { p[r].operations[i].segments[s].targets.erase(x); });
    if (int const count = all_[r].operations[i].out.size(); all_[r].operations[i].segments[s].targets[x].to == place::slot && count > 1)
      try_out("another slot out", [&](plans& p) { target(p).out = (target(p).out + 1) % count; });
    if (all_[r].operations[i].segments[s].targets[x].to != place::slot)
      try_out("another memory written", [&](plans& p) { target(p).to = target(p).to == place::scratch ? place::output : place::scratch; });
  }

  template <class Spoil>
  void try_out(char const* what, Spoil spoil) {
    plans mutant = all_;
    spoil(mutant);
    ++count_.made;
    bool const meaningful = !(interpreter(mutant, collective_).run() == whole_);
    cx::exec::report const found = cx::exec::verify_plans(collective_, mutant, 64);
    bool const seen = !found.finding.ok() || found.rank_order != proved_.rank_order || found.agreement != proved_.agreement;
    CAPTURE(name_);
    CAPTURE(std::string(what));
    CAPTURE(all_.size());
    CAPTURE(count_.made);
    CHECK((seen || !meaningful));
    count_.meaningful += meaningful ? 1 : 0;
    count_.found += seen && meaningful ? 1 : 0;
    count_.overcautious += seen && !meaningful ? 1 : 0;
  }

  std::string const& name_;
  plans const& all_;
  C const& collective_;
  tally& count_;
  meaning whole_;
  cx::exec::report proved_;
};

TEST_CASE("every mutant of every plan that means something else is found, 2 to 5 ranks") {
  tally count;
  for (int n = 2; n <= 5; ++n) {
    auto const spoil = [&](std::string const& name, film_of::film const& original, auto const& collective, film_of::declared) {
      plans const all = cx::exec::make_plans(original, collective, n);
      spoiler(name, all, collective, count).spoil_all();
    };
    film_of::of_flat_families(n, spoil);
    film_of::of_two_levels(film_of::any_groups::like<cx::algo::uniform<2>>(), n, spoil);
  }
  std::printf("mutants of plans: %d made, %d mean something else, %d of those found, %d found that mean the same\n", count.made,
              count.meaningful, count.found, count.overcautious);
  CHECK(count.found == count.meaningful);
  CHECK(count.meaningful >= 15000);
}

}  // namespace
