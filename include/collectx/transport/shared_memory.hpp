// SPDX-License-Identifier: Apache-2.0
/// Ranks are processes on one host: the rings lie in memory without a name, so a killed run leaves nothing behind.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/transport/join.hpp"
#include "collectx/transport/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>  // for std::chrono::nanoseconds: <chrono> itself brings streams, a tenth of a second
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

inline status no_space(std::size_t bytes, char const* where, int error) noexcept {
  return status::failure(errc::out_of_memory, -1, "no space for shared memory, needs %zu bytes %s: %s", bytes, where, std::strerror(error));
}

/// A file of a tmpfs that never had a name. It may be smaller than asked for (containers give /dev/shm 64 MiB), and a page that is not
/// there is a SIGBUS long after, so all of it is had at once.
inline result<descriptor> unnamed_file(char const* folder, std::size_t bytes) noexcept {
  descriptor file(::open(folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
  int const error = file ? ::posix_fallocate(file.get(), 0, static_cast<::off_t>(bytes)) : errno;
  char where[96];
  std::snprintf(where, sizeof where, "in %s", folder);
  if (error != 0) return no_space(bytes, where, error);
  return result<descriptor>(std::move(file));
}

/// Anonymous shared memory as a descriptor: `bytes` of it, of which the first `touched` are had now and the rest when used. What is used
/// later counts against the memory limit of the control group, whose answer to too much is to kill; `options.memory` bounds it.
inline result<descriptor> memory_file(std::size_t bytes, std::size_t touched) noexcept {
  ::rlimit limit{};
  // Past this limit ftruncate would not fail but send SIGXFSZ.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
    return no_space(bytes, "as a file, and RLIMIT_FSIZE allows less", EFBIG);
  }
  descriptor file(::memfd_create("collectx", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return unnamed_file("/dev/shm", bytes);
  if (::ftruncate(file.get(), static_cast<::off_t>(bytes)) != 0) return no_space(bytes, "in a memfd", errno);
  if (::fallocate(file.get(), 0, 0, static_cast<::off_t>(touched)) != 0) return no_space(bytes, "in a memfd", errno);
  ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  return result<descriptor>(std::move(file));
}

inline result<mapping> map_file(int file, std::size_t bytes) noexcept {
  struct ::stat facts {};
  if (::fstat(file, &facts) != 0 || static_cast<std::size_t>(facts.st_size) < bytes) {
    return status::failure(errc::invalid_configuration, -1, "shared memory of %lld bytes where %zu were agreed on",
                           static_cast<long long>(facts.st_size), bytes);
  }
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (address == MAP_FAILED) return no_space(bytes, "of address space", errno);
  return mapping(address, bytes);
}

}  // namespace detail

class shared_memory_transport : public segment_transport {
 public:
  /// Joins the group that `rendezvous` is about; returns on every rank when all have joined, or with the same failure on all that came.
  /// Slots, slot_bytes and lanes are the least that any rank asks for. Keeps no descriptor, leaves no name.
  /// Errors: timeout names the ranks that never came, invalid_configuration what differs, invalid_argument a rank that came twice.
  template <Rendezvous R>
  static result<shared_memory_transport> join(R& rendezvous, transport_options const& options = {}) noexcept {
    int const rank = rendezvous.rank(), size = rendezvous.size();
    if (size < 1 || rank < 0 || rank >= size) {
      return status::failure(errc::invalid_argument, rank, "rank %d is not in a group of %d", rank, size);
    }
    result<nanoseconds> patience = detail::join_patience(options.join_timeout.count(), rank);
    if (!patience) return patience.error();
    detail::hello mine;
    mine.rank = rank;
    mine.size = size;
    mine.slots = options.slots;
    mine.lanes = options.lanes;
    mine.slot_bytes = options.slot_bytes;
    mine.memory = options.memory;
    mine.patience = *patience;
    return join_as(rendezvous, mine);
  }

  /// What `join` says of itself is a parameter here, so that a test can play another build.
  template <Rendezvous R>
  static result<shared_memory_transport> join_as(R& rendezvous, detail::hello const& mine) noexcept {
    nanoseconds const deadline = detail::monotonic_now() + mine.patience;
    if (mine.rank == 0) {
      result<detail::join_host> host = detail::join_host::open(mine);
      if (!host) return host.error();
      status const put = rendezvous.put("collectx", rendezvous_value(&host->place(), sizeof(detail::meeting_point)));
      // Somebody else is rank 0. It shall hear of it, and tell the others.
      if (put.code() == errc::busy) return as_guest(rendezvous, mine, deadline);
      if (!put) return put;
      concluded<R> guard{rendezvous};
      return as_host(*host, mine, guard);
    }
    result<shared_memory_transport> joined = as_guest(rendezvous, mine, deadline);
    if (!joined) rendezvous.conclude();
    return joined;
  }

 private:
  template <class R>
  struct concluded {
    R& rendezvous;
    bool done = false;
    void now() noexcept {
      if (!std::exchange(done, true)) rendezvous.conclude();
    }
    ~concluded() { now(); }
  };

  shared_memory_transport(segment_transport base) noexcept : segment_transport(std::move(base)) {}

  static result<shared_memory_transport> map(int memory, detail::segment_layout const& layout, detail::hello const& mine) noexcept {
    result<detail::mapping> segment = detail::map_file(memory, layout.bytes);
    if (!segment) return segment.error();
    result<segment_transport> base =
        take_seat(std::move(*segment), layout, mine.rank, this_process(), std::chrono::nanoseconds(mine.patience));
    if (!base) return base.error();
    return shared_memory_transport(std::move(*base));
  }

  template <class R>
  static result<shared_memory_transport> as_host(detail::join_host& host, detail::hello const& mine, concluded<R>& guard) noexcept {
    transport_options agreed;
    host.watch([](void* r) { return detail::trouble_of(*static_cast<R*>(r)); }, &guard.rendezvous);
    if (status s = host.gather(agreed); !s) return s;
    host.watch(nullptr, nullptr);  // from here on they are heard, or their end is
    auto refuse = [&](status const& why) -> status {
      host.tell(detail::verdict::of(why));
      return why;
    };
    result<detail::segment_layout> layout = detail::lay_out(mine.size, agreed);
    if (!layout) return refuse(layout.error());
    result<detail::descriptor> memory = detail::memory_file(layout->bytes, layout->lines);
    if (!memory) return refuse(memory.error());
    result<shared_memory_transport> self = map(memory->get(), *layout, mine);
    if (!self) return refuse(self.error());
    detail::verdict agreement;
    agreement.slots = agreed.slots;
    agreement.lanes = agreed.lanes;
    agreement.slot_bytes = agreed.slot_bytes;
    if (status s = host.share(memory->get(), agreement); !s) return s;
    guard.now();  // before anybody returns: who has joined may join again under the same name
    host.tell({});
    return self;
  }

  template <class R>
  static result<shared_memory_transport> as_guest(R& rendezvous, detail::hello const& mine, nanoseconds deadline) noexcept {
    std::uint64_t const space = this_process().space;
    for (int gone = 0;;) {
      result<rendezvous_value> value = rendezvous.get("collectx", deadline);
      if (!value) {
        if (value.error().code() != errc::timeout) return value.error();
        return status::failure(errc::timeout, 0, "rank 0 of %d never came to join, rank %d waited for it", mine.size, mine.rank);
      }
      detail::meeting_point place;
      detail::verdict decided;
      detail::descriptor memory;
      detail::join_guest guest;
      std::memcpy(&place, value->data(), detail::lesser(sizeof place, value->size()));
      if (guest.knock(place, mine, deadline, decided, memory) == detail::join_guest::answer::given) {
        if (status s = decided.spell(); !s) return s;
        return enter(guest, mine, decided, memory.get(), deadline);
      }
      // An address that stays though its owner is dead is not one of an earlier run that is about to be replaced.
      if (is_dead(place.host, space) && ++gone == 20) {
        return status::failure(errc::peer_lost, 0, "rank 0 (process %llu) died while joining",
                               static_cast<unsigned long long>(place.host.pid));
      }
      if (detail::monotonic_now() >= deadline) {
        return status::failure(errc::timeout, 0, "rank 0 of %d does not answer, rank %d waited for it", mine.size, mine.rank);
      }
      detail::nap(10'000'000);
    }
  }

  static result<shared_memory_transport> enter(detail::join_guest& guest, detail::hello const& mine, detail::verdict const& decided,
                                               int memory, nanoseconds deadline) noexcept {
    transport_options agreed;
    agreed.slots = decided.slots;
    agreed.lanes = decided.lanes;
    agreed.slot_bytes = decided.slot_bytes;
    result<detail::segment_layout> layout = detail::lay_out(mine.size, agreed);
    result<shared_memory_transport> self = layout ? map(memory, *layout, mine) : layout.error();
    if (status s = guest.ready(self ? status{} : self.error(), deadline); !s) return s;
    return self;
  }
};

static_assert(Transport<shared_memory_transport>);

}  // namespace v0
}  // namespace collectx
