// SPDX-License-Identifier: Apache-2.0
/// A transport whose channels are exchanged for faulty ones, to see whether a harness notices.
#pragma once

#include <collectx/transport/hostile.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace support {

namespace cx = collectx;

class sender_end {
 public:
  virtual ~sender_end() = default;
  virtual std::byte* try_acquire(std::size_t bytes) = 0;
  virtual void commit(std::size_t bytes, std::uint32_t tag) = 0;
};
class receiver_end {
 public:
  virtual ~receiver_end() = default;
  virtual cx::message try_peek() = 0;
  virtual void release() = 0;
};

/// Any real channel end.
template <class Sender>
class honest_sender : public sender_end {
 public:
  explicit honest_sender(Sender const& sender) : sender_(sender) {}
  std::byte* try_acquire(std::size_t bytes) override { return sender_.try_acquire(bytes); }
  void commit(std::size_t bytes, std::uint32_t tag) override { sender_.commit(bytes, tag); }

 protected:
  Sender sender_;
};
template <class Receiver>
class honest_receiver : public receiver_end {
 public:
  explicit honest_receiver(Receiver const& receiver) : receiver_(receiver) {}
  cx::message try_peek() override { return receiver_.try_peek(); }
  void release() override {
    receiver_.release();
    if constexpr (requires { receiver_.flush(); }) receiver_.flush();
  }

 protected:
  Receiver receiver_;
};

/// Gives the slot back as soon as it has seen it, and reads it afterwards.
class releases_at_peek final : public honest_receiver<cx::hostile_receiver> {
 public:
  using honest_receiver::honest_receiver;
  cx::message try_peek() override {
    if (seen_.data != nullptr) return seen_;
    seen_ = receiver_.try_peek();
    if (seen_.data != nullptr) receiver_.release();
    return seen_;
  }
  void release() override { seen_ = {}; }

 private:
  cx::message seen_;
};

/// Publishes the message first and fills it a moment later.
class commits_before_filling final : public honest_sender<cx::ring_sender<>> {
 public:
  using honest_sender::honest_sender;
  std::byte* try_acquire(std::size_t bytes) override {
    fill();
    std::byte* const slot = sender_.try_acquire(bytes);
    if (slot == nullptr) return nullptr;
    slot_ = slot;
    aside_.resize(bytes);
    return aside_.data();
  }
  void commit(std::size_t bytes, std::uint32_t tag) override {
    sender_.commit(bytes, tag);
    due_ = true;
    if (++commits_ % 2 == 0) fill();
  }

 private:
  void fill() {
    if (due_) std::memcpy(slot_, aside_.data(), aside_.size());
    due_ = false;
  }
  std::byte* slot_ = nullptr;
  std::vector<std::byte> aside_;
  bool due_ = false;
  int commits_ = 0;
};

/// A ring's receiving end that gives back one slot fewer than it has taken.
class loses_a_credit final : public receiver_end {
 public:
  explicit loses_a_credit(cx::slot_ring const& ring) : ring_(ring), honest_(ring) {}
  cx::message try_peek() override { return honest_.try_peek(); }
  void release() override {
    honest_.release();
    honest_.flush();
    cx::host_atomics::store_release(*ring_.released, taken_++);
  }

 private:
  cx::slot_ring ring_;
  cx::ring_receiver<> honest_;
  std::uint64_t taken_ = 0;
};

/// A ring's sending end that asks `>` where it has to ask `>=`: it writes into the slot that the receiver has not given back.
class takes_one_slot_too_many final : public sender_end {
 public:
  explicit takes_one_slot_too_many(cx::slot_ring const& ring) : ring_(ring) {}
  std::byte* try_acquire(std::size_t) override {
    std::uint64_t const slots = static_cast<std::uint64_t>(ring_.slots);
    if (sent_ - cx::host_atomics::load_acquire(*ring_.released) > slots) return nullptr;
    return ring_.data + index() * cx::slot_ring::stride(ring_.slot_bytes);
  }
  void commit(std::size_t bytes, std::uint32_t tag) override {
    cx::slot_line& line = ring_.lines[index()];
    if (bytes <= cx::slot_line::inline_bytes)
      std::memcpy(line.payload, ring_.data + index() * cx::slot_ring::stride(ring_.slot_bytes), bytes);
    line.bytes = static_cast<std::uint32_t>(bytes);
    line.tag = tag;
    cx::host_atomics::store_release(line.sequence, ++sent_);
  }

 private:
  std::size_t index() const { return static_cast<std::size_t>(sent_) % static_cast<std::size_t>(ring_.slots); }
  cx::slot_ring ring_;
  std::uint64_t sent_ = 0;
};

enum class fault { none, none_on_plain_rings, released_at_peek, committed_before_filled, credit_lost, one_slot_too_many };

