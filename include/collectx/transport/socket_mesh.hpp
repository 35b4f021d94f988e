// SPDX-License-Identifier: Apache-2.0
/// A connection between every two ranks of a group, made through a rendezvous: how ranks on different hosts agree, and hear of each other.
#pragma once

#include "collectx/network.hpp"
#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/status.hpp"
#include "collectx/transport/board.hpp"
#include "collectx/transport/handshake.hpp"
#include "collectx/transport/socket_link.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

class socket_mesh {
 public:
  /// Returns on every rank when each is connected with each other one and has heard its hello, or with a failure that names who never came
  /// or what differs. Who connects without knowing what was put at the rendezvous is sent away, and disturbs nobody.
  template <Rendezvous R>
  static result<socket_mesh> join(R& rendezvous, hello const& mine, nanoseconds link_timeout, nanoseconds deadline) noexcept {
    result<socket_mesh> self = within_memory(mine.rank, [&mine] { return result<socket_mesh>(socket_mesh(mine)); });
    if (!self) return self;
    status s = self->listen();
    char key[16];
    std::snprintf(key, sizeof key, "mesh%d", mine.rank);
    if (s.ok() && mine.size > 1) s = rendezvous.put(key, rendezvous_value(&self->place_, sizeof self->place_));
    if (s.code() == errc::busy) s = self->be_twin(rendezvous, deadline);
    while (s.ok() && self->heard_ < mine.size) s = self->hear(rendezvous, deadline);
    if (mine.size > 1) rendezvous.conclude();
    if (!s) return self->refuse(s);
    self->listener_ = {};
    self->strangers_.clear();
    for (peer& p : self->peers_) {
      if (p.link) prepare_stream(p.link.get(), link_timeout);
    }
    if (s = self->judge(); !s) return s;
    return self;
  }

