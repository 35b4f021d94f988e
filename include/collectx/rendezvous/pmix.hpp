// SPDX-License-Identifier: Apache-2.0
/// Ranks that a PMIx launcher has started: mpirun, prterun, srun --mpi=pmix. Needs <pmix.h>: link collectx::pmix.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/rendezvous/invitation.hpp"
#include "collectx/rendezvous/tcp_store.hpp"
#include "collectx/status.hpp"

#include <pmix.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// This process's connection to its launcher: from the first rendezvous to the end of the process, for not every PMIx can be initialised
/// again after its last finalize.
class pmix_session {
 public:
  static result<pmix_session*> get() noexcept {
    static pmix_session session;
    if (!session.failed_) return session.failed_;
    return &session;
  }
  pmix_session(pmix_session const&) = delete;
  pmix_session& operator=(pmix_session const&) = delete;
  ~pmix_session() {
    if (initialised_ && ::getpid() == owner_) ::PMIx_Finalize(nullptr, 0);
  }

  int rank() const noexcept { return static_cast<int>(me_.rank); }
  int size() const noexcept { return size_; }

  /// A key cannot be put again, so each rendezvous of this process has the next one.
  void next_key(char (&key)[32]) noexcept { std::snprintf(key, sizeof key, "collectx.%u", count_.fetch_add(1, std::memory_order_relaxed)); }

  status put(char const* key, invitation& value) const noexcept {
    ::pmix_value_t v{};
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = reinterpret_cast<char*>(&value);
    v.data.bo.size = sizeof value;
    ::pmix_status_t rc = ::PMIx_Put(PMIX_GLOBAL, key, &v);
    if (rc == PMIX_SUCCESS) rc = ::PMIx_Commit();
    return rc == PMIX_SUCCESS ? status{} : failure("rank 0 cannot say where to meet", rc);
  }

