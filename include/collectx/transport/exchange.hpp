// SPDX-License-Identifier: Apache-2.0
/// Every rank tells all others one small thing, over any transport: how a group agrees on what lies beside its channels.
#pragma once

#include "collectx/exec/drive.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Sends `bytes` at all[rank] to every rank, and fills in all others'. What `exec::drive` drives.
template <Transport Tr>
class exchanging_with_all {
 public:
  exchanging_with_all(Tr& transport, std::byte* all, std::size_t bytes, std::uint32_t tag)
      : transport_(transport), all_(all), bytes_(bytes), tag_(tag), done_(static_cast<std::size_t>(transport.size())) {}

  exec::progress advance() {
    bool moved = false, left = false;
    for (int r = 0; r < transport_.size(); ++r) {
      if (r == transport_.rank()) continue;
      moved = send(r) || moved;
      receipt const got = receive(r);
      if (got == receipt::foreign) return peer_ = r, exec::progress::conflict;
      moved = got == receipt::good || moved;
      if (of(r).sent == bytes_ && of(r).received == bytes_) continue;
      if (!left || of(r).received < bytes_) peer_ = r;
      left = true;
    }
    return !left ? exec::progress::done : moved ? exec::progress::moved : exec::progress::stuck;
  }
  int peer() const { return peer_; }
  int step() const { return 0; }
  int chunk() const { return 0; }

 private:
  enum class receipt { none, good, foreign };
  struct amounts {
    std::size_t sent = 0, received = 0;
  };

  amounts& of(int rank) { return done_[static_cast<std::size_t>(rank)]; }
  std::byte* record(int rank) { return all_ + static_cast<std::size_t>(rank) * bytes_; }

  bool send(int r) {
    std::size_t const left = bytes_ - of(r).sent, part = left < transport_.slot_bytes() ? left : transport_.slot_bytes();
    if (part == 0) return false;
    auto& channel = transport_.channel_to(r, 0);
    std::byte* const slot = channel.try_acquire(part);
    if (slot == nullptr) return false;
    std::memcpy(slot, record(transport_.rank()) + of(r).sent, part);
    channel.commit(part, tag_);
    of(r).sent += part;
    return true;
  }
  receipt receive(int r) {
    if (of(r).received == bytes_) return receipt::none;
    auto& channel = transport_.channel_from(r, 0);
    message const m = channel.try_peek();
    if (m.data == nullptr) return receipt::none;
    if (m.tag != tag_ || m.bytes > bytes_ - of(r).received) return receipt::foreign;
    std::memcpy(record(r) + of(r).received, m.data, m.bytes);
    of(r).received += m.bytes;
    channel.release();
    return receipt::good;
  }

  Tr& transport_;
  std::byte* all_;
  std::size_t bytes_;
  std::uint32_t tag_;
  std::vector<amounts> done_;
  int peer_ = -1;
};

/// All ranks' `mine`, in the order of ranks; `all` has an element for each. Call `sequence` of the group, by the name of `what`.
template <Transport Tr, class T>
status exchange(Tr& transport, T const& mine, std::vector<T>& all, char const* what, std::uint64_t sequence, nanoseconds timeout) {
  static_assert(std::is_trivially_copyable_v<T>);
  call_record record;
  record.sequence = sequence;
  record.count = sizeof(T);
  std::uint32_t tag = 0x811c9dc5u + static_cast<std::uint32_t>(sequence);
  for (char const* c = what; *c != 0; ++c) tag = (tag ^ static_cast<unsigned char>(*c)) * 0x01000193u;
  record.tag = tag | 1u;
  std::snprintf(record.what, sizeof record.what, "%s", what);
  all[static_cast<std::size_t>(transport.rank())] = mine;
  exchanging_with_all<Tr> run(transport, reinterpret_cast<std::byte*>(all.data()), sizeof(T), record.tag);
  transport.begin(record);
  status const s = exec::drive(run, transport, record, timeout);
  if (s.ok()) transport.end();
  return s;
}

}  // namespace detail
}  // namespace v0
}  // namespace collectx
