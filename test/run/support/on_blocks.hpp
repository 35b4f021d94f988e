// SPDX-License-Identifier: Apache-2.0
/// The ranks of a group as grids of threads: what a device would run, run by a CPU.
#pragma once

#include <collectx/device/cpu_block.hpp>
#include <collectx/exec/run_device.cuh>

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "plans.hpp"

namespace support {

namespace cx = collectx;

/// Memory that begins with zeros and at a multiple of 128, as a window of a device.
class zeroed {
 public:
  explicit zeroed(std::size_t bytes) : lines_(new line[bytes / sizeof(line) + 1]()) {}
  std::byte* data() const { return lines_.get()->bytes; }

 private:
  struct alignas(128) line {
    std::byte bytes[128];
  };
  std::unique_ptr<line[]> lines_;
};

/// What a host sets up for a group: a window per rank, the ends of all channels by one protocol, and what the kernels are told.
template <class Protocol>
class block_group {
 public:
  explicit block_group(cx::device::layout const& l) : layout_(l), members_(static_cast<std::size_t>(l.ranks)) {
    for (int r = 0; r < l.ranks; ++r) {
      windows_.emplace_back(l.window_bytes());
      bases_.push_back(windows_.back().data());
    }
    for (int r = 0; r < l.ranks; ++r) {
      member& m = at(r);
      m.senders.resize(l.channels());
      m.receivers.resize(l.channels());
      m.staging = std::make_unique<zeroed>(cx::device::staging_bytes<Protocol>(l));
      m.windows = bases_;
      m.calls.resize(static_cast<std::size_t>(l.blocks));
      m.reports.resize(static_cast<std::size_t>(l.blocks));
      cx::device::make_wires<Protocol>(l, bases_.data(), r, m.staging->data(), wires(r));
    }
  }

  cx::device::layout const& layout() const { return layout_; }
  cx::device::wires<Protocol> wires(int rank) { return {at(rank).senders.data(), at(rank).receivers.data()}; }
  cx::device::world world(int rank) {
    cx::device::world w;
    w.layout = layout_;
    w.rank = rank;
    w.windows = at(rank).windows.data();
    w.told = at(rank).told;
    w.calls = at(rank).calls.data();
    w.reports = at(rank).reports.data();
    w.timeout = timeout;
    return w;
  }
  /// What rank `rank` sees as the window of `other`, and where it tells its host whom it waits for.
  std::byte*& window_seen(int rank, int other) { return at(rank).windows[static_cast<std::size_t>(other)]; }
  std::uint64_t*& told(int rank) { return at(rank).told; }
  std::vector<cx::device::report> const& reports(int rank) { return at(rank).reports; }
  std::uint64_t& calls(int rank, int block) { return at(rank).calls[static_cast<std::size_t>(block)]; }
  std::byte* window(int rank) const { return bases_[static_cast<std::size_t>(rank)]; }

  /// kernel(block, rank) by a grid per rank, all at once. `absent`: a rank that does not come.
  template <class Kernel>
  void launch(int blocks, int threads, std::size_t shared_bytes, Kernel const& kernel, int absent = -1) {
    std::vector<std::thread> ranks;
    for (int r = 0; r < layout_.ranks; ++r)
      if (r != absent)
        ranks.emplace_back([&, r] { cx::device::run_on_cpu(blocks, threads, shared_bytes, [&](auto& block) { kernel(block, r); }); });
    for (std::thread& rank : ranks) rank.join();
  }

  cx::nanoseconds timeout = 60'000'000'000;

 private:
  struct member {
    std::vector<typename Protocol::sender> senders;
    std::vector<typename Protocol::receiver> receivers;
    std::unique_ptr<zeroed> staging;
    std::vector<std::byte*> windows;  // of all ranks, as this one sees them
    std::uint64_t* told = nullptr;
    std::vector<std::uint64_t> calls;
    std::vector<cx::device::report> reports;
  };
  member& at(int rank) { return members_[static_cast<std::size_t>(rank)]; }

  cx::device::layout layout_;
  std::vector<zeroed> windows_;
  std::vector<std::byte*> bases_;
  std::vector<member> members_;
};

/// The plans of all ranks for a call, as images, and a call of them.
template <class Protocol, class T>
class call_on_blocks {
 public:
  call_on_blocks(block_group<Protocol>& group, cx::exec::list<cx::exec::plan> const& plans, std::size_t count, int blocks)
      : group_(group), calls_(static_cast<std::size_t>(plans.size())), blocks_(blocks) {
    for (cx::exec::plan const& p : plans) images_.emplace_back(p);
    for (std::size_t r = 0; r < images_.size(); ++r) {
      cx::exec::image_view const image = images_[r].view();
      std::size_t most = 0;
      for (int b = 0; b < blocks; ++b) {
        auto const g = cx::exec::device_geometry<Protocol>(image, group.layout(), count, sizeof(T), blocks, b);
        fits_ = fits_ && g.fits();
        most = (std::max)(most, g.scratch_elements());
      }
      scratch_.emplace_back(most * static_cast<std::size_t>(blocks) * sizeof(T));
      calls_[r].image = images_[r].words().begin();
      calls_[r].scratch = reinterpret_cast<T*>(scratch_.back().data());
      calls_[r].scratch_elements = most;
      calls_[r].memory.count = count;
      shared_bytes_ = (std::max)(shared_bytes_, cx::exec::shared_bytes(image));
    }
  }

  bool fits() const { return fits_; }
  cx::exec::device_call<T>& of(int rank) { return calls_[static_cast<std::size_t>(rank)]; }

  /// How it ends on each rank, as its first block says. `of_block(block)` is the block that the body gets; `absent` does not come.
  template <class Op, class Block>
  std::vector<cx::device::outcome> run(int threads, Op const& op, Block const& of_block, int absent = -1) {
    std::vector<cx::device::outcome> ends(calls_.size());
    group_.launch(
        blocks_, threads, shared_bytes_,
        [&](cx::device::cpu_block& given, int rank) {
          auto block = of_block(given);
          auto const how = cx::exec::run_plan(block, group_.world(rank), group_.wires(rank), of(rank), op);
          if (block.rank() == 0 && block.index() == 0) ends[static_cast<std::size_t>(rank)] = how;
        },
        absent);
    return ends;
  }
  template <class Op>
  std::vector<cx::device::outcome> run(int threads, Op const& op) {
    return run(threads, op, [](cx::device::cpu_block block) { return block; });
  }

 private:
  block_group<Protocol>& group_;
  std::vector<cx::exec::plan_image> images_;
  std::vector<zeroed> scratch_;
  std::vector<cx::exec::device_call<T>> calls_;
  std::size_t shared_bytes_ = 0;
  int blocks_;
  bool fits_ = true;
};

}  // namespace support
