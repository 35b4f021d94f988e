// SPDX-License-Identifier: Apache-2.0
/// One endpoint of libfabric that writes into the memory of others: choosing a provider, opening it, and giving everything back.
#pragma once

#include "collectx/process.hpp"
#include "collectx/status.hpp"
#include "collectx/transport/socket_link.hpp"

#include <netdb.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// The providers that are chosen among, the best first. A shared-memory provider serves one host only.
struct fabric_provider {
  char const* name;
  bool by_address;  ///< bound to the address of one interface
  bool one_host;
  bool fragile = false;          ///< may crash over what a dead peer has written half, as libfabric 1.17 does
  bool copies = false;           ///< what is read and written is copied by the processes, in their own calls, and not behind their backs
  bool reaches_devices = false;  ///< its hardware does, where it offers FI_HMEM; others that do so copy by calls of the device's runtime
};
inline constexpr fabric_provider fabric_providers[] = {
    {.name = "verbs;ofi_rxm", .by_address = true, .one_host = false, .reaches_devices = true},
    {.name = "efa", .by_address = false, .one_host = false, .reaches_devices = true},
    {"psm3", false, false},
    {"psm2", false, false},
    {.name = "shm", .by_address = false, .one_host = true, .copies = true},
    {"net", true, false},
    {.name = "tcp;ofi_rxm", .by_address = true, .one_host = false, .fragile = true},
};
inline constexpr int fabric_provider_count = static_cast<int>(sizeof fabric_providers / sizeof *fabric_providers);

/// One that somebody names need not be on the list: what it is not known to need, it is not given.
inline fabric_provider provider_named(char const* name) noexcept {
  for (fabric_provider const& p : fabric_providers)
    if (std::strcmp(p.name, name) == 0) return p;
  return {name, false, false};
}

inline status fabric_failure(int error, char const* what) noexcept {
  return status::failure(errc::system, -1, "libfabric: %s: %s", what, ::fi_strerror(error < 0 ? -error : error));
}

