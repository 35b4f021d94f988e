// SPDX-License-Identifier: Apache-2.0
/// Starting the ranks of a group: `loopback::run` as threads, `shared_memory::run` as forked processes, `shared_memory::join` from a
/// process that somebody else has started.
#pragma once

#include "collectx/communicator.hpp"
#include "collectx/rendezvous/in_process.hpp"
#include "collectx/transport/loopback.hpp"
#include "collectx/transport/shared_memory.hpp"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cstdio>
#include <exception>
#include <new>
#include <thread>
#include <vector>

namespace collectx {
inline namespace v0 {

namespace detail {

/// The first failure of several ranks: in time, not in rank.
class first_failure {
 public:
  void report(status const& s) {
    if (s.ok() || taken_.exchange(true, std::memory_order_acq_rel)) return;
    what_ = s;
  }
  status const& what() const { return what_; }

 private:
  std::atomic<bool> taken_{false};
  status what_;
};

/// f(comm); what it throws is a failure like any other.
template <Transport Tr, class F>
status outcome_of(communicator<Tr>& comm, F& f) {
  static_assert(std::is_same_v<decltype(f(comm)), status>, "collectx: what ranks run takes a communicator& and returns a collectx::status");
#if COLLECTX_EXCEPTIONS
  try {
    return f(comm);
  } catch (std::exception const& e) {
    return status::failure(errc::aborted, comm.rank(), "rank %d threw: %s", comm.rank(), e.what());
  } catch (...) {
    return status::failure(errc::aborted, comm.rank(), "rank %d threw something that is no std::exception", comm.rank());
  }
#else
  return f(comm);
#endif
}

/// A communicator over what Tr::join comes to.
template <Transport Tr, Rendezvous R, class Options>
result<communicator<Tr>> join_by(R& rendezvous, Options const& chosen) noexcept {
  return within_memory(rendezvous.rank(), [&]() -> result<communicator<Tr>> {
    result<Tr> transport = Tr::join(rendezvous, chosen);
    if (!transport) return transport.error();
    return communicator<Tr>(std::move(*transport));
  });
}

/// Where f(comm) fails, so does the group: the other ranks would wait for this one.
template <Transport Tr, class F>
status call(communicator<Tr>& comm, F& f) {
  status const s = outcome_of(comm, f);
  return s.ok() ? s : comm.abort(s);
}

/// What forked ranks leave behind for their parent.
class outcomes {
 public:
  static result<outcomes> create() {
    void* const address = ::mmap(nullptr, sizeof(first_failure), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return status::system(errno, "no memory to collect what the ranks come to");
    ::new (address) first_failure;
    return outcomes(mapping(address, sizeof(first_failure)));
  }
  first_failure& first() { return *reinterpret_cast<first_failure*>(memory_.address()); }

 private:
  explicit outcomes(mapping memory) : memory_(std::move(memory)) {}
  mapping memory_;
};

/// A forked child, to its end.
template <class Tr, Rendezvous R, class Options, class F>
[[noreturn]] void be_rank(R&& rendezvous, Options const& chosen, outcomes& out, F& f) {
  status s;
  {
    result<communicator<Tr>> comm = join_by<Tr>(rendezvous, chosen);
    s = comm ? call(*comm, f) : comm.error();
    out.first().report(s);
  }
  std::fflush(nullptr);
  ::_exit(s.ok() ? 0 : 1);
}

/// `size` forked ranks that meet in memory they inherit, whatever wire they then take.
template <class Tr, class Options, class F>
status run_forked(int size, Options const& chosen, F& f) {
  result<in_process_rendezvous> table = in_process_rendezvous::create(size);
  if (!table) return table.error();
  result<outcomes> out = outcomes::create();
  if (!out) return out.error();
  std::fflush(nullptr);  // or every child would print what is pending here
  std::vector<::pid_t> children;
  status failed;
  for (int r = 0; r < size && failed.ok(); ++r) {
    ::pid_t const child = ::fork();
    if (child == 0) be_rank<Tr>(table->of(r), chosen, *out, f);
    if (child < 0)
      failed = status::system(errno, "cannot start rank %d of %d", r, size);
    else
      children.push_back(child);
  }
  for (std::size_t r = 0; r < children.size(); ++r) {
    int state = 0;
    while (::waitpid(children[r], &state, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(state) && failed.ok())
      failed =
          status::failure(errc::peer_lost, static_cast<int>(r), "rank %d was ended by signal %d", static_cast<int>(r), WTERMSIG(state));
    if (WIFEXITED(state) && WEXITSTATUS(state) != 0 && failed.ok() && out->first().what().ok())
      failed =
          status::failure(errc::peer_lost, static_cast<int>(r), "rank %d left with exit code %d", static_cast<int>(r), WEXITSTATUS(state));
  }
  return failed.ok() ? out->first().what() : failed;
}
}  // namespace detail

namespace loopback {

/// Runs f(communicator&) -> status on `size` ranks, each a thread of its own, and returns the first failure.
template <class F>
status run(int size, options const& chosen, F&& f) {
  result<group> ranks = group::create(size, chosen);
  if (!ranks) return ranks.error();
  detail::first_failure failure;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      result<loopback_transport> transport = ranks->transport(r);
      if (!transport) return failure.report(transport.error());
      communicator<loopback_transport> comm(std::move(*transport));
      failure.report(detail::call(comm, f));
    });
  for (std::thread& t : threads) t.join();
  return failure.what();
}
template <class F>
status run(int size, F&& f) {
  return run(size, options{}, f);
}

}  // namespace loopback

namespace shared_memory {

using options = transport_options;

/// Joins the group that `rendezvous` is about, as the process that calls it.
/// Errors: see shared_memory_transport::join.
template <Rendezvous R>
result<communicator<shared_memory_transport>> join(R& rendezvous, options const& chosen = {}) noexcept {
  return detail::join_by<shared_memory_transport>(rendezvous, chosen);
}
template <Rendezvous R>
result<communicator<shared_memory_transport>> join(R&& rendezvous, options const& chosen = {}) noexcept {
  return detail::join_by<shared_memory_transport>(rendezvous, chosen);
}

/// Runs f(communicator&) -> status on `size` ranks, each a forked process, and returns the first failure; a rank that dies is one.
/// A rank ends with _exit: destructors of the caller's objects do not run there.
template <class F>
status run(int size, options const& chosen, F&& f) {
  return detail::run_forked<shared_memory_transport>(size, chosen, f);
}
template <class F>
status run(int size, F&& f) {
  return run(size, options{}, f);
}

}  // namespace shared_memory

}  // namespace v0
}  // namespace collectx
