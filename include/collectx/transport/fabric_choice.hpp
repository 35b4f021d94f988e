// SPDX-License-Identifier: Apache-2.0
/// What ranks find out of one another before they open endpoints: who is on which host, and which provider they take.
#pragma once

#include "collectx/process.hpp"
#include "collectx/transport/fabric.hpp"
#include "collectx/transport/host.hpp"
#include "collectx/transport/socket_mesh.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

struct fabric_choice {
  char provider[32] = {};  ///< none where a rank is alone
  std::vector<int> nodes;  ///< of each rank; hosts are numbered in the order of their first ranks
  int neighbours = 0;      ///< ranks on this host, with this one
  int cpus = 0;            ///< that they may run on

  /// The same provider on all ranks: the one that all ask for, or the best that all are offered.
  /// Errors: invalid_configuration where they ask for different ones, not_supported where there is none; the mesh's own.
  status make(socket_mesh& mesh, char const* wanted, bool between_hosts, nanoseconds deadline) {
    wish mine;
    mine.host = host_identity();
    mine.cpus = cpu_mask::mine();
    mine.offered = fabric_endpoint::offered(mesh.place());
    std::snprintf(mine.provider, sizeof mine.provider, "%s", wanted == nullptr ? "" : wanted);
    std::vector<wish> wishes;
    if (status s = mesh.share(mine, wishes, deadline); !s) return s;
    bool const one_host = find_hosts(wishes, mine.host);
    for (std::size_t r = 1; r < wishes.size(); ++r) {
      if (std::strcmp(wishes[r].provider, wishes[0].provider) == 0) continue;
      return status::failure(errc::invalid_configuration, static_cast<int>(r), "rank %d asks for provider %s, rank 0 for %s",
                             static_cast<int>(r), *wishes[r].provider != 0 ? wishes[r].provider : "any",
                             *wishes[0].provider != 0 ? wishes[0].provider : "any");
    }
    if (mesh.size() == 1) return {};
    if (*mine.provider != 0) return std::memcpy(provider, mine.provider, sizeof provider), status{};
    std::uint32_t common = ~std::uint32_t{0};
    for (wish const& w : wishes) common &= w.offered;
    for (int i = 0; i < fabric_provider_count; ++i) {
      if ((common >> i & 1) == 0 || (fabric_providers[i].one_host && (!one_host || between_hosts))) continue;
      std::snprintf(provider, sizeof provider, "%s", fabric_providers[i].name);
      return {};
    }
    return status::failure(errc::not_supported, -1, "no common transport: no provider of libfabric is offered on all %d ranks",
                           mesh.size());
  }

 private:
  /// What a rank says of itself.
  struct wish {
    std::uint64_t host = 0;
    std::uint32_t offered = 0;
    char provider[32] = {};
    cpu_mask cpus;
  };

  /// Whether all are on one.
  bool find_hosts(std::vector<wish> const& wishes, std::uint64_t here) {
    int count = 0;
    cpu_mask shared;
    for (wish const& w : wishes) {
      std::size_t first = 0;
      while (wishes[first].host != w.host) ++first;
      nodes.push_back(first < nodes.size() ? nodes[first] : count++);
      if (w.host != here) continue;
      ++neighbours;
      shared |= w.cpus;
    }
    cpus = shared.count();
    return count == 1;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