/// Closed when it goes. Members of `fabric_endpoint` are declared in the order in which libfabric wants them opened.
template <class T>
class fabric_object {
 public:
  fabric_object() = default;
  fabric_object(fabric_object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  fabric_object& operator=(fabric_object&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~fabric_object() {
    if (object_ != nullptr) ::fi_close(&object_->fid);
  }
  /// Closes nothing: for a forked child, whose copy shares its connections with the parent's.
  void abandon() noexcept { object_ = nullptr; }
  T* get() const noexcept { return object_; }
  T** out() noexcept { return &object_; }
  fid* id() const noexcept { return &object_->fid; }

 private:
  T* object_ = nullptr;
};

struct fabric_info_deleter {
  void operator()(::fi_info* info) const noexcept { ::fi_freeinfo(info); }
};
using fabric_info = std::unique_ptr<::fi_info, fabric_info_deleter>;

/// An endpoint's name, as others need it to write to it.
struct fabric_address {
  static constexpr std::size_t capacity = 128;
  std::uint32_t length = 0;
  std::byte bytes[capacity] = {};

  /// A process that was killed leaves the name of its shared memory behind, which is its address: "fi_shm://4711:0:0".
  void remove_name() const noexcept {
    char text[capacity + 1] = {};
    std::memcpy(text, bytes, length < capacity ? length : capacity);
    char const* const name = std::strstr(text, "://");
    if (std::strncmp(text, "fi_", 3) != 0 || name == nullptr || std::strchr(name + 3, '/') != nullptr) return;
    char path[capacity + 16];
    std::snprintf(path, sizeof path, "/dev/shm/%.*s", static_cast<int>(capacity), name + 3);
    ::unlink(path);
  }
};

/// The name of shared memory that an endpoint has. Who ends by `exit` closes nothing that it has opened: then the name is removed here.
class fabric_name {
 public:
  fabric_name() = default;
  fabric_name(fabric_name const&) = delete;
  fabric_name& operator=(fabric_name const&) = delete;
  ~fabric_name() {
    if (!kept_ || !mark_.here()) return;
    std::lock_guard const hold(mutex_);
    *before_ = next_;
    if (next_ != nullptr) next_->before_ = before_;
  }

  void keep(fabric_address const& address) noexcept {
    std::lock_guard const hold(mutex_);
    static int const prepared = std::atexit(remove_all);  // without room for it, a name may stay
    static_cast<void>(prepared);
    address_ = address;
    kept_ = true;
    next_ = std::exchange(first_, this);
    before_ = &first_;
    if (next_ != nullptr) next_->before_ = &next_;
  }

 private:
  static void remove_all() noexcept {
    std::lock_guard const hold(mutex_);
    for (fabric_name const* name = first_; name != nullptr; name = name->next_)
      if (name->mark_.here()) name->address_.remove_name();  // a forked child has its parent's here, too
  }

  inline static std::mutex mutex_;
  inline static fabric_name* first_ = nullptr;
  fabric_address address_;
  fork_mark mark_ = fork_mark::take();
  bool kept_ = false;
  fabric_name* next_ = nullptr;
  fabric_name** before_ = nullptr;
};

/// Where a rank's memory lies for those who write into it.
struct fabric_window {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
};

/// A device in whose memory payloads may lie.
struct fabric_device {
  ::fi_hmem_iface kind = FI_HMEM_SYSTEM;  ///< the host's own memory: every provider reaches it
  int number = 0;
  /// Asked for memory once, where the provider reaches it. Null: there is none that a network could reach.
  result<std::byte*> (*allocate)(void* context, std::size_t bytes) = nullptr;
  status (*make_visible)(void* context) = nullptr;  ///< lets the device see what the network has written; null: it does anyhow
  void* context = nullptr;
};

class fabric_endpoint {
 public:
  /// What this library needs of a provider: to write into a peer's memory, with a number that arrives there when the data has.
  static constexpr std::uint64_t needed = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
  /// Of one where the receiver may as well copy out of the sender's memory.
  static constexpr std::uint64_t needed_to_copy = needed | FI_READ | FI_REMOTE_READ;
  /// From 1.18 on EFA may call the runtime of a device in the midst of ours, which could wait for the kernel that waits for us.
  static constexpr std::uint32_t api = FI_VERSION(1, 17);

  /// The provider's offer at the interface with `here`, or nothing.
  static fabric_info find(fabric_provider const& provider, socket_place const& here) noexcept {
    return find(provider, here, provider.copies ? needed_to_copy : needed);
  }
  static fabric_info find(fabric_provider const& provider, socket_place const& here, std::uint64_t capabilities) noexcept {
    fabric_info hints(::fi_allocinfo());
    if (!hints) return nullptr;
    hints->caps = capabilities;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    if ((capabilities & FI_HMEM) != 0) hints->domain_attr->mr_mode |= FI_MR_HMEM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->cq_data_size = sizeof(std::uint32_t);
    hints->fabric_attr->prov_name = ::strdup(provider.name);
    char host[NI_MAXHOST];
    char const* node = nullptr;
    if (provider.by_address) {
      if (::getnameinfo(here.where(), static_cast<::socklen_t>(here.length), host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
        return nullptr;
      node = host;
    }
    ::fi_info* found = nullptr;
    if (::fi_getinfo(api, node, nullptr, node != nullptr ? FI_SOURCE : 0, hints.get(), &found) != 0) return nullptr;
    return fabric_info(found);
  }

  /// Which of the providers can be used here, as bits.
  static std::uint32_t offered(socket_place const& here) noexcept {
    std::uint32_t bits = 0;
    for (int i = 0; i < fabric_provider_count; ++i)
      if (find(fabric_providers[i], here)) bits |= 1u << i;
    return bits;
  }

  /// @param for_devices  whether memory of devices is to be reached, if the provider does that
  status open(fabric_provider const& provider, socket_place const& here, bool for_devices) noexcept {
    if (for_devices && provider.reaches_devices) info_ = find(provider, here, needed | FI_HMEM);
    reaches_devices_ = info_ != nullptr;
    if (!info_) info_ = find(provider, here);
    if (!info_) return refusal(provider, here);
    ::fi_cq_attr completions{};
    completions.format = FI_CQ_FORMAT_DATA;
    completions.size = 4096;
    ::fi_av_attr addresses{};
    addresses.type = FI_AV_TABLE;
    int rc = ::fi_fabric(info_->fabric_attr, fabric_.out(), nullptr);
    if (rc == 0) rc = ::fi_domain(fabric_.get(), info_.get(), domain_.out(), nullptr);
    if (rc == 0) rc = ::fi_av_open(domain_.get(), &addresses, addresses_.out(), nullptr);
    if (rc == 0) rc = ::fi_cq_open(domain_.get(), &completions, completions_.out(), nullptr);
    if (rc == 0) rc = ::fi_endpoint(domain_.get(), info_.get(), endpoint_.out(), nullptr);
    if (rc == 0 && reaches_devices_) {  // without detours; some have no other way, and not this option either
      int const direct = FI_HMEM_P2P_REQUIRED;
      int const answer = ::fi_setopt(endpoint_.id(), FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &direct, sizeof direct);
      reaches_devices_ = answer == 0 || answer == -FI_ENOPROTOOPT;
    }
    if (rc == 0) rc = ::fi_ep_bind(endpoint_.get(), addresses_.id(), 0);
    if (rc == 0) rc = ::fi_ep_bind(endpoint_.get(), completions_.id(), FI_TRANSMIT | FI_RECV);
    if (rc == 0) rc = ::fi_enable(endpoint_.get());
    return rc == 0 ? status{} : fabric_failure(rc, provider.name);
  }

  status name(fabric_address& mine) noexcept {
    std::size_t length = sizeof mine.bytes;
    if (int const rc = ::fi_getname(endpoint_.id(), mine.bytes, &length); rc != 0) return fabric_failure(rc, "name of the endpoint");
    mine.length = static_cast<std::uint32_t>(length);
    name_.keep(mine);
    return {};
  }

  status learn(fabric_address const& other, ::fi_addr_t& number) noexcept {
    int const inserted = ::fi_av_insert(addresses_.get(), other.bytes, 1, &number, 0, nullptr);
    return inserted == 1 ? status{} : fabric_failure(inserted < 0 ? inserted : FI_EINVAL, "address of a peer");
  }

  /// Makes memory known: written from here, and by others.
  status share(void* memory, std::size_t bytes, fabric_object<::fid_mr>& region, fabric_window& window) noexcept {
    if (int const rc = make_known(memory, bytes, FI_WRITE | FI_REMOTE_WRITE, region); rc != 0) {
      return status::failure(errc::out_of_memory, -1, "libfabric: cannot register %zu bytes: %s", bytes, ::fi_strerror(-rc));
    }
    window = window_on(memory, region);
    return {};
  }
  bool reaches(fabric_device const& device) const noexcept { return device.kind == FI_HMEM_SYSTEM || reaches_devices_; }
  /// The same with a device's memory; false where the provider does not reach it after all.
  bool share(fabric_device const& device, std::byte* memory, std::size_t bytes, fabric_object<::fid_mr>& region,
             fabric_window& window) noexcept {
    if (make_known(device, {memory, bytes}, FI_WRITE | FI_REMOTE_WRITE, region) != 0) return false;
    window = window_on(memory, region);
    return true;
  }
  /// Makes memory known that a peer may read.
  bool offer(void const* memory, std::size_t bytes, fabric_object<::fid_mr>& region, fabric_window& window) noexcept {
    if (make_known(memory, bytes, FI_REMOTE_READ, region) != 0) return false;
    window = window_on(memory, region);
    return true;
  }
  /// Makes memory known that is only sent from, where the provider asks for that. What is kept of it from call to call is libfabric's own
  /// cache, which hears of memory that goes. False where it cannot be done.
  bool lend(void const* memory, std::size_t bytes, fabric_object<::fid_mr>& region) noexcept {
    return !asks_for(FI_MR_LOCAL) || make_known(memory, bytes, FI_WRITE, region) == 0;
  }
  /// Whether a write can gather what it carries from two places.
  bool gathers() const noexcept { return info_->tx_attr->iov_limit >= 2; }

  void abandon() noexcept {
    endpoint_.abandon();
    completions_.abandon();
    addresses_.abandon();
    domain_.abandon();
    fabric_.abandon();
  }

  ::fid_ep* endpoint() const noexcept { return endpoint_.get(); }
  ::fid_cq* completions() const noexcept { return completions_.get(); }
  ::fi_info const& info() const noexcept { return *info_; }

 private:
  bool asks_for(int mode) const noexcept { return (info_->domain_attr->mr_mode & mode) != 0; }
  fabric_window window_on(void const* memory, fabric_object<::fid_mr> const& region) const noexcept {
    return {asks_for(FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uintptr_t>(memory) : 0, ::fi_mr_key(region.get())};
  }
  int make_known(void const* memory, std::size_t bytes, std::uint64_t access, fabric_object<::fid_mr>& region) noexcept {
    return make_usable(::fi_mr_reg(domain_.get(), memory, bytes, access, 0, next_key_++, 0, region.out(), nullptr), region);
  }
  int make_known(fabric_device const& device, ::iovec const& place, std::uint64_t access, fabric_object<::fid_mr>& region) noexcept {
    ::fi_mr_attr wanted{};
    wanted.mr_iov = &place;
    wanted.iov_count = 1;
    wanted.access = access;
    wanted.requested_key = next_key_++;
    wanted.iface = device.kind;
    wanted.device.cuda = device.number;
    int const rc = make_usable(::fi_mr_regattr(domain_.get(), &wanted, 0, region.out()), region);
    if (rc != 0) region = {};
    return rc;
  }
  int make_usable(int rc, fabric_object<::fid_mr>& region) noexcept {
    if (rc != 0 || !asks_for(FI_MR_ENDPOINT)) return rc;
    rc = ::fi_mr_bind(region.get(), endpoint_.id(), 0);
    return rc != 0 ? rc : ::fi_mr_enable(region.get());
  }

  static status refusal(fabric_provider const& provider, socket_place const& here) noexcept {
    if (!find(provider, here, 0)) {
      return status::failure(errc::not_supported, -1, "libfabric has no provider %s with reliable datagrams here", provider.name);
    }
    char missing[64] = {};
    struct {
      std::uint64_t bit;
      char const* text;
    } const wanted[] = {{FI_RMA | FI_WRITE, " FI_WRITE"},
                        {FI_RMA | FI_REMOTE_WRITE, " FI_REMOTE_WRITE"},
                        {FI_RMA | FI_READ, " FI_READ"},
                        {FI_RMA | FI_REMOTE_READ, " FI_REMOTE_READ"}};
    for (auto const& w : wanted)
      if (((provider.copies ? needed_to_copy : needed) & w.bit) == w.bit && !find(provider, here, w.bit)) std::strcat(missing, w.text);
    return status::failure(errc::not_supported, -1, "provider %s of libfabric lacks%s", provider.name,
                           *missing != 0 ? missing : " FI_REMOTE_CQ_DATA of 4 bytes");
  }

  fabric_name name_;
  fabric_info info_;
  fabric_object<::fid_fabric> fabric_;
  fabric_object<::fid_domain> domain_;
  fabric_object<::fid_av> addresses_;
  fabric_object<::fid_cq> completions_;
  fabric_object<::fid_ep> endpoint_;
  std::uint64_t next_key_ = 1;
  bool reaches_devices_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
