// SPDX-License-Identifier: Apache-2.0
/// Ranks are threads of one process: the same rings as between processes, in private memory.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/transport/segment.hpp"

#include <unistd.h>
#include <cstdint>
#include <cstring>
#include <thread>  // for std::chrono::nanoseconds: <chrono> itself brings streams, a tenth of a second
#include <utility>

namespace collectx {
inline namespace v0 {

class loopback_transport : public segment_transport {
 public:
  loopback_transport(segment_transport base) noexcept : segment_transport(std::move(base)) {}

  /// Founds a group of threads that meet at `rendezvous`, laid out as rank 0 asks; returns on every rank when all have come.
  /// Errors: timeout names a rank that never came, invalid_argument a rank of another process or one that came twice.
  template <Rendezvous R>
  static result<loopback_transport> join(R& rendezvous, transport_options const& options = {}) noexcept {
    int const rank = rendezvous.rank(), size = rendezvous.size();
    if (size < 1 || rank < 0 || rank >= size) {
      return status::failure(errc::invalid_argument, rank, "rank %d is not in a group of %d", rank, size);
    }
    result<nanoseconds> patience = detail::join_patience(options.join_timeout.count(), rank);
    if (!patience) return patience.error();
    nanoseconds const deadline = detail::monotonic_now() + *patience;
    result<founding> here = rank == 0 ? found(rendezvous, options) : find(rendezvous, deadline);
    if (!here) return here.error();
    result<loopback_transport> joined = sit(rendezvous, *here, deadline, options.join_timeout);
    // Where it has failed, a rank that has read the address may still be about to look there: that reference is never given back.
    if (rank == 0 && joined) here->drop();
    rendezvous.conclude();
    return joined;
  }

 private:
  /// What rank 0 shows: where the memory is, in its process.
  struct founding {
    std::uint64_t process = 0;
    std::byte* address = nullptr;
    detail::segment_layout layout;

    std::uint64_t& users() const noexcept { return reinterpret_cast<detail::board_memory*>(address)->users; }
    detail::mapping share() const noexcept {
      detail::mapping memory(address, layout.bytes);
      memory.count_in(users());
      return memory;
    }
    void drop() const noexcept { detail::shared_word(users()).fetch_sub(1, std::memory_order_acq_rel); }
  };
  static_assert(sizeof(founding) <= rendezvous_value::capacity);

  template <class R>
  static result<founding> found(R& rendezvous, transport_options const& options) noexcept {
    result<detail::segment_layout> layout = detail::lay_out(rendezvous.size(), options);
    if (!layout) return layout.error();
    result<detail::mapping> memory = detail::mapping::anonymous(layout->bytes);
    if (!memory) return memory.error();
    founding const here{static_cast<std::uint64_t>(::getpid()), memory->address(), *layout};
    memory->count_in(here.users());
    if (status s = rendezvous.put("collectx", rendezvous_value(&here, sizeof here)); !s) return s;
    detail::mapping const kept = std::move(*memory);
    detail::shared_word(here.users()).fetch_add(1, std::memory_order_relaxed);
    return here;
  }

  template <class R>
  static result<founding> find(R& rendezvous, nanoseconds deadline) noexcept {
    result<rendezvous_value> shown = rendezvous.get("collectx", deadline);
    if (!shown) return shown.error();
    founding here;
    std::memcpy(static_cast<void*>(&here), shown->data(), detail::lesser(sizeof here, shown->size()));
    int const rank = rendezvous.rank(), size = rendezvous.size();
    if (here.process != static_cast<std::uint64_t>(::getpid())) {
      return status::failure(errc::invalid_argument, rank, "rank %d is not in the process of rank 0, %llu: join by shared_memory", rank,
                             static_cast<unsigned long long>(here.process));
    }
    if (here.layout.size != size) {
      return status::failure(errc::invalid_configuration, rank, "rank %d joins a group of %d, rank 0 one of %d", rank, size,
                             here.layout.size);
    }
    return here;
  }

  template <class R>
  static result<loopback_transport> sit(R& rendezvous, founding const& here, nanoseconds deadline,
                                        std::chrono::nanoseconds join_timeout) noexcept {
    result<segment_transport> base = take_seat(here.share(), here.layout, rendezvous.rank(), process_identity{}, join_timeout);
    if (!base) return base.error();
    loopback_transport self(std::move(*base));
    for (int r = 0; r < self.size(); ++r) {
      while (!self.seated(r)) {
        if (status s = self.verdict(); !s) return s;
        if (status s = detail::trouble_of(rendezvous); !s) return self.abort(s);
        if (detail::monotonic_now() >= deadline) {
          return self.abort(status::failure(errc::timeout, r, "rank %d of %d never came to join", r, self.size()));
        }
        detail::nap(20'000);
      }
    }
    return result<loopback_transport>(std::move(self));
  }
};

namespace loopback {

using options = transport_options;

/// The memory of a group, and one transport per rank out of it. The memory lasts until the group and all its transports are gone.
class group {
 public:
  /// Errors: invalid_configuration names the option that cannot work, out_of_memory the bytes.
  static result<group> create(int size, options const& chosen = {}) noexcept {
    result<detail::segment_layout> layout = detail::lay_out(size, chosen);
    if (!layout) return layout.error();
    result<detail::mapping> memory = detail::mapping::anonymous(layout->bytes);
    if (!memory) return memory.error();
    return group(std::move(*memory), *layout, chosen.join_timeout);
  }

  int size() const noexcept { return layout_.size; }

  /// Called once per rank, by any thread. Errors: invalid_argument where there is no such rank or it was made before.
  result<loopback_transport> transport(int rank) const noexcept {
    if (rank < 0 || rank >= size()) {
      return status::failure(errc::invalid_argument, rank, "rank %d is not in a group of %d", rank, size());
    }
    return seats::of(memory_.share(), layout_, rank, join_timeout_);
  }

 private:
  struct seats : segment_transport {
    static result<loopback_transport> of(detail::mapping memory, detail::segment_layout const& layout, int rank,
                                         std::chrono::nanoseconds join_timeout) noexcept {
      // Threads die with their process, so there is nobody to look up.
      result<segment_transport> base = take_seat(std::move(memory), layout, rank, process_identity{}, join_timeout);
      if (!base) return base.error();
      return loopback_transport(std::move(*base));
    }
  };

  group(detail::mapping memory, detail::segment_layout const& layout, std::chrono::nanoseconds join_timeout) noexcept
      : memory_(std::move(memory)), layout_(layout), join_timeout_(join_timeout) {
    memory_.count_in(reinterpret_cast<detail::board_memory*>(memory_.address())->users);
  }

  detail::mapping memory_;
  detail::segment_layout layout_;
  std::chrono::nanoseconds join_timeout_;
};

}  // namespace loopback

static_assert(Transport<loopback_transport>);

}  // namespace v0
}  // namespace collectx