struct any_sender {
  std::unique_ptr<sender_end> end;
  std::byte* try_acquire(std::size_t bytes) { return end->try_acquire(bytes); }
  void commit(std::size_t bytes, std::uint32_t tag) { end->commit(bytes, tag); }
};
struct any_receiver {
  std::unique_ptr<receiver_end> end;
  cx::message try_peek() { return end->try_peek(); }
  void release() { end->release(); }
};

/// A hostile transport with other channels. Models Transport.
class faulty_transport {
 public:
  explicit faulty_transport(cx::hostile_transport base) : base_(base) {
    senders_.resize(static_cast<std::size_t>(size() * (lanes() + 1)));
    receivers_.resize(senders_.size());
  }

  int rank() const { return base_.rank(); }
  int size() const { return base_.size(); }
  int lanes() const { return base_.lanes(); }
  int slots() const { return base_.slots(); }
  std::size_t slot_bytes() const { return base_.slot_bytes(); }
  any_sender& channel_to(int peer, int lane) { return senders_[static_cast<std::size_t>(peer * (lanes() + 1) + lane)]; }
  any_receiver& channel_from(int peer, int lane) { return receivers_[static_cast<std::size_t>(peer * (lanes() + 1) + lane)]; }
  cx::nanoseconds now() const { return base_.now(); }
  void progress() { base_.progress(); }
  cx::status idle(int polls, int peer) { return base_.idle(polls, peer); }
  cx::status abort(cx::status const& why) { return base_.abort(why); }
  cx::status verdict() { return base_.verdict(); }
  int blame(int peer) { return base_.blame(peer); }
  bool lost(int rank) { return base_.lost(rank); }
  cx::status post(char const* key, cx::rendezvous_value const& value) { return base_.post(key, value); }
  bool posted(int rank, char const* key, cx::rendezvous_value& value) { return base_.posted(rank, key, value); }
  void withdraw(char const* key) { base_.withdraw(key); }
  cx::hostile_options options() const { return base_.options(); }
  void absent(char* text, std::size_t capacity) { base_.absent(text, capacity); }
  cx::status conflict(int peer) { return base_.conflict(peer); }
  void begin(cx::call_record const& record) { base_.begin(record); }
  void end() { base_.end(); }
  cx::hostile_transport& base() { return base_; }

 private:
  cx::hostile_transport base_;
  std::vector<any_sender> senders_;
  std::vector<any_receiver> receivers_;
};
static_assert(cx::Transport<faulty_transport>);

/// Transports with one fault in every channel. Where the fault is one of the ring, the channels are plain rings in `memory`.
class faulty_group {
 public:
  faulty_group(cx::hostile_group& group, fault planted, cx::transport_options const& options)
      : layout_(*cx::detail::lay_out(group.size(), options)), memory_(*cx::detail::mapping::anonymous(layout_.bytes)) {
    for (int r = 0; r < group.size(); ++r) transports.push_back(std::make_unique<faulty_transport>(*group.transport(r)));
    for (auto& t : transports)
      for (int peer = 0; peer < group.size(); ++peer)
        for (int lane = 0; lane <= options.lanes && peer != t->rank(); ++lane) connect(*t, peer, lane, planted);
  }

  std::vector<std::unique_ptr<faulty_transport>> transports;

 private:
  void connect(faulty_transport& t, int peer, int lane, fault planted) {
    cx::slot_ring const out = layout_.ring(memory_.address(), t.rank(), peer, lane),
                        in = layout_.ring(memory_.address(), peer, t.rank(), lane);
    std::unique_ptr<sender_end>& to = t.channel_to(peer, lane).end;
    std::unique_ptr<receiver_end>& from = t.channel_from(peer, lane).end;
    if (planted == fault::none || planted == fault::released_at_peek) {
      cx::hostile_receiver const receiver = t.base().channel_from(peer, lane);
      to = std::make_unique<honest_sender<cx::hostile_sender>>(t.base().channel_to(peer, lane));
      if (planted == fault::none)
        from = std::make_unique<honest_receiver<cx::hostile_receiver>>(receiver);
      else
        from = std::make_unique<releases_at_peek>(receiver);
      return;
    }
    if (planted == fault::committed_before_filled)
      to = std::make_unique<commits_before_filling>(cx::ring_sender<>(out));
    else if (planted == fault::one_slot_too_many)
      to = std::make_unique<takes_one_slot_too_many>(out);
    else
      to = std::make_unique<honest_sender<cx::ring_sender<>>>(cx::ring_sender<>(out));
    if (planted == fault::credit_lost)
      from = std::make_unique<loses_a_credit>(in);
    else
      from = std::make_unique<honest_receiver<cx::ring_receiver<>>>(cx::ring_receiver<>(in));
  }

  cx::detail::segment_layout layout_;
  cx::detail::mapping memory_;
};

}  // namespace support
