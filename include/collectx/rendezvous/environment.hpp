// SPDX-License-Identifier: Apache-2.0
/// Ranks as the environment says: started by hand, by torchrun, by Slurm, by a PMIx launcher, or alone; one program for all.
#pragma once

#include "collectx/network.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/rendezvous/file.hpp"
#include "collectx/rendezvous/in_process.hpp"
#include "collectx/rendezvous/tcp_store.hpp"
#include "collectx/status.hpp"

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// What the environment says, and nothing else.
struct surroundings {
  enum class way { alone, file, store, launcher };

  way how = way::alone;
  bool launched = false;  ///< the environment says anything at all
  int rank = 0, size = 1, port = 0;
  char const* address = nullptr;
  char const* path = nullptr;

  static result<surroundings> look() noexcept {
    surroundings s;
    char const* const meeting = std::getenv("COLLECTX_RENDEZVOUS");
    if (meeting != nullptr && (std::strncmp(meeting, "file:", 5) != 0 || meeting[5] == 0)) {
      return status::failure(errc::invalid_argument, -1, "COLLECTX_RENDEZVOUS is \"%.100s\": it needs file:/path", meeting);
    }
    if (meeting != nullptr || is_set("RANK") || is_set("WORLD_SIZE")) {
      if (status bad = s.read_ranks("RANK", "WORLD_SIZE"); !bad) return bad;
      if (meeting == nullptr) return s.at_store();
      s.how = way::file;
      s.path = meeting + 5;
      return s;
    }
    if (is_set("PMIX_NAMESPACE")) {
      s.how = way::launcher;
      s.launched = true;
      return s;
    }
    // A batch script has these too, but no step: it runs once, whatever the number of tasks.
    if (is_set("SLURM_PROCID") && (is_set("SLURM_STEP_ID") || is_set("MASTER_ADDR"))) {
      if (status bad = s.read_ranks("SLURM_PROCID", is_set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"); !bad)
        return bad;
      return s.at_store();
    }
    return s;
  }

 private:
  static bool is_set(char const* variable) noexcept { return std::getenv(variable) != nullptr; }

  static status read_number(char const* variable, long long least, long long most, int& value) noexcept {
    char const* const text = std::getenv(variable);
    long long number = 0;
    if (text == nullptr)
      return status::failure(errc::invalid_argument, -1, "%s is not set: it needs a number from %lld to %lld", variable, least, most);
    if (!parse_digits(text, least, most, number)) {
      return status::failure(errc::invalid_argument, -1, "%s is \"%.40s\": it needs a number from %lld to %lld", variable, text, least,
                             most);
    }
    value = static_cast<int>(number);
    return {};
  }

  status read_ranks(char const* rank_variable, char const* size_variable) noexcept {
    launched = true;
    if (status bad = read_number(size_variable, 1, INT_MAX, size); !bad) return bad;
    return read_number(rank_variable, 0, size - 1, rank);
  }

  /// Where rank 0's store is. One rank alone needs none.
  result<surroundings> at_store() noexcept {
    address = std::getenv("MASTER_ADDR");
    if (address == nullptr && size == 1) return *this;
    char host[256];
    int ignored = 0;
    if (address == nullptr) {
      return status::failure(errc::invalid_argument, -1, "MASTER_ADDR is not set: %d ranks need the address of rank 0", size);
    }
    if (!split_endpoint(address, host, ignored) || ignored >= 0) {
      return status::failure(errc::invalid_argument, -1, "MASTER_ADDR is \"%.100s\": it needs a host, as in node1, 10.0.0.1, ::1", address);
    }
    how = way::store;
    if (is_set("COLLECTX_MASTER_PORT")) {
      if (status bad = read_number("COLLECTX_MASTER_PORT", 1, 65535, port); !bad) return bad;
      return *this;
    }
    // torchrun's own store is there already.
    char const* const agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
    bool const taken = agent != nullptr && std::strcmp(agent, "True") == 0;
    if (status bad = read_number("MASTER_PORT", 1, taken ? 65534 : 65535, port); !bad) return bad;
    if (taken) ++port;
    return *this;
  }
};

}  // namespace detail

struct environment_options {
  char const* secret = nullptr;         ///< as in tcp_store_options
  std::chrono::nanoseconds timeout{0};  ///< for all ranks to come; 0: COLLECTX_JOIN_TIMEOUT seconds, or 60
};

/// Models Rendezvous. The first of these that the environment speaks of:
///
/// 1. COLLECTX_RENDEZVOUS=file:/path, RANK, WORLD_SIZE: a file_rendezvous.
/// 2. RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun sets them: a tcp_store_rendezvous. Where torchrun itself listens at
/// MASTER_PORT
///    (TORCHELASTIC_USE_AGENT_STORE=True), at the port above it; in any case at COLLECTX_MASTER_PORT where that is set.
/// 3. PMIX_NAMESPACE: the launcher passed to `create`. Second, for torchrun's ranks may live in a job that srun has started.
/// 4. SLURM_PROCID, SLURM_NTASKS, MASTER_ADDR, MASTER_PORT: a tcp_store_rendezvous.
/// 5. None: a group of one.
class environment_rendezvous {
 public:
  /// `create<pmix_rendezvous>()` where a program is also to run under mpirun or srun --mpi=pmix.
  /// Errors: invalid_argument names the variable, what it holds and what it needs; not_supported a launcher that was not passed.
  template <class... Launchers>
  static result<environment_rendezvous> create(environment_options const& options = {}) noexcept {
    result<detail::surroundings> around = detail::surroundings::look();
    if (!around) return around.error();
    switch (around->how) {
      case detail::surroundings::way::file:
        return hold(file_rendezvous::create(around->path, around->rank, around->size), true);
      case detail::surroundings::way::store: {
        tcp_store_options store;
        store.address = around->address;
        store.port = around->port;
        store.secret = options.secret;
        store.timeout = options.timeout;
        return hold(tcp_store_rendezvous::create(around->rank, around->size, store), true);
      }
      case detail::surroundings::way::launcher:
        return by_launcher<Launchers...>(options);
      case detail::surroundings::way::alone:
        break;
    }
    return hold(alone::create(), around->launched);
  }