  /// What rank 0 has put. A launcher may answer at once that there is no such key (it knows older ones), or not before there is one.
  status get(char const* key, nanoseconds deadline, double patience, invitation& value) const noexcept {
    for (bool again = false;; again = true) {
      answer* const a = new (std::nothrow) answer;
      if (a == nullptr) return status::failure(errc::out_of_memory, rank(), "no memory to ask PMIx for %s", key);
      ::pmix_proc_t zero = me_;
      zero.rank = 0;
      nanoseconds const left = (std::max)(deadline - monotonic_now(), nanoseconds{0});
      set(a->options[0], PMIX_TIMEOUT, PMIX_INT);
      a->options[0].value.data.integer = static_cast<int>((std::min)(left / 1'000'000'000 + 1, nanoseconds{INT_MAX}));
      std::size_t count = 1;
#ifdef PMIX_GET_REFRESH_CACHE
      set(a->options[1], PMIX_GET_REFRESH_CACHE, PMIX_BOOL);
      a->options[1].value.data.flag = again;
      if (again) count = 2;
#endif
      ::pmix_status_t rc = ::PMIx_Get_nb(&zero, key, a->options, count, &answer::take, a);
      if (rc == PMIX_SUCCESS) {
        // PMIX_TIMEOUT is a wish that launchers may ignore.
        while (!a->done.load(std::memory_order_acquire) && monotonic_now() < deadline) nap(500'000);
        rc = a->done.load(std::memory_order_acquire) ? a->rc : PMIX_ERR_TIMEOUT;
        if (rc == PMIX_SUCCESS) value = a->value;
      } else {
        a->let_go();  // nobody will call
      }
      a->let_go();
      if (rc == PMIX_SUCCESS) return {};
      if (rc != PMIX_ERR_NOT_FOUND && rc != PMIX_ERR_TIMEOUT) return failure("rank 0's place to meet cannot be had", rc);
      if (monotonic_now() >= deadline) {
        return status::failure(errc::timeout, 0,
                               "rank 0 never came: it has not told PMIx within %.3g s where to meet (rank %d waited for %s)", patience,
                               rank(), key);
      }
      nap(20'000'000);
    }
  }

 private:
  /// Shared by who waits and by PMIx, which may answer when nobody waits any more.
  struct answer {
    std::atomic<int> owners{2};
    std::atomic<bool> done{false};
    ::pmix_status_t rc = PMIX_SUCCESS;
    invitation value;
    ::pmix_info_t options[2]{};

    void let_go() noexcept {
      if (owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }
    static void take(::pmix_status_t rc, ::pmix_value_t* v, void* context) noexcept {
      answer* const self = static_cast<answer*>(context);
      bool const whole = rc == PMIX_SUCCESS && v != nullptr && v->type == PMIX_BYTE_OBJECT && v->data.bo.size == sizeof self->value;
      self->rc = rc == PMIX_SUCCESS && !whole ? PMIX_ERR_BAD_PARAM : rc;
      if (whole) std::memcpy(static_cast<void*>(&self->value), v->data.bo.bytes, sizeof self->value);
      self->done.store(true, std::memory_order_release);
      self->let_go();
    }
  };

  pmix_session() noexcept : owner_(::getpid()) {
    ::pmix_status_t rc = ::PMIx_Init(&me_, nullptr, 0);
    if (rc != PMIX_SUCCESS) {
      failed_ = failure("no PMIx launcher (mpirun, prterun, srun --mpi=pmix) has started this process", rc);
      return;
    }
    initialised_ = true;
    ::pmix_proc_t all = me_;
    all.rank = PMIX_RANK_WILDCARD;
    ::pmix_value_t* v = nullptr;
    rc = ::PMIx_Get(&all, PMIX_JOB_SIZE, nullptr, 0, &v);
    if (rc != PMIX_SUCCESS || v == nullptr || v->type != PMIX_UINT32) {
      failed_ = failure("PMIx does not say how many ranks there are", rc);
    } else {
      size_ = static_cast<int>(v->data.uint32);
    }
    if (v != nullptr) std::free(v);  // a number owns nothing else
  }

  static void set(::pmix_info_t& info, char const* key, ::pmix_data_type_t type) noexcept {
    std::snprintf(info.key, sizeof info.key, "%s", key);
    info.value.type = type;
  }
  static status failure(char const* what, ::pmix_status_t rc) noexcept {
    return status::failure(errc::system, -1, "%s: PMIx says %s (%d)", what, ::PMIx_Error_string(rc), rc);
  }

  ::pmix_proc_t me_{};
  int size_ = 0;
  bool initialised_ = false;
  ::pid_t owner_;
  std::atomic<unsigned> count_{0};
  status failed_;
};

}  // namespace detail

/// Models Rendezvous. Rank and size are those of the launcher; PMIx carries where rank 0 listens and a secret made for this rendezvous, the
/// rest is a tcp_store_rendezvous at rank 0's `local_address()` (COLLECTX_SOCKET_IFNAME chooses). Several may be made, one after the other,
/// by all ranks in the same order.
class pmix_rendezvous : public tcp_store_rendezvous {
 public:
  /// Whether a PMIx launcher has started this process.
  static bool present() noexcept { return std::getenv("PMIX_NAMESPACE") != nullptr; }

  /// `timeout` as in tcp_store_options.
  /// Errors: system where there is no launcher; timeout where rank 0 does not come; those of tcp_store_rendezvous.
  static result<pmix_rendezvous> create(std::chrono::nanoseconds timeout = {}) noexcept {
    result<detail::pmix_session*> session = detail::pmix_session::get();
    if (!session) return session.error();
    detail::pmix_session& pmix = **session;
    nanoseconds const begun = detail::monotonic_now();
    char key[32];
    pmix.next_key(key);
    detail::invitation where;
    if (pmix.rank() == 0) {
      result<tcp_store_rendezvous> store = detail::invite(pmix.size(), timeout, where);
      status const told = pmix.put(key, where);  // also that there is none
      if (!store) return store.error();
      if (!told) return told;
      return pmix_rendezvous(std::move(*store));
    }
    result<nanoseconds> patience = detail::join_patience(timeout.count(), pmix.rank());
    if (!patience) return patience.error();
    if (status s = pmix.get(key, begun + *patience, static_cast<double>(*patience) * 1e-9, where); !s) return s;
    result<tcp_store_rendezvous> store = detail::attend(where, pmix.rank(), pmix.size(), timeout);
    if (!store) return store.error();
    return pmix_rendezvous(std::move(*store));
  }

 private:
  explicit pmix_rendezvous(tcp_store_rendezvous store) noexcept : tcp_store_rendezvous(std::move(store)) {}
};
static_assert(Rendezvous<pmix_rendezvous>);

}  // namespace v0
}  // namespace collectx
