// SPDX-License-Identifier: Apache-2.0
/// What a rank keeps for its device: windows, channel ends, reports, the images of its plans, and how a call gets onto a stream.
#pragma once

#include "collectx/device/slots.cuh"
#include "collectx/exec/direct_device.cuh"
#include "collectx/exec/run_device.cuh"
#include "collectx/plan_cache.hpp"
#include "collectx/transport/abort_watch.hpp"
#include "collectx/transport/device_registry.cuh"
#include "collectx/transport/device_window.cuh"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// @tparam Place  what a rank's other threads know of its group: verdict(), abort(status), lost(rank), has_left(rank), from any thread
template <class Place>
class device_side {
 public:
  using word = std::uint64_t;

  device_side(int rank, int size, int device, device::layout const& wanted, std::size_t idle_mappings) noexcept
      : rank_(rank), size_(size), device_(device), layout_(wanted), registry_(idle_mappings) {}
  device_side(device_side const&) = delete;
  device_side& operator=(device_side const&) = delete;
  ~device_side() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
    if (errand_ != nullptr) (void)cudaStreamDestroy(errand_);
  }

  /// Everything that calls need later; all ranks of the group do this together. found(layout) -> result<Place>. A failure has ended the
  /// group.
  template <Transport Wire, class Found>
  status open(Wire& wire, Found const& found, bool stage, std::size_t direct_bytes, nanoseconds patience) {
    result<device_context> context = device_context::of(device_, rank_);
    if (!context) return wire.abort(context.error());
    context_ = *context;
    device_guard here(context_);
    status s = here.held();
    if (s.ok()) s = device_status(cudaStreamCreateWithFlags(&errand_, cudaStreamNonBlocking), rank_, "a stream of the library's own");
    if (!s) return wire.abort(s);
    result<device_meeting> meeting = device_meeting::open(wire, device_, layout_, direct_bytes, patience);
    if (!meeting) return meeting.error();
    meeting_ = std::move(*meeting);
    layout_ = meeting_.agreed();
    direct_bytes_ = meeting_.direct_bytes();
    images_ = image_store(rank_, errand_);
    result<device_windows> windows =
        device_windows::open(wire, meeting_, context_.driver, device_, layout_.window_bytes() + scratch_bytes(), stage, errand_, patience);
    if (!windows) return windows.error();
    windows_ = std::move(*windows);
    result<Place> place = found(layout_);
    if (!place) return place.error();
    place_.emplace(std::move(*place));
    s = furnish();
    if (s.ok()) s = here.give_back();
    if (!s) return wire.abort(s);
    if (s = meeting_.all_mapped(wire, {}, 0, patience); !s) return s;
    watch_.emplace(*this);
    return {};
  }

  /// Of its device; none before it is open.
  device_context const& context() const noexcept { return context_; }
  bool staged() const noexcept { return windows_.staged(); }
  int device() const noexcept { return device_; }
  std::size_t mappings() noexcept { return registry_.mappings(); }

  /// See device_registry. Calls `sequence` and the next of the group.
  template <Transport Wire>
  result<std::unique_ptr<device_registry::registration>> enroll(Wire& wire, std::byte* at, std::size_t bytes, word sequence,
                                                                nanoseconds patience) {
    device_guard const here(context_);
    if (!here.held()) return wire.abort(here.held());
    return registry_.enroll(wire, meeting_, context_, windows_.reach(), device_, errand_, at, bytes, sequence, patience);
  }
  std::uint8_t* token() const noexcept { return token_; }
  device::layout const& layout() const noexcept { return layout_; }
  Place const& place() const noexcept { return *place_; }

  /// Puts one call of a plan onto `stream`. @pre no other call of this rank does so
  template <class T, class Op>
  status enqueue(exec::plan const& plan, char const* what, word identity, exec::buffers<T> const& memory, Op const& op, cudaStream_t stream,
                 nanoseconds timeout) {
    device_guard here(context_);
    status s = here.held();
    if (s.ok()) s = reachable(memory.input, what, rank_);
    if (s.ok()) s = reachable(memory.output, what, rank_);
    if (!s) return s;
    std::size_t const bytes = memory.count * static_cast<std::size_t>(plan.form.blocks) * sizeof(T);
    s = bytes <= low_latency_up_to && !goes_elsewhere()
            ? enqueue_by<device::low_latency<>>(quick_, plan, what, identity, memory, op, stream, timeout, bytes)
            : enqueue_by<device::flagged<>>(plain_, plan, what, identity, memory, op, stream, timeout, bytes);
    return s.ok() ? here.give_back() : s;
  }

  /// Whether an all-reduce of so many elements reads others' registered buffers where they lie. The same on all ranks.
  bool reads_directly(std::size_t count, std::size_t element_bytes) const noexcept {
    std::size_t const scratch = exec::two_shot_scratch(count, element_bytes, size_, grid_for(count * element_bytes)) * element_bytes;
    return size_ > 1 && windows_.reach().ok() && count * element_bytes <= direct_bytes_ && scratch <= scratch_bytes();
  }
  /// Puts an all-reduce of registered buffers onto `stream`. @pre reads_directly(count, sizeof(T)); `output` is the buffer itself on all
  /// ranks or on none
  template <class T, class Op>
  status enqueue_direct(device_registry::registration const& in, T* output, std::size_t count, char const* operation, Op const& op,
                        cudaStream_t stream, nanoseconds timeout) {
    device_guard here(context_);
    status s = here.held();
    if (s.ok()) s = reachable(output, "all_reduce", rank_);
    cudaStreamCaptureStatus capture{};
    if (s.ok()) s = device_status(cudaStreamIsCapturing(stream, &capture), rank_, "whether a stream is captured");
    if (!s) return s;
    bool const captured = capture != cudaStreamCaptureStatusNone;
    std::size_t const bytes = count * sizeof(T);
    bool const in_place = reinterpret_cast<std::byte*>(output) == in.own();
    bool const at_once = !in_place && bytes * static_cast<std::size_t>(size_ - 1) <= one_shot_up_to;
    exec::direct_call<T> call;
    call.inputs = reinterpret_cast<T const* const*>(in.addresses());
    call.output = output;
    call.scratch = reinterpret_cast<T* const*>(scratch_table_);
    call.count = count;
    char name[48], type[16];
    name_type<T>(type, sizeof type);
    std::snprintf(name, sizeof name, "%s %s %.18s", at_once ? "one_shot" : "two_shot", type, operation);
    call.identity = hash_of(name, 0xcbf29ce484222325u);
    device::world group = group_;
    group.timeout = timeout;
    s = launch(at_once ? exec::one_shot_kernel<T, Op> : exec::two_shot_kernel<T, Op>, grid_for(bytes), exec::direct_shared_bytes(size_),
               stream, captured, group, call, op);
    return s.ok() ? here.give_back() : s;
  }

  /// What ends the group, from any thread.
  status verdict() noexcept { return place_->verdict(); }
  bool lost(int rank) noexcept { return place_->lost(rank); }
  status end(status const& why) noexcept { return place_->abort(why); }

  /// What the calls on the device that have ended came to. From any thread.
  status outcome() noexcept {
    if (status s = place_->verdict(); !s) return s;
    for (int b = 0; b < layout_.blocks; ++b) {
      device::report const& r = reports_.host()[b];
      if (__atomic_load_n(&r.call, __ATOMIC_ACQUIRE) != 0)
        return place_->abort(device::describe(with_end_of_waits(r), rank_, "a call on a stream"));
    }
    return {};
  }
  /// The same, and what has become of the others. For the watch alone.
  status look() noexcept {
    if (status s = outcome(); !s) return s;
    return look_after_peers();
  }
  /// Ends what waits on this device: the abort word is in its window.
  void raise(status const& why) noexcept {
    word const said = device::verdict{device::outcome::aborted, rank_, why.rank()}.word();
    std::byte* const at = windows_.own() + layout_.abort_word();
    *errand_word_.host() = said;
    device_guard const here(context_);
    // Where this fails as well, the device's own deadline is left.
    (void)cudaMemcpyAsync(at, errand_word_.host(), sizeof(word), cudaMemcpyDefault, errand_);
  }

  /// Waits for the calls that are on their way, and gives back what belongs to others.
  void retire() noexcept {
    device_guard const here(context_);
    if (busy_) (void)(unmarked_ ? cudaDeviceSynchronize() : cudaEventSynchronize(event_));
    watch_.reset();
    if (errand_ != nullptr) (void)cudaStreamSynchronize(errand_);
    windows_.unmap();
  }
  /// Until nobody has this rank's windows mapped any more, or for a second: a rank that keeps its communicator may still have them.
  void linger() noexcept {
    nanoseconds const deadline = monotonic_now() + 1'000'000'000;
    for (int r = 0; r < size_; ++r)
      while (r != rank_ && !place_->lost(r) && monotonic_now() < deadline) nap(200'000);
  }

 private:
  static constexpr std::size_t low_latency_up_to = std::size_t{64} << 10;  // bytes of a call
  static constexpr std::size_t one_shot_up_to = std::size_t{256} << 10;    // bytes that one rank reads of all others
  static constexpr std::size_t bytes_per_block = std::size_t{32} << 10;

  static constexpr bool may_go_elsewhere = requires(Place & place) { place.relay(); };
  bool goes_elsewhere() const noexcept {
    if constexpr (may_go_elsewhere) return place_->goes_elsewhere();
    return false;
  }
  bool relays(int rank) noexcept {
    if constexpr (may_go_elsewhere) return place_->relay().relays(rank);
    return false;
  }
  /// Kernels follow waits to the edge of their host.
  device::report with_end_of_waits(device::report r) {
    if constexpr (may_go_elsewhere)
      if (r.verdict.culprit >= 0 && relays(r.verdict.culprit)) r.verdict.culprit = place_->relay().blame(r.verdict.culprit);
    return r;
  }

  /// Behind each window: what two_shot leaves there for the others. A share of the vector, and what rounding adds.
  std::size_t scratch_bytes() const noexcept {
    return direct_bytes_ == 0 ? 0 : direct_bytes_ / static_cast<std::size_t>(size_) + static_cast<std::size_t>(layout_.blocks) * 256;
  }

  /// Private memory of the device: the windows' addresses, the counters of calls, and the ends of all channels.
  status furnish() {
    std::byte* elsewhere = nullptr;
    if constexpr (may_go_elsewhere) elsewhere = place_->window();
    std::vector<std::byte*> const windows = windows_.addresses(rank_, size_, elsewhere);
    std::size_t const channels = layout_.channels(), blocks = static_cast<std::size_t>(layout_.blocks);
    std::size_t end = 0;
    auto const reserve = [&end](std::size_t bytes) { return std::exchange(end, end + (bytes + 127) / 128 * 128); };
    std::size_t const windows_at = reserve(windows.size() * sizeof(std::byte*)), scratch_at = reserve(windows.size() * sizeof(std::byte*)),
                      calls_at = reserve(blocks * sizeof(word)), token_at = reserve(1);
    std::size_t const plain_senders = reserve(channels * sizeof(*plain_.senders)),
                      plain_receivers = reserve(channels * sizeof(*plain_.receivers));
    std::size_t const quick_senders = reserve(channels * sizeof(*quick_.senders)),
                      quick_receivers = reserve(channels * sizeof(*quick_.receivers));
    std::vector<std::byte> image(end);
    std::size_t const staging = reserve(device::staging_bytes<device::low_latency<>>(layout_));
    result<device_allocation> memory = device_allocation::of(end, rank_);
    if (!memory) return memory.error();
    private_ = std::move(*memory);
    std::byte* const there = private_.at();
    auto const wires = [&](auto of, std::byte* base, std::size_t senders, std::size_t receivers) {
      of.senders = reinterpret_cast<decltype(of.senders)>(base + senders);
      of.receivers = reinterpret_cast<decltype(of.receivers)>(base + receivers);
      return of;
    };
    std::vector<std::byte*> scratch;
    for (std::byte* window : windows) scratch.push_back(window == elsewhere ? nullptr : window + layout_.window_bytes());
    std::memcpy(image.data() + windows_at, windows.data(), windows.size() * sizeof(std::byte*));
    std::memcpy(image.data() + scratch_at, scratch.data(), scratch.size() * sizeof(std::byte*));
    device::make_wires<device::flagged<>>(layout_, windows.data(), rank_, nullptr,
                                          wires(plain_, image.data(), plain_senders, plain_receivers));
    device::make_wires<device::low_latency<>>(layout_, windows.data(), rank_, there + staging,
                                              wires(quick_, image.data(), quick_senders, quick_receivers));
    if constexpr (may_go_elsewhere) place_->connect(layout_, wires(plain_, image.data(), plain_senders, plain_receivers));
    plain_ = wires(plain_, there, plain_senders, plain_receivers);
    quick_ = wires(quick_, there, quick_senders, quick_receivers);
    status s = copy_now(there, image.data(), image.size(), errand_, rank_);
    if (!s) return s;
    result<pinned_array<device::report>> reports = pinned_array<device::report>::of(blocks, rank_);
    if (!reports) return reports.error();
    reports_ = std::move(*reports);
    result<pinned_array<word>> errand_word = pinned_array<word>::of(1, rank_);
    if (!errand_word) return errand_word.error();
    errand_word_ = std::move(*errand_word);
    s = device_status(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), rank_, "an event of the library's own");
    scratch_table_ = there + scratch_at;
    token_ = reinterpret_cast<std::uint8_t*>(there + token_at);
    group_ = {layout_, rank_, reinterpret_cast<std::byte* const*>(there + windows_at), reinterpret_cast<word*>(there + calls_at),
              reports_.device()};
    if constexpr (may_go_elsewhere) group_.told = place_->told(layout_);
    return s;
  }

  /// A dead rank ends the group at once; one that has left in good order does so for those who still wait for it a while later. So does one
  /// of another host: behind a cut cable there are more, and the network names them all when it knows them.
  status look_after_peers() noexcept {
    nanoseconds const now = monotonic_now();
    for (int r = 0; r < size_; ++r) {
      if (r == rank_ || !place_->lost(r)) continue;
      bool const left = place_->has_left(r), far = relays(r);
      if (first_lost_ == 0) first_lost_ = now;
      if ((left || far) && now - first_lost_ < grace) continue;
      char const* const how = left ? "has left" : far ? "is dead or unreachable" : "is dead";
      return place_->abort(status::failure(errc::peer_lost, r, "rank %d %s, and the calls of its group on streams end", r, how));
    }
    return {};
  }
  static constexpr nanoseconds grace = 2'000'000'000;
  /// Whether a call may still be under way: the last one is, or graphs have some, which come without this rank's knowing.
  bool may_wait() const noexcept {
    if (recorded_.load(std::memory_order_relaxed)) return true;
    device_guard const here(context_);
    return busy_.load(std::memory_order_acquire) && cudaEventQuery(event_) == cudaErrorNotReady;
  }

  template <class Protocol, class T, class Op>
  status enqueue_by(device::wires<Protocol> const& wires, exec::plan const& plan, char const* what, word identity,
                    exec::buffers<T> const& memory, Op const& op, cudaStream_t stream, nanoseconds timeout, std::size_t bytes) {
    cudaStreamCaptureStatus capture{};
    if (status s = device_status(cudaStreamIsCapturing(stream, &capture), rank_, "whether a stream is captured"); !s) return s;
    bool const captured = capture != cudaStreamCaptureStatusNone;
    result<device_image*> found = images_.find(plan, what, captured);
    if (!found) return found.error();
    device_image& image = **found;
    if (image.lanes > layout_.lanes) {  // the host's half may have more
      return status::failure(errc::invalid_configuration, rank_, "%.40s needs %d lanes, and there are %d between devices: raise lanes",
                             what, image.lanes, layout_.lanes);
    }
    exec::image_view const view = image.host.view();
    int const grid = grid_for(bytes);
    bool fits = true;
    std::size_t scratch = 0;
    for (int block = 0; block < grid; ++block) {
      exec::geometry const g = exec::device_geometry<Protocol>(view, layout_, memory.count, sizeof(T), grid, block);
      fits = fits && g.fits();
      scratch = greater(scratch, g.scratch_elements());
    }
    if (!fits) {
      return status::failure(errc::invalid_configuration, rank_,
                             "slots of %zu bytes on the device cannot hold what %.40s sends at once: raise "
                             "the bytes of slots and low_latency",
                             Protocol::shape(layout_).bytes, what);
    }
    exec::device_call<T> call;
    call.image = reinterpret_cast<std::int32_t const*>(image.memory.at());
    call.memory = memory;
    call.identity = identity;
    if (plan.uses_scratch) {
      call.scratch_elements = scratch;
      result<std::byte*> memory = images_.scratch(image, scratch * sizeof(T) * static_cast<std::size_t>(grid), what, captured);
      if (!memory) return memory.error();
      call.scratch = reinterpret_cast<T*>(*memory);
    }
    device::world group = group_;
    group.timeout = timeout;
    return launch(exec::plan_kernel<Protocol, T, Op>, grid, exec::shared_bytes(view), stream, captured, group, wires, call, op);
  }

  /// The same on all ranks, since all know the same of the call.
  int grid_for(std::size_t bytes) const noexcept {
    std::size_t const wanted = (bytes + bytes_per_block - 1) / bytes_per_block;
    return wanted < 1 ? 1 : static_cast<int>(lesser(wanted, static_cast<std::size_t>(layout_.blocks)));
  }

  template <class... A>
  status launch(void (*kernel)(A...), int grid, std::size_t shared, cudaStream_t stream, bool captured,
                std::remove_const_t<A>... arguments) {
    void const* const stub = reinterpret_cast<void const*>(kernel);
    if (status s = kernels_.fit(stub, shared, layout_.blocks, device_, rank_); !s) return s;
    // Calls on another stream than the last one's use the same channels. A graph orders what it holds itself.
    if (!captured && busy_ && stream != last_stream_) {
      if (status s = device_status(cudaStreamWaitEvent(stream, event_, 0), rank_, "waiting for the call before on another stream"); !s)
        return s;
    }
    void* list[] = {&arguments...};
    dim3 const blocks(static_cast<unsigned>(grid)), threads(device::most_threads);
    if (status s = device_status(cudaLaunchKernel(stub, blocks, threads, list, shared, stream), rank_, "launching a call"); !s) return s;
    if (captured) {
      recorded_.store(true, std::memory_order_relaxed);
      return {};
    }
    last_stream_ = stream;
    status const s = device_status(cudaEventRecord(event_, stream), rank_, "marking the end of a call");
    unmarked_ = !s.ok();
    busy_.store(true, std::memory_order_release);
    return s;
  }

  std::optional<Place> place_;  // for the watch and for whoever asks; never for a call's own waits
  int rank_, size_, device_;
  device::layout layout_;
  device_context context_;
  device_meeting meeting_;
  device_windows windows_;
  device_registry registry_;
  device_allocation private_;
  pinned_array<device::report> reports_;
  pinned_array<word> errand_word_;
  cudaStream_t errand_ = nullptr;
  cudaEvent_t event_ = nullptr;
  device::wires<device::flagged<>> plain_;
  device::wires<device::low_latency<>> quick_;
  device::world group_;
  std::uint8_t* token_ = nullptr;
  std::byte* scratch_table_ = nullptr;
  std::size_t direct_bytes_ = 0;
  image_store images_;
  resident_kernels kernels_;
  cudaStream_t last_stream_ = nullptr;
  std::atomic<bool> busy_{false}, recorded_{false};  // a call has been launched; some were captured
  bool unmarked_ = false;
  nanoseconds first_lost_ = 0;
  std::optional<abort_watch<device_side>> watch_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