  int rank() const noexcept { return mine_.rank; }
  int size() const noexcept { return mine_.size; }
  /// Where this rank listens: an address of the interface that the others reach it at.
  socket_place const& place() const noexcept { return place_; }
  socket_link& to(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)].link; }
  hello const& said(int rank) const noexcept { return rank == mine_.rank ? mine_ : peers_[static_cast<std::size_t>(rank)].said; }

  /// Every rank learns every rank's `mine`; a refusal of any rank is everybody's failure.
  template <class T>
  status share(T const& mine, std::vector<T>& all, nanoseconds deadline) noexcept {
    status const room = within_memory(rank(), [&]() -> status { return all.resize(peers_.size()), status{}; });
    if (!room) return refuse(room);
    all[static_cast<std::size_t>(rank())] = mine;
    for (peer& p : peers_) {
      p.shared = !p.link;
      if (p.link && !p.link.send(frame::of(frame::facts, rank(), mine))) return died(p);
    }
    for (;;) {
      bool missing = false;
      for (peer& p : peers_) {
        if (p.shared) continue;
        frame f = p.early;
        socket_link::event const e = p.ahead ? socket_link::event::frame : p.link.receive(f);
        p.ahead = false;
        switch (e) {
          case socket_link::event::broken:
            return died(p);
          case socket_link::event::frame:
            if (f.kind == frame::refusal) return refusal_of(f);
            f.read(all[static_cast<std::size_t>(index_of(p))]);
            p.shared = true;
            break;
          case socket_link::event::nothing:
            missing = true;
        }
      }
      if (!missing) return {};
      if (!wait(deadline)) return refuse(status::failure(errc::timeout, -1, "rank %d did not hear in time that all are ready", rank()));
    }
  }

  /// Tells everybody why this rank does not go on; returns that.
  status refuse(status const& why) noexcept {
    for (peer& p : peers_) {
      if (p.link) p.link.send(frame::of(frame::refusal, rank(), detail::verdict::of(why)));
    }
    return why;
  }

 private:
  struct peer {
    socket_link link;
    hello said;
    bool called = false;
    bool heard = false;
    bool shared = false;  // nothing more is asked of it in this round
    bool ahead = false;   // it has come to sharing, with `early`, while this rank still waits for others
    frame early;
  };
  static constexpr std::size_t most_strangers = 64;    // the oldest is sent away for the next
  static constexpr nanoseconds round = 100'000'000;    // so long at most is it deaf on one side
  static constexpr nanoseconds grace = 5'000'000'000;  // so long a twin waits for whom it has not told

  /// All the memory that will be needed, but for strangers.
  explicit socket_mesh(hello const& mine) : mine_(mine), peers_(static_cast<std::size_t>(mine.size)) {
    peers_[static_cast<std::size_t>(mine.rank)].heard = true;
    strangers_.reserve(most_strangers);
    polled_.reserve(1 + most_strangers + peers_.size());
  }

  int index_of(peer const& p) const noexcept { return static_cast<int>(&p - peers_.data()); }
  status died(peer const& p) const noexcept {
    return status::failure(errc::peer_lost, index_of(p), "rank %d died while joining", index_of(p));
  }
  static status refusal_of(frame const& f) noexcept {
    detail::verdict v;
    f.read(v);
    status const why = v.spell();
    if (why.ok()) return status::failure(errc::peer_lost, f.from, "rank %d says nonsense while joining", f.from);
    if (why.rank() == f.from) return why;
    return status::failure(why.code(), why.rank(), "%s (reported by rank %d)", sentence(why), f.from);
  }

  status listen() noexcept {
    if (::getrandom(place_.nonce, sizeof place_.nonce, 0) < 0) return status::system(errno, "no random number for joining");
    if (mine_.size == 1) return {};
    result<network_address> here = local_address();
    if (!here) return here.error();
    place_.stand_at(here->get(), here->length());
    listener_ = descriptor(::socket(place_.where()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_ || ::bind(listener_.get(), place_.where(), static_cast<::socklen_t>(place_.length)) != 0 ||
        ::listen(listener_.get(), (std::max)(mine_.size, 16)) != 0) {
      return status::system(errno, "no socket for the other ranks to connect to");
    }
    ::sockaddr_storage bound{};
    ::socklen_t length = sizeof bound;
    if (::getsockname(listener_.get(), reinterpret_cast<::sockaddr*>(&bound), &length) != 0) {
      return status::system(errno, "no name for the socket that other ranks connect to");
    }
    std::memcpy(place_.address, &bound, (std::min)(sizeof place_.address, std::size_t{length}));
    return {};
  }

  /// Calls the lower ranks that have come to the rendezvous by now. Of those that have not, only one is waited for, and not for long:
  /// others may have something to say meanwhile, if only why they go. @return whether all have been called
  template <class R>
  result<bool> call_all(R& rendezvous, nanoseconds deadline) noexcept {
    for (int r = 0; r < mine_.rank; ++r) {
      if (peers_[static_cast<std::size_t>(r)].called) continue;
      status const s = call(rendezvous, r, (std::min)(deadline, monotonic_now() + round));
      if (s.code() == errc::timeout) {
        if (status why = trouble_of(rendezvous); !why) return why;
        return false;
      }
      if (!s) return s;
    }
    return true;
  }

  /// Now and then, what the rendezvous knows of those who are missing: who waits for higher ranks has nothing else to ask there.
  template <class R>
  status look_for_missing([[maybe_unused]] R& rendezvous) noexcept {
    if constexpr (requires { rendezvous.trouble(); }) {
      nanoseconds const now = monotonic_now();
      if (now < next_look_) return {};
      if (next_look_ != 0) {
        int missing = 0;
        while (missing < mine_.size && peers_[static_cast<std::size_t>(missing)].heard) ++missing;
        char key[16];
        std::snprintf(key, sizeof key, "mesh%d", missing);
        static_cast<void>(rendezvous.get(key, now));
      }
      next_look_ = now + round;
    }
    return trouble_of(rendezvous);
  }

  /// Another process is this rank, too. Nobody would call this one, so it tells all who have come to the rendezvous, or come soon.
  template <class R>
  status be_twin(R& rendezvous, nanoseconds deadline) noexcept {
    nanoseconds const until = (std::min)(deadline, monotonic_now() + grace);
    for (int told = 0; told < mine_.size && monotonic_now() < until; nap(1'000'000)) {
      told = 0;
      for (int r = 0; r < mine_.size; ++r) {
        peer& p = peers_[static_cast<std::size_t>(r)];
        // Who is not there yet is looked for again, and so is a successor at an address of an earlier run.
        if (!p.called) static_cast<void>(call(rendezvous, r, monotonic_now(), frame::twin));
        p.called = p.shared || (p.called && p.link && p.link.flush());
        p.shared = p.called && !p.link.owes();
        told += p.shared;
      }
    }
    return joined_twice(mine_.rank);
  }
  static status joined_twice(int rank) noexcept { return status::failure(errc::invalid_argument, rank, "rank %d joined twice", rank); }

  /// Connects to another rank, wherever the rendezvous says it is now.
  template <class R>
  status call(R& rendezvous, int rank, nanoseconds deadline, frame::kinds as = frame::greeting) noexcept {
    char key[16];
    std::snprintf(key, sizeof key, "mesh%d", rank);
    result<rendezvous_value> value = rendezvous.get(key, deadline);
    if (!value) return value.error();
    socket_place place;
    std::memcpy(static_cast<void*>(&place), value->data(), (std::min)(sizeof place, value->size()));
    peer& p = peers_[static_cast<std::size_t>(rank)];
    p.called = true;
    socket_link& link = p.link;
    if (!link.open(place)) return {};
    hello h = mine_;
    std::memcpy(h.nonce, place.nonce, sizeof h.nonce);
    link.send(frame::of(as, mine_.rank, h));
    return {};
  }

  template <class R>
  status hear(R& rendezvous, nanoseconds deadline) noexcept {
    result<bool> all_called = call_all(rendezvous, deadline);
    if (!all_called) return all_called.error();
    if (status s = look_for_missing(rendezvous); !s) return s;
    if (!wait(deadline, *all_called ? round : 0)) return never_came();
    for (int fresh = listener_ ? ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1; fresh >= 0;
         fresh = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) {
      descriptor socket(fresh);
      if (strangers_.size() == most_strangers) strangers_.erase(strangers_.begin());
      std::unique_ptr<socket_link> link(new (std::nothrow) socket_link(std::move(socket)));
      if (!link) return status::failure(errc::out_of_memory, mine_.rank, "rank %d has no memory left for who connects", mine_.rank);
      strangers_.push_back(std::move(link));
    }
    for (std::size_t i = 0; i < strangers_.size();) {
      frame f;
      socket_link::event const e = strangers_[i]->receive(f);
      if (e == socket_link::event::nothing) {
        ++i;
        continue;
      }
      if (e == socket_link::event::frame && (f.kind == frame::greeting || f.kind == frame::twin)) {
        if (status s = admit(*strangers_[i], f); !s) return s;
      }
      strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (int r = 0; r < mine_.size; ++r)
      if (status s = listen_to(r); !s) return s;
    return {};
  }

  /// A lower rank that was called, or a higher one that has been admitted.
  status listen_to(int rank) noexcept {
    peer& p = peers_[static_cast<std::size_t>(rank)];
    if (rank == mine_.rank || (!p.link && !p.called)) return {};
    frame f;
    socket_link::event const e = p.link && p.link.flush() ? p.link.receive(f) : socket_link::event::broken;
    if (e == socket_link::event::nothing) return {};
    if (e == socket_link::event::frame && f.kind == frame::refusal) return refusal_of(f);
    if (p.heard) {
      if (e == socket_link::event::broken || p.ahead) return died(p);  // none is ahead by two frames
      p.ahead = true;
      p.early = f;
      return {};
    }
    if (e == socket_link::event::frame && f.kind == frame::greeting) {
      f.read(p.said);
      p.heard = p.said.rank == rank && p.said.size == mine_.size;
    }
    if (p.heard) return ++heard_, status{};
    // Nobody is there, or somebody else: an address of an earlier run, whose successor has not come yet.
    p.link.close();
    nap(10'000'000);
    p.called = false;
    return {};
  }

  /// Somebody who may be a higher rank.
  status admit(socket_link& link, frame const& said) noexcept {
    hello h;
    said.read(h);
    if (std::memcmp(h.nonce, place_.nonce, sizeof h.nonce) != 0) return {};
    auto const answer = [&](status const& why) {
      link.send(frame::of(frame::refusal, mine_.rank, detail::verdict::of(why)));
      return why;
    };
    if (h.size != mine_.size || h.rank < 0 || h.rank >= mine_.size) {
      return answer(status::failure(errc::invalid_configuration, h.rank, "rank %d joins a group of %d, rank %d one of %d", h.rank, h.size,
                                    mine_.rank, mine_.size));
    }
    peer& p = peers_[static_cast<std::size_t>(h.rank)];
    if (said.kind == frame::twin || h.rank == mine_.rank || p.heard) return answer(joined_twice(h.rank));
    p.link = std::move(link);
    p.said = h;
    p.heard = true;
    ++heard_;
    if (!p.link.send(frame::of(frame::greeting, mine_.rank, mine_))) return died(p);
    return {};
  }

  /// Until something comes that is waited for, but not for long: some things are tried again.
  bool wait(nanoseconds deadline, nanoseconds longest = round) noexcept {
    polled_.clear();
    if (listener_) polled_.push_back({listener_.get(), POLLIN, 0});
    for (auto const& s : strangers_) polled_.push_back({s->get(), POLLIN, 0});
    for (peer const& p : peers_) {
      if (p.link && !p.shared) polled_.push_back({p.link.get(), static_cast<short>(p.link.owes() ? POLLIN | POLLOUT : POLLIN), 0});
    }
    nanoseconds const now = monotonic_now();
    wait_for_input(polled_.data(), polled_.size(), (std::min)(deadline, now + longest));
    return now < deadline;
  }

  status never_came() const noexcept {
    char list[160] = {};
    std::size_t used = 0;
    int first = -1, unlisted = 0;
    for (int r = 0; r < mine_.size; ++r) {
      if (peers_[static_cast<std::size_t>(r)].heard) continue;
      if (used + 24 > sizeof list) {
        ++unlisted;
        continue;
      }
      used += static_cast<std::size_t>(std::snprintf(list + used, sizeof list - used, "%s%d", first < 0 ? "" : ", ", r));
      if (first < 0) first = r;
    }
    if (unlisted > 0) std::snprintf(list + used, sizeof list - used, " and %d more", unlisted);
    return status::failure(errc::timeout, first, "%d of %d ranks joined rank %d, missing: %s", heard_, mine_.size, mine_.rank, list);
  }

  status judge() noexcept {
    for (int r = 0; r < mine_.size; ++r) {
      for (int i = 0; i < build_facts::count; ++i) {
        if (said(r).facts.values[i] == said(0).facts.values[i]) continue;
        return status::failure(errc::invalid_configuration, r, "builds differ: %s is %u on rank %d and %u on rank 0", build_facts::names[i],
                               said(r).facts.values[i], r, said(0).facts.values[i]);
      }
    }
    return {};
  }

  hello mine_;
  std::vector<peer> peers_;
  socket_place place_;
  descriptor listener_;
  std::vector<std::unique_ptr<socket_link>> strangers_;
  std::vector<::pollfd> polled_;
  int heard_ = 1;  // this rank has
  nanoseconds next_look_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