  environment_rendezvous(environment_rendezvous&&) noexcept = default;
  environment_rendezvous& operator=(environment_rendezvous&&) = delete;

  int rank() const noexcept { return held_->rank(); }
  int size() const noexcept { return held_->size(); }
  /// Whether the environment said so, or nothing, so that this is a group of one.
  bool launched() const noexcept { return launched_; }

  status put(char const* key, rendezvous_value const& value) noexcept { return held_->put(key, value); }
  result<rendezvous_value> get(char const* key, nanoseconds deadline) noexcept { return held_->get(key, deadline); }
  void conclude() noexcept { held_->conclude(); }
  status trouble() noexcept { return held_->trouble(); }

 private:
  struct face {
    virtual ~face() = default;
    virtual int rank() noexcept = 0;
    virtual int size() noexcept = 0;
    virtual status put(char const* key, rendezvous_value const& value) noexcept = 0;
    virtual result<rendezvous_value> get(char const* key, nanoseconds deadline) noexcept = 0;
    virtual void conclude() noexcept = 0;
    virtual status trouble() noexcept = 0;
  };
  template <Rendezvous R>
  struct holder final : face {
    explicit holder(R from) noexcept : held(std::move(from)) {}
    int rank() noexcept override { return held.rank(); }
    int size() noexcept override { return held.size(); }
    status put(char const* key, rendezvous_value const& value) noexcept override { return held.put(key, value); }
    result<rendezvous_value> get(char const* key, nanoseconds deadline) noexcept override { return held.get(key, deadline); }
    void conclude() noexcept override { held.conclude(); }
    status trouble() noexcept override { return detail::trouble_of(held); }
    R held;
  };

  struct alone : in_process_rendezvous {
    static result<alone> create() noexcept {
      result<in_process_rendezvous> table = in_process_rendezvous::create(1);
      if (!table) return table.error();
      return alone(std::move(*table));
    }
    int rank() const noexcept { return 0; }

   private:
    explicit alone(in_process_rendezvous table) noexcept : in_process_rendezvous(std::move(table)) {}
  };

  environment_rendezvous(std::unique_ptr<face> held, bool launched) noexcept : held_(std::move(held)), launched_(launched) {}

  template <class R>
  static result<environment_rendezvous> hold(result<R> from, bool launched) noexcept {
    if (!from) return from.error();
    std::unique_ptr<face> held(new (std::nothrow) holder<R>(std::move(*from)));
    if (!held) return status::failure(errc::out_of_memory, -1, "no memory for a rendezvous");
    return environment_rendezvous(std::move(held), launched);
  }

  template <class First = void, class... Others>
  static result<environment_rendezvous> by_launcher(environment_options const& options) noexcept {
    if constexpr (std::is_void_v<First>) {
      return status::failure(
          errc::not_supported, -1,
          "PMIX_NAMESPACE is set: mpirun, prterun or srun has started this process, and this program knows no PMIx. Include "
          "collectx/rendezvous/pmix.hpp and call environment_rendezvous::create<pmix_rendezvous>(), or set RANK, "
          "WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    } else {
      if (First::present()) return hold(First::create(options.timeout), true);
      return by_launcher<Others...>(options);
    }
  }

  std::unique_ptr<face> held_;
  bool launched_;
};
static_assert(Rendezvous<environment_rendezvous>);

}  // namespace v0
}  // namespace collectx
