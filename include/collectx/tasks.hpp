// SPDX-License-Identifier: Apache-2.0
/// The calls that can be under way: a collective one, and messages between two ranks.
#pragma once

#include "collectx/arguments.hpp"
#include "collectx/exec/transfer.hpp"
#include "collectx/pending.hpp"

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace collectx {
inline namespace v0 {
namespace detail {

/// A collective call that waits for its turn.
template <Transport Tr, class T, class Op>
class collective_task final : public task<Tr> {
 public:
  using entry = typename plan_cache<Tr>::entry;

  collective_task(member<Tr>& who, entry& plan, exec::buffers<T> const& memory, std::uint64_t count_given, Op const& op)
      : member_(who), entry_(plan), memory_(memory), count_given_(count_given), op_(op) {}

  bool collective() const override { return true; }
  void enter() override {
    run_.reset();
    sequence_ = ++member_.sequence;
  }
  exec::progress advance() override {
    if (!run_) {
      memory_.tag = entry_.stamp(sequence_, count_given_);
      run_.emplace(entry_.bound, member_.transport, memory_, op_);
      if (!run_->fits()) {
        this->end_ = entry_.too_large(member_.transport, sizeof(T));
        run_.reset();
        return exec::progress::done;
      }
      member_.transport.begin(entry_.record);
    }
    exec::progress const p = run_->advance();
    if (p != exec::progress::done) return p;
    run_.reset();
    member_.transport.end();
    return p;
  }
  int peer() const override { return run_ ? run_->peer() : -1; }
  status late(Tr& transport, nanoseconds waited) const override {
    return exec::detail::call_is_late(*run_, transport, entry_.record, waited);
  }
  status conflict(Tr& transport) const override { return transport.conflict(run_->peer()); }

 private:
  member<Tr>& member_;
  entry& entry_;
  exec::buffers<T> memory_;
  std::uint64_t count_given_;
  Op op_;
  std::uint64_t sequence_ = 0;
  std::optional<exec::run<Tr, T, Op>> run_;
};

/// What a send, a receive, or both are about. One without an element type: no message in that direction.
struct letters {
  exec::letter out;
  void const* from = nullptr;
  exec::letter in;
  void* to = nullptr;

  template <class T>
  static letters sent(std::span<T const> out, int to) {
    static_assert(std::is_trivially_copyable_v<T>, "collectx: elements travel as bytes, so their type must be trivially copyable");
    return {{to, out.size_bytes(), exec::element_type::of<T>()}, out.data(), {}, nullptr};
  }
  template <class T>
  static letters received(std::span<T> in, int from) {
    static_assert(std::is_trivially_copyable_v<T>, "collectx: elements travel as bytes, so their type must be trivially copyable");
    return {{}, nullptr, {from, in.size_bytes(), exec::element_type::of<T>()}, in.data()};
  }

  bool sends() const { return out.element != exec::element_type{}; }
  bool receives() const { return in.element != exec::element_type{}; }
  bool to_self(int rank) const { return out.peer == rank; }

  status fit(int rank, int size) const {
    if (size == 0) return no_member();
    for (int peer : {sends() ? out.peer : 0, receives() ? in.peer : 0})
      if (peer < 0 || peer >= size) {
        return status::failure(errc::invalid_argument, rank, "rank %d exchanges messages with rank %d, which is not in a group of %d", rank,
                               peer, size);
      }
    bool const to_me = out.peer == rank, from_me = in.peer == rank;
    if (to_me != from_me) {
      return status::failure(errc::invalid_argument, rank, "rank %d %s itself, but does not %s itself: only send_recv does both at once",
                             rank, to_me ? "sends to" : "receives from", to_me ? "receive from" : "send to");
    }
    if (!sends() || !receives()) return {};
    if (to_me && (out.bytes != in.bytes || out.element != in.element)) {
      return status::failure(errc::invalid_argument, rank, "rank %d sends itself %zu bytes and receives %zu, or another type", rank,
                             out.bytes, in.bytes);
    }
    std::uintptr_t const o = reinterpret_cast<std::uintptr_t>(from), i = reinterpret_cast<std::uintptr_t>(to);
    if (out.bytes == 0 || in.bytes == 0 || o + out.bytes <= i || i + in.bytes <= o || (to_me && o == i)) return {};
    return status::failure(errc::invalid_argument, rank, "send_recv on rank %d: what is sent and what is received overlap", rank);
  }
};

/// A send, a receive, or both.
template <Transport Tr>
class transfer_task final : public task<Tr> {
 public:
  transfer_task(member<Tr>& who, letters const& what) : member_(who), out_(what.out), in_(what.in), from_(what.from), to_(what.to) {}

  bool collective() const override { return false; }
  void enter() override {
    sending_.reset();
    receiving_.reset();
    sent_ = out_.peer < 0 || to_self();
    received_ = in_.peer < 0 || to_self();
    if (!sent_) out_.number = ++member_.mail_of(out_.peer).sent;
    if (!received_) in_.number = ++member_.mail_of(in_.peer).received;
    if (to_self() && out_.bytes != 0) std::memmove(to_, from_, out_.bytes);
  }
  exec::progress advance() override {
    bool moved = false;
    if (!sent_ && member_.mail_of(out_.peer).sent_ended + 1 == out_.number) {
      if (!sending_) sending_.emplace(member_.transport, out_, from_);
      exec::progress const p = sending_->advance();
      moved = p != exec::progress::stuck;
      sent_ = p == exec::progress::done;
      if (sent_) member_.mail_of(out_.peer).sent_ended = out_.number;
    }
    if (!received_ && member_.mail_of(in_.peer).received_ended + 1 == in_.number) {
      if (!receiving_) receiving_.emplace(member_.transport, in_, to_);
      exec::progress const p = receiving_->advance();
      if (p == exec::progress::conflict) return p;
      moved = moved || p != exec::progress::stuck;
      received_ = p == exec::progress::done;
      if (received_) member_.mail_of(in_.peer).received_ended = in_.number;
    }
    return sent_ && received_ ? exec::progress::done : moved ? exec::progress::moved : exec::progress::stuck;
  }
  int peer() const override { return received_ ? out_.peer : in_.peer; }
  status late(Tr& transport, nanoseconds waited) const override {
    if (!received_ && receiving_) return receiving_->late(transport, waited);
    if (!sent_ && sending_) return sending_->late(transport, waited);
    return exec::detail::letter_is_late(transport, received_ ? out_ : in_, received_, 0, waited);
  }
  status conflict(Tr& transport) const override { return receiving_->conflict(transport); }

 private:
  bool to_self() const { return out_.peer == member_.transport.rank(); }

  member<Tr>& member_;
  exec::letter out_, in_;
  void const* from_;
  void* to_;
  bool sent_ = false, received_ = false;
  std::optional<exec::sending<Tr>> sending_;
  std::optional<exec::receiving<Tr>> receiving_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
