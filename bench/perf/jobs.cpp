// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"
#if COLLECTX_PERF_CUDA
#include "devices/group.hpp"
#endif

namespace perf {

bool is_built(wire w, datatype d, operation o) {
#if COLLECTX_PERF_CUDA
  if (on_devices(w)) return reduces_on_devices(d, o);
#endif
  static_cast<void>(w), static_cast<void>(d), static_cast<void>(o);
  return true;
}

std::vector<job> jobs_of(settings const& all) {
  std::vector<job> jobs;
  for (collective c : all.collectives) {
    std::vector<operation> const operations = reduces(c) ? all.operations : std::vector{operation::sum};
    std::vector<int> const roots = has_root(c) ? all.roots : std::vector{0};
    for (std::string const& algorithm : all.algorithms) {
      schedule_face const* face = nullptr;
      for (algorithm_entry const& e : algorithms())
        if (algorithm == e.name) face = e.of[static_cast<int>(c)];
      if (face == nullptr && algorithm != automatic) continue;
      for (datatype d : all.datatypes)
        for (operation o : operations) {
          if (reduces(c) && !is_built(all.transport, d, o)) continue;
          for (int root : roots) jobs.push_back({&all, c, algorithm.c_str(), face, d, o, root});
        }
    }
  }
  return jobs;
}

}  // namespace perf
