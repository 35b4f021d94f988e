// SPDX-License-Identifier: Apache-2.0
/// From what a schedule says to what a machine should do: fuse, drop dead stores, place, find strands.
///
/// Each pass is a function on a plan that keeps its meaning; `verify_plan` is run after each of them in the tests.
#pragma once

#include "collectx/exec/plan.hpp"

namespace collectx {
inline namespace v0 {
namespace exec {

namespace detail {

constexpr bool in_memory(place where) { return where != place::slot; }

constexpr bool reads(segment const& s) {
  for (source const& x : s.sources)
    if (in_memory(x.from)) return true;
  return false;
}
constexpr bool writes(segment const& s) {
  for (target const& x : s.targets)
    if (in_memory(x.to)) return true;
  return false;
}
constexpr bool touches(operation const& o, list<segment> const& others) {
  for (segment const& s : o.segments)
    for (segment const& t : others)
      if ((writes(s) || reads(s)) && overlap(s.run, t.run)) return true;
  return false;
}
/// One of them writes what the other reads or writes.
constexpr bool conflict(operation const& a, operation const& b) {
  for (segment const& s : a.segments)
    for (segment const& t : b.segments)
      if (overlap(s.run, t.run) && ((writes(s) && (reads(t) || writes(t))) || (reads(s) && writes(t)))) return true;
  return false;
}
constexpr bool same_runs(operation const& a, operation const& b) {
  if (a.segments.size() != b.segments.size()) return false;
  for (int i = 0; i < a.segments.size(); ++i)
    if (a.segments[i].run != b.segments[i].run) return false;
  return true;
}
/// Some operation strictly between i and j uses one of these ends.
constexpr bool used_between(plan const& p, int i, int j, list<endpoint> const& ends, list<endpoint> operation::*side) {
  for (int k = i + 1; k < j; ++k)
    for (endpoint e : ends)
      if (contains(p.operations[k].*side, e)) return true;
  return false;
}

/// Which operation wrote each chunk last.
class makers {
 public:
  constexpr explicit makers(int chunk_names) : last_(chunk_names, -1) {}
  constexpr int latest(operation const& o) const {
    int latest = -1;
    for (segment const& s : o.segments)
      for (int c = s.run.first; c < s.run.first + s.run.count; ++c) latest = collectx::detail::larger(latest, last_[c]);
    return latest;
  }
  constexpr void by(int index, operation const& o) {
    for (segment const& s : o.segments)
      if (writes(s))
        for (int c = s.run.first; c < s.run.first + s.run.count; ++c) last_[c] = index;
  }

 private:
  list<int> last_;
};

/// An operation that has become part of another has neither ends nor segments until `compact` takes it out.
constexpr bool is_gone(operation const& o) { return o.in.empty() && o.out.empty() && o.segments.empty(); }
constexpr void vanish(operation& o) {
  o.in.clear();
  o.out.clear();
  o.segments.clear();
}
constexpr void compact(plan& p) {
  list<operation> left;
  for (operation& o : p.operations)
    if (!is_gone(o)) left.push(std::move(o));
  p.operations = std::move(left);
}

/// Reductions i and j into the same chunks become one, at j: a receive may wait, a send may not. Mine is the value of i, so it must stand
/// where j's fold begins.
constexpr bool join_reductions(plan& p, int i, int j) {
  operation &a = p.operations[i], &b = p.operations[j];
  if (a.in.empty() || b.in.empty() || !a.out.empty() || !same_runs(a, b)) return false;
  for (endpoint e : a.in)
    if (contains(b.in, e)) return false;
  for (int k = i + 1; k < j; ++k)
    if (touches(p.operations[k], a.segments)) return false;
  if (used_between(p, i, j, a.in, &operation::in)) return false;
  for (segment const& s : b.segments) {
    bool const mine_begins = !s.sources.empty() && s.sources[0].from == place::local;
    bool const mine_second = s.sources.size() > 1 && s.sources[1].from == place::local && !s.sources[1].left;
    if (!mine_begins && !mine_second) return false;
  }
  int const shift = a.in.size();
  for (int s = 0; s < b.segments.size(); ++s) {
    list<source> joined = a.segments[s].sources;
    list<source> const& later = b.segments[s].sources;
    bool const mine_begins = later[0].from == place::local;
    if (!mine_begins) joined.push({place::slot, true, later[0].in + shift});
    for (int x = mine_begins ? 1 : 2; x < later.size(); ++x) joined.push({later[x].from, later[x].left, later[x].in + shift});
    b.segments[s].sources = std::move(joined);
  }
  list<endpoint> in = a.in;
  in.append(b.in);
  b.in = std::move(in);
  vanish(a);
  return true;
}

/// Send j goes out of operation i, which made its chunks: what i folds goes to the slot as well, the rest is read from memory.
constexpr void send_from(plan& p, int i, int j) {
  operation &a = p.operations[i], &b = p.operations[j];
  list<int> cuts;
  list<chunks> made, sent;
  for (segment const& s : a.segments) made.push(s.run);
  for (segment const& s : b.segments) sent.push(s.run);
  add_cuts(cuts, made);
  add_cuts(cuts, sent);
  list<segment> out;
  for (int c = 0; c + 1 < cuts.size(); ++c) {
    segment s{{cuts[c], cuts[c + 1] - cuts[c]}, {}, {}};
    for (segment const& x : a.segments)
      if (overlap(x.run, s.run)) s.sources = x.sources, s.targets = x.targets;
    if (contains(sent, s.run.first)) {
      if (s.sources.empty()) s.sources.push({place::local, false, 0});
      s.targets.push({place::slot, false, a.out.size()});
    }
    if (!s.sources.empty()) out.push(std::move(s));
  }
  a.segments = std::move(out);
  a.out.push(b.out[0]);
  vanish(b);
}

/// Joins neighbours that a cut left apart though nothing distinguishes them.
constexpr void join_segments(operation& o) {
  auto const same = [](auto const& a, auto const& b, auto const& equal) {
    if (a.size() != b.size()) return false;
    for (int i = 0; i < a.size(); ++i)
      if (!equal(a[i], b[i])) return false;
    return true;
  };
  int kept = 0;
  for (int i = 1; i < o.segments.size(); ++i) {
    segment &last = o.segments[kept], &next = o.segments[i];
    if (last.run.first + last.run.count == next.run.first &&
        same(last.sources, next.sources, [](source a, source b) { return a.from == b.from && a.left == b.left && a.in == b.in; }) &&
        same(last.targets, next.targets, [](target a, target b) { return a.to == b.to && a.finish == b.finish && a.out == b.out; }))
      last.run.count += next.run.count;
    else if (++kept != i)
      o.segments[kept] = std::move(next);
  }
  if (!o.segments.empty()) o.segments.truncate(kept + 1);
}

}  // namespace detail

/// A chunk that is received and next sent is read once and written once. A send moves *up* to the receive that made its chunks, with no
/// other send on its channel between, so messages on a channel never change order; equal sends of one step become one with several outs.
constexpr void fuse(plan& p) {
  int const count = p.operations.size();
  detail::makers made(p.form.chunks);
  for (int j = 0; j < count; ++j) {
    if (int const i = made.latest(p.operations[j]); i >= 0) detail::join_reductions(p, i, j);
    made.by(j, p.operations[j]);
  }
  made = detail::makers(p.form.chunks);
  for (int j = 0; j < count; ++j) {
    operation const& send = p.operations[j];
    made.by(j, send);
    if (!send.in.empty() || send.out.empty()) continue;
    int const maker = made.latest(send);
    if (maker < 0 || detail::contains(p.operations[maker].out, send.out[0])) continue;
    if (!detail::used_between(p, maker, j, send.out, &operation::out)) detail::send_from(p, maker, j);
  }
  detail::compact(p);
  for (int i = 0; i < p.operations.size(); ++i) {
    operation& first = p.operations[i];
    for (int j = i + 1; j < p.operations.size() && p.operations[j].in.empty() && p.operations[j].step == first.step; ++j) {
      operation& other = p.operations[j];
      if (!first.in.empty() || first.out.empty() || other.out.empty() || !detail::same_runs(first, other) ||
          detail::contains(first.out, other.out[0]) || detail::used_between(p, i, j, other.out, &operation::out))
        continue;
      for (segment& s : first.segments) s.targets.push({place::slot, false, first.out.size()});
      first.out.push(other.out[0]);
      detail::vanish(other);
    }
  }
  detail::compact(p);
}

/// What nobody reads again is not stored.
template <Collective C>
constexpr void drop_dead_stores(plan& p, C const& collective) {
  list<char> live(p.form.chunks, 0);
  chunks const kept = p.form.names(collective.output(p.form.size, p.rank));
  for (int c = kept.first; c < kept.first + kept.count; ++c) live[c] = 1;
  for (int i = p.operations.size() - 1; i >= 0; --i) {
    for (segment& s : p.operations[i].segments) {
      if (!detail::writes(s)) continue;
      bool needed = false;
      for (int c = s.run.first; c < s.run.first + s.run.count; ++c) {
        if (live[c]) needed = true;
        live[c] = 0;
      }
      for (int t = s.targets.size() - 1; t >= 0 && !needed; --t)
        if (detail::in_memory(s.targets[t].to)) s.targets.erase(t);
    }
    for (segment const& s : p.operations[i].segments)
      if (detail::reads(s))
        for (int c = s.run.first; c < s.run.first + s.run.count; ++c) live[c] = 1;
  }
}

/// Gives names to memory: what was never written is in the input, results go to the output where the collective has a place for them, all
/// else to scratch. The input of an out-of-place call is never written. What the rank ends with is finished by the store that makes it.
template <Collective C>
constexpr void place_chunks(plan& p, C const& collective) {
  int const total = p.form.chunks;
  list<place> now(total, place::local);
  list<int> last_write(total, -1), last_read(total, -1);
  chunks const given = p.form.names(collective.input(p.form.size, p.rank)), wanted = p.form.names(collective.output(p.form.size, p.rank));
  auto const in_output = [&](int c) { return c >= wanted.first && c < wanted.first + wanted.count; };
  for (int c = given.first; c < given.first + given.count; ++c) now[c] = place::input;
  for (int i = 0; i < p.operations.size(); ++i)
    for (segment const& s : p.operations[i].segments)
      for (int c = s.run.first; c < s.run.first + s.run.count; ++c) {
        if (detail::writes(s)) last_write[c] = i;
        if (detail::reads(s)) last_read[c] = i;
      }
  for (int i = 0; i < p.operations.size(); ++i) {
    operation& o = p.operations[i];
    list<segment> placed;
    for (segment const& s : o.segments) {
      auto const finished = [&](int c) { return C::reduces && in_output(c) && last_write[c] == i && last_read[c] <= i; };
      for (int c = s.run.first, end = s.run.first + s.run.count; c < end;) {
        int stop = c + 1;
        while (stop < end && now[stop] == now[c] && in_output(stop) == in_output(c) && finished(stop) == finished(c)) ++stop;
        segment t = s;
        t.run = {c, stop - c};
        for (source& x : t.sources)
          if (x.from == place::local) x.from = now[c];
        for (target& x : t.targets)
          if (x.to == place::local) {
            x.to = in_output(c) ? place::output : place::scratch;
            x.finish = finished(c);
            if (x.to == place::scratch) p.uses_scratch = true;
          }
        placed.push(std::move(t));
        c = stop;
      }
    }
    o.segments = std::move(placed);
    for (segment const& s : o.segments)
      if (detail::writes(s))
        for (int c = s.run.first; c < s.run.first + s.run.count; ++c) now[c] = in_output(c) ? place::output : place::scratch;
    detail::join_segments(o);
  }
  operation rest;
  rest.step = p.steps;
  for (int c = wanted.first; c < wanted.first + wanted.count; ++c) {
    bool const unfinished = C::reduces && last_read[c] > last_write[c];
    if (now[c] != place::input && !unfinished) continue;
    segment s{{c, 1}, {}, {}};
    s.sources.push({now[c], false, 0});
    s.targets.push({place::output, C::reduces, 0});
    rest.segments.push(std::move(s));
  }
  detail::join_segments(rest);
  if (!rest.segments.empty()) p.operations.push(std::move(rest));
}

/// Finds the messages that need no copy, where the wire can do without.
constexpr void find_lenders(plan& p) {
  list<char> written(p.form.chunks, 0);  // later than the operation at hand
  for (int i = p.operations.size() - 1; i >= 0; --i) {
    operation& o = p.operations[i];
    o.lends = o.in.empty() && !o.out.empty() ? lending::always : lending::never;
    for (segment const& s : o.segments) {
      place const from = s.sources[0].from;
      if (from == place::scratch || detail::writes(s)) o.lends = lending::never;
      for (int c = s.run.first; c < s.run.first + s.run.count && o.lends == lending::always; ++c)
        if (written[c]) o.lends = from == place::input ? lending::out_of_place : lending::never;
      if (o.lends == lending::out_of_place && from != place::input) o.lends = lending::never;
    }
    for (segment const& s : o.segments) {
      bool const stays = s.sources.size() == 1 && s.sources[0].from == place::input && !s.targets[0].finish;  // in place nothing is done
      for (int c = s.run.first; c < s.run.first + s.run.count && detail::writes(s) && !stays; ++c) written[c] = 1;
    }
  }
}

/// Operations that share a channel or scratch memory stay in order: a strand. Between strands only what touches the same chunk is ordered,
/// within one piece; so the way up a tree runs pieces ahead of the way down, and nobody had to say so.
constexpr void find_strands(plan& p) {
  int const count = p.operations.size();
  list<int> strand(count);
  auto const join = [&](int a, int b) {
    int const old = strand[b], joined = strand[a];
    for (int k = 0; k < count && old != joined; ++k)
      if (strand[k] == old) strand[k] = joined;
  };
  struct user {
    endpoint end;
    int operation = 0;
  };
  list<user> receivers, senders;
  auto const meet = [&](list<user>& users, list<endpoint> const& ends, int index) {
    for (endpoint e : ends) {
      int found = 0;
      while (found < users.size() && users[found].end != e) ++found;
      if (found < users.size())
        join(users[found].operation, index);
      else
        users.push({e, index});
    }
  };
  auto const uses_scratch = [](operation const& o) {
    for (segment const& s : o.segments) {
      for (source const& x : s.sources)
        if (x.from == place::scratch) return true;
      for (target const& x : s.targets)
        if (x.to == place::scratch) return true;
    }
    return false;
  };
  for (int i = 0; i < count; ++i) strand[i] = i;
  int with_scratch = -1;
  for (int i = 0; i < count; ++i) {
    meet(receivers, p.operations[i].in, i);
    meet(senders, p.operations[i].out, i);
    if (!p.uses_scratch || !uses_scratch(p.operations[i])) continue;
    if (with_scratch >= 0) join(with_scratch, i);
    with_scratch = i;
  }
  list<int> number(count, -1);
  p.strands = 0;
  for (int i = 0; i < count; ++i) {
    if (number[strand[i]] < 0) number[strand[i]] = p.strands++;
    p.operations[i].strand = number[strand[i]];
  }
  if (p.strands == 0) p.strands = 1;
  for (int j = 0; j < count && p.strands > 1; ++j) {
    list<char> linked(p.strands, 0);
    for (int i = j - 1; i >= 0; --i) {
      operation const &a = p.operations[i], &b = p.operations[j];
      if (a.strand == b.strand || linked[a.strand] || !detail::conflict(a, b)) continue;
      linked[a.strand] = 1;
      p.operations[j].after.push(i);
    }
  }
}

/// The plan of one rank, through all passes.
template <Schedule S, Collective C>
constexpr plan make_plan(S const& schedule, C const& collective, int n, int rank) {
  plan p = record(schedule, collective, n, rank);
  fuse(p);
  drop_dead_stores(p, collective);
  place_chunks(p, collective);
  find_lenders(p);
  find_strands(p);
  return p;
}

}  // namespace exec
}  // namespace v0
}  // namespace collectx
