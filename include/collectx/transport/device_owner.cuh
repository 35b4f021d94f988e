// SPDX-License-Identifier: Apache-2.0
/// What ranks that own a device do by it, whichever way they reach one another on the host.
#pragma once

#include "collectx/transport/device_meeting.cuh"
#include "collectx/transport/device_side.cuh"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// The part of a DeviceTransport that all have alike; `Self`, which derives from it, says what ends a group.
template <class Self, Transport Host, class Place>
class device_owner : public Host {
 public:
  using stream_type = cudaStream_t;
  using registration = device_registry::registration;

  /// The fewest of a channel of the host and one of the device: a plan must not wait for ever on either.
  int slots() const noexcept {
    device::layout const& l = side_->layout();
    return lesser(Host::slots(), lesser(l.slots.slots, l.low_latency.slots));
  }
  device_side<Place>& side() noexcept { return *side_; }

  /// See DeviceTransport.
  template <class T, class Op>
  status enqueue(exec::plan const& plan, char const* what, std::uint64_t identity, exec::buffers<T> const& memory, Op const& op,
                 stream_type stream, nanoseconds timeout) noexcept {
    return within_memory(this->rank(), [&] { return side_->enqueue(plan, what, identity, memory, op, stream, timeout); });
  }
  result<std::unique_ptr<registration>> enroll(void* at, std::size_t bytes, std::uint64_t sequence, nanoseconds timeout) noexcept {
    auto made = within_memory(this->rank(), [&] { return side_->enroll(self(), static_cast<std::byte*>(at), bytes, sequence, timeout); });
    if (!made && made.error().code() == errc::out_of_memory) (void)self().abort(made.error());  // the others wait for this rank
    return made;
  }
  bool reads_directly(std::size_t count, std::size_t element_bytes) const noexcept { return side_->reads_directly(count, element_bytes); }
  template <class T, class Op>
  status enqueue_direct(registration const& in, T* output, std::size_t count, char const* operation, Op const& op, stream_type stream,
                        nanoseconds timeout) noexcept {
    return within_memory(this->rank(), [&] { return side_->enqueue_direct(in, output, count, operation, op, stream, timeout); });
  }
  std::uint8_t* device_token() noexcept { return side_->token(); }

 protected:
  explicit device_owner(Host&& host) noexcept : Host(std::move(host)) {}

  /// Opens the device that `options` name, which then name it by its number: groups out of this one keep it. All ranks do this together;
  /// found(layout, device) -> result<Place>. A failure has ended the group.
  template <class Options, class Found>
  status own(Options& options, std::size_t direct_bytes, nanoseconds patience, Found const& found) noexcept {
    result<device_wish> wish = device_wish::of(self(), options);
    if (!wish) return wish.error();
    options.device = wish->device;
    std::unique_ptr<device_side<Place>> made;
    status s = within_memory(this->rank(), [&] {
      made = std::make_unique<device_side<Place>>(this->rank(), this->size(), wish->device, wish->layout, options.idle_mappings);
      auto const place = [&](device::layout const& l) { return found(l, wish->device); };
      return made->open(self(), place, options.stage, direct_bytes, patience);
    });
    if (s.code() == errc::out_of_memory) s = self().abort(s);
    if (s.ok())
      side_ = std::move(made);
    else
      discard(std::move(made));
    return s;
  }
  /// Gives back what is on the device there, whichever the thread uses.
  static void discard(std::unique_ptr<device_side<Place>> side) noexcept {
    if (side == nullptr || side->context().context == nullptr) return;
    device_context const whose = side->context();
    device_guard const here(whose);
    side.reset();
  }

  std::unique_ptr<device_side<Place>> side_;

 private:
  Self& self() noexcept { return static_cast<Self&>(*this); }
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
