// SPDX-License-Identifier: Apache-2.0
/// Ranks that own GPUs: what the rest of the program, which is compiled without nvcc, sees of them.
#pragma once

#include <collectx/rendezvous/environment.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#include "../call.hpp"
#include "../measure.hpp"

namespace perf {

/// One rank's communicator, over either wire, and a stream of its own.
class device_group {
 public:
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Per channel.
  virtual int slots() = 0;
  virtual std::size_t slot_bytes() = 0;
  /// Puts a call onto the stream: its elements are of type `d`.
  virtual collectx::status put(datatype d, operation o, collective_call<std::byte> const& call) = 0;
  /// Ends when all that were put there have.
  virtual collectx::status finish() = 0;
  /// Without a stream: `all` becomes what the ranks have put into `mine`, by rank.
  virtual collectx::status exchange(std::span<std::byte const> mine, std::span<std::byte> all) = 0;

 protected:
  ~device_group() = default;
};

collectx::status meet(device_group& group);
collectx::status slowest_of(device_group& group, std::span<double> seconds);
collectx::status total_of(device_group& group, std::int64_t& count);

/// Managed memory, which the host fills and reads between measurements and which stays on the device during one. Null where there is none.
void* allocate_on_device(std::size_t bytes);
void release_on_device(void* memory);

/// Slots and lanes between devices.
collectx::transport_options defaults_on_devices(wire w);
/// Whether kernels of the reduction were built.
bool reduces_on_devices(datatype d, operation o);

/// `what` by ranks that somebody has started, of which this is one, or by forked ones where `meeting` is null; GPUs by rank.
collectx::status measure_on_devices(job const& what, collectx::environment_rendezvous* meeting, row_taker take, void* context);

/// One rank's part of it, in measure.cpp.
collectx::status measure_group(device_group& group, job const& what, row_taker take, void* context);

}  // namespace perf
