// SPDX-License-Identifier: Apache-2.0
/// Hardware that reaches memory of devices, for tests: asked for "verbs;ofi_rxm" libfabric gives "net", which then says that it offers
/// FI_HMEM and takes memory of CUDA devices. A stand-in's device memory is the process's own, so the sockets below can carry it.
/// Defines functions of libfabric: for one source of a program.
#pragma once

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace pretended_rdma {

/// Pieces of memory that this process has registered as a device's. With `refuses` it takes none, as without the kernel's module for it.
inline int registered = 0;
inline bool refuses = false;

inline ::fi_ops_fabric fabric_calls, fabric_calls_of_net;
inline ::fi_ops_mr memory_calls, memory_calls_of_net;

inline int register_memory(::fid* id, ::fi_mr_attr const* wanted, std::uint64_t flags, ::fid_mr** region) {
  if (wanted->iface == FI_HMEM_CUDA && refuses) return -FI_EFAULT;
  if (wanted->iface == FI_HMEM_CUDA) ++registered;
  ::fi_mr_attr as_hosts = *wanted;
  as_hosts.iface = FI_HMEM_SYSTEM;
  return memory_calls_of_net.regattr(id, &as_hosts, flags, region);
}
inline int open_domain(::fid_fabric* fabric, ::fi_info* info, ::fid_domain** domain, void* context) {
  int const rc = fabric_calls_of_net.domain(fabric, info, domain, context);
  if (rc != 0) return rc;
  memory_calls_of_net = memory_calls = *(*domain)->mr;
  memory_calls.regattr = register_memory;
  (*domain)->mr = &memory_calls;
  return 0;
}
template <class F>
F* real(F*, char const* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace pretended_rdma

extern "C" inline int fi_getinfo(std::uint32_t version, char const* node, char const* service, std::uint64_t flags, ::fi_info const* hints,
                                 ::fi_info** info) {
  auto* const real = pretended_rdma::real(&::fi_getinfo, "fi_getinfo");
  char const* const name = hints != nullptr && hints->fabric_attr != nullptr ? hints->fabric_attr->prov_name : nullptr;
  if (name == nullptr || std::strcmp(name, "verbs;ofi_rxm") != 0) return real(version, node, service, flags, hints, info);
  ::fi_info* const asked = ::fi_dupinfo(hints);
  if (asked == nullptr) return -FI_ENOMEM;
  std::free(asked->fabric_attr->prov_name);
  asked->fabric_attr->prov_name = ::strdup("net");
  asked->caps &= ~FI_HMEM;
  asked->domain_attr->mr_mode &= ~FI_MR_HMEM;
  int const rc = real(version, node, service, flags, asked, info);
  ::fi_freeinfo(asked);
  return rc;
}

extern "C" inline int fi_fabric(::fi_fabric_attr* attributes, ::fid_fabric** fabric, void* context) {
  int const rc = pretended_rdma::real(&::fi_fabric, "fi_fabric")(attributes, fabric, context);
  if (rc != 0) return rc;
  pretended_rdma::fabric_calls_of_net = pretended_rdma::fabric_calls = *(*fabric)->ops;
  pretended_rdma::fabric_calls.domain = pretended_rdma::open_domain;
  (*fabric)->ops = &pretended_rdma::fabric_calls;
  return 0;
}
