// SPDX-License-Identifier: Apache-2.0
/// Collective calls on a stream of a device: what a call without a stream does, in the order of the stream and without the host.
///
/// They return when the call is on the stream. The device needs no host to carry it out, so a graph can record it, once the same call has
/// been made before; how it ended is said by `status()` of the communicator and by the next call.
#pragma once

#include "collectx/calls.hpp"
#include "collectx/pending.hpp"

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace collectx {
inline namespace v0 {

/// Tr has streams, and Stream is the type of one.
template <class Tr, class Stream>
concept puts_on_streams = DeviceTransport<Tr> && std::same_as<Stream, typename Tr::stream_type>;

/// A buffer of a device that all ranks know of, as long on every rank: it is what other Elements are, and where devices reach one another
/// calls on streams may read the others' where they lie; elsewhere, as on several hosts, they go through slots. Let the calls that use it
/// end before it goes, and let it go on all ranks before the memory is freed.
template <class T, Transport Tr>
class registered_buffer {
 public:
  registered_buffer(std::shared_ptr<detail::member<Tr>> whose, std::unique_ptr<typename Tr::registration> mine)
      : member_(std::move(whose)), mine_(std::move(mine)) {}

  T* data() const { return reinterpret_cast<T*>(mine_->own()); }
  std::size_t size() const { return mine_->bytes() / sizeof(T); }
  T* begin() const { return data(); }
  T* end() const { return data() + size(); }
  typename Tr::registration const& where() const { return *mine_; }

 private:
  std::shared_ptr<detail::member<Tr>> member_;  // first, since the registration is the transport's
  std::unique_ptr<typename Tr::registration> mine_;
};

namespace detail {

template <class B>
inline constexpr bool is_registered = false;
template <class T, Transport Tr>
inline constexpr bool is_registered<registered_buffer<T, Tr>> = true;

/// Takes the arguments of collective calls, to put them onto a stream. Buffers are memory that the device reaches.
template <Transport Tr, class Stream>
class stream_caller : public collective_calls<stream_caller<Tr, Stream>, status> {
 public:
  stream_caller(std::shared_ptr<member<Tr>> const& whose, int rank, int size, Stream stream)
      : member_(whose), rank_(rank), size_(size), stream_(stream) {}

  /// An all-reduce of registered buffers: a small one reads them where they lie, any other is a call like all.
  template <class T, class Op>
  status all_reduce_registered(registered_buffer<T, Tr> const& in, std::span<T> out, Op const& op) {
    static_assert(Reduction<Op, T>, "collectx: the operation cannot combine two values of this type: it needs T operator()(T, T) const");
    shape_of_call call;
    if (status s = call.fit(collectx::all_reduce{}, size_, rank_, view_const(in), out); !s) return s;
    if constexpr (prepares_alike<Op, T>) {
      if (member_->transport.reads_directly(out.size(), sizeof(T))) {
        return put([&](member<Tr>& mine) {
          return mine.transport.enqueue_direct(in.where(), out.data(), out.size(), reduction_name<Op>(), op, stream_, mine.patience({}));
        });
      }
    }
    return this->all_reduce(in, out, op);
  }

 private:
  friend class collective_calls<stream_caller<Tr, Stream>, status>;
  int rank() const { return rank_; }
  int size() const { return size_; }
  static constexpr bool dear_messages = messages_are_dear<Tr>();
  std::uint8_t* token() { return member_->transport.device_token(); }

  template <class T, class Op, class F>
  status perform(shape_of_call const& call, T const* in, T* out, Op const& op, F const& find, call_options const& options) {
    return put([&](member<Tr>& mine) -> status {
      auto* const plan = find(mine.plans);
      if (plan == nullptr) return mine.plans.refusal();
      exec::buffers<T> const memory{in, call.input_origin, out, call.output_origin, call.count, 0};
      return mine.transport.enqueue(plan->bound.content(), plan->record.what, plan->identity, memory, op, stream_, mine.patience(options));
    });
  }

  /// f(member) puts something onto the stream.
  template <class F>
  status put(F const& f) {
    member<Tr>& mine = *member_;
    turn const held(mine.at_work);
    if (!held.mine) return mine.busy_elsewhere();
    if (!mine.fit()) return mine.failure;
    if (status s = mine.transport.look(); !s) return mine.fail(s), s;
    status const s = f(mine);
    if (s.ok() || is_callers_fault(s)) return s;
    mine.fail(mine.transport.abort(s));  // the others are waiting for this rank on their devices
    return mine.failure;
  }

  static bool is_callers_fault(status const& s) {
    return s.code() == errc::invalid_argument || s.code() == errc::not_supported || s.code() == errc::invalid_configuration;
  }

  std::shared_ptr<member<Tr>> member_;
  int rank_, size_;
  Stream stream_;
};

/// The calls of a communicator: those without a stream.
template <class Self, Transport Tr>
class calls_of : public collective_calls<Self, status> {};

/// And with one, where there are streams: `all_reduce(in, out, op, stream)`, and behind it whatever else the call takes.
template <class Self, DeviceTransport Tr>
class calls_of<Self, Tr> : public collective_calls<Self, collectx::status> {
  using without_stream = collective_calls<Self, collectx::status>;
  using stream_type = typename Tr::stream_type;

 public:
  using without_stream::all_gather, without_stream::all_reduce, without_stream::barrier, without_stream::broadcast, without_stream::reduce,
      without_stream::reduce_scatter;

  template <Elements In, Elements Out, class Op, class... More>
  collectx::status all_reduce(In&& in, Out&& out, Op const& op, stream_type stream, More const&... more) {
    if constexpr (is_registered<std::remove_cvref_t<In>> && sizeof...(More) == 0)
      return self().on(stream).all_reduce_registered(in, view(out), op);
    else
      return self().on(stream).all_reduce(in, out, op, more...);
  }
  template <class T, class Op, class... More>
  collectx::status all_reduce(in_place<T> both, Op const& op, stream_type stream, More const&... more) {
    return self().on(stream).all_reduce(both, op, more...);
  }
  template <Elements In, Elements Out, class Op, class... More>
  collectx::status reduce_scatter(In&& in, Out&& out, Op const& op, stream_type stream, More const&... more) {
    return self().on(stream).reduce_scatter(in, out, op, more...);
  }
  template <class T, class Op, class... More>
  collectx::status reduce_scatter(in_place<T> both, Op const& op, stream_type stream, More const&... more) {
    return self().on(stream).reduce_scatter(both, op, more...);
  }
  template <Elements In, Elements Out, class... More>
  collectx::status all_gather(In&& in, Out&& out, stream_type stream, More const&... more) {
    return self().on(stream).all_gather(in, out, more...);
  }
  template <class T, class... More>
  collectx::status all_gather(in_place<T> both, stream_type stream, More const&... more) {
    return self().on(stream).all_gather(both, more...);
  }
  template <Elements Both, class... More>
  collectx::status broadcast(Both&& both, int root, stream_type stream, More const&... more) {
    return self().on(stream).broadcast(both, root, more...);
  }
  template <Elements In, Elements Out, class Op, class... More>
  collectx::status reduce(In&& in, Out&& out, Op const& op, int root, stream_type stream, More const&... more) {
    return self().on(stream).reduce(in, out, op, root, more...);
  }
  template <class T, class Op, class... More>
  collectx::status reduce(in_place<T> both, Op const& op, int root, stream_type stream, More const&... more) {
    return self().on(stream).reduce(both, op, root, more...);
  }
  template <class... More>
  collectx::status barrier(stream_type stream, More const&... more) {
    return self().on(stream).barrier(more...);
  }

  /// Makes a buffer on the device known to all ranks, which do the same with one as long. A failure is one on all ranks, and leaves the
  /// group as it was where nobody died. Costs a few exchanges between hosts, and a mapping per rank.
  template <Elements Both>
  auto register_buffer(Both&& both, call_options const& options = {}) {
    auto const mine = view(both);
    return enroll<typename decltype(mine)::element_type>(mine.data(), mine.size(), options);
  }
  /// A registered buffer in memory of the library's own, which is given out again when the buffer goes.
  template <class T>
  result<registered_buffer<T, Tr>> allocate(std::size_t count, call_options const& options = {}) {
    return enroll<T>(nullptr, count, options);
  }

  /// What the calls that have ended came to, those on streams too; ok as long as the group lives. Synchronise the stream before to know
  /// of those that were put onto it. From any thread.
  collectx::status status() {
    if (self().size() == 0) return no_member();
    return self().transport().look();
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }

  template <class T>
  result<registered_buffer<T, Tr>> enroll(T* at, std::size_t count, call_options const& options) {
    static_assert(std::is_trivially_copyable_v<T>, "collectx: elements travel as bytes, so their type must be trivially copyable");
    if (self().size() == 0) return no_member();
    if (count == 0)
      return collectx::status::failure(errc::invalid_argument, self().rank(), "a registered buffer needs at least one element");
    auto const& whose = self().member_;
    turn const held(whose->at_work);
    if (!held.mine) return whose->busy_elsewhere();
    if (!whose->fit()) return whose->failure;
    std::uint64_t const sequence = whose->sequence + 1;
    whose->sequence += 2;
    auto made = whose->transport.enroll(at, count * sizeof(T), sequence, whose->patience(options));
    if (!made) return made.error();
    return registered_buffer<T, Tr>(whose, std::move(*made));
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
