// SPDX-License-Identifier: Apache-2.0
/// A communicator's plans: each made once, at the first call of its schedule, and kept.
#pragma once

#include "collectx/collective.hpp"
#include "collectx/exec/call_tag.hpp"
#include "collectx/exec/passes.hpp"
#include "collectx/exec/run.hpp"
#include "collectx/exec/verify_plan.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// An address per type, which is all that is needed of run-time type information.
template <class... T>
inline constexpr char type_tag = 0;

constexpr std::uint64_t hash_of(char const* text, std::uint64_t hash) {
  for (; *text != 0; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3u;
  return hash;
}

/// For messages: names that do not depend on the compiler, since two ranks may be two builds.
template <class T>
void name_type(char* text, std::size_t capacity) {
  if constexpr (std::is_same_v<T, bool>)
    std::snprintf(text, capacity, "bool");
  else if constexpr (std::is_floating_point_v<T>)
    std::snprintf(text, capacity, "float%zu", sizeof(T) * 8);
  else if constexpr (std::is_integral_v<T>)
    std::snprintf(text, capacity, "%sint%zu", std::is_signed_v<T> ? "" : "u", sizeof(T) * 8);
  else
    std::snprintf(text, capacity, "%zu-byte", sizeof(T));
}

template <class A>
constexpr char const* algorithm_name() {
  if constexpr (requires {
                  { A::name } -> std::convertible_to<char const*>;
                })
    return A::name;
  else
    return "user";
}

/// What tells apart calls of one schedule, and what messages say of them. Values, not template arguments, so that plans are not compiled
/// once more for each element type.
struct call_kind {
  void const* element;
  void (*name_element)(char*, std::size_t);
  std::size_t element_bytes;
  char const* operation;
  char const* algorithm;
  friend bool operator==(call_kind const&, call_kind const&) = default;

  template <class T, class A>
  static call_kind of(char const* operation) {
    return {&type_tag<T>, &name_type<T>, sizeof(T), operation, algorithm_name<A>()};
  }
};

template <Transport Tr>
class plan_cache {
 public:
  struct entry {
    void const* type;
    call_kind kind;
    exec::bound_plan<Tr> bound;
    call_record record;
    std::uint64_t identity = 0;

    entry(void const* tag, call_kind const& k, exec::plan&& plan, Tr& transport) : type(tag), kind(k), bound(std::move(plan), transport) {}
    virtual ~entry() = default;

    /// Names the plan, for messages and for the ranks that compare theirs.
    [[gnu::noinline]] void introduce(char const* collective, int root) {
      char type_name[16], text[160] = {};
      kind.name_element(type_name, sizeof type_name);
      std::snprintf(text, sizeof text, "%s %s%s%.40s %.80s", collective, type_name, *kind.operation != 0 ? " " : "", kind.operation,
                    kind.algorithm);
      std::memcpy(record.what, text, sizeof record.what);
      if (text[sizeof record.what] != 0) std::memcpy(record.what + sizeof record.what - 2, "..", 2);
      record.root = root;
      identity = hash_of(text, 0xcbf29ce484222325u);
      exec::plan const& plan = bound.content();
      for (int part : {plan.steps, plan.form.chunks, plan.largest_message, root, static_cast<int>(kind.element_bytes)})
        identity = (identity ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
    }

    /// Makes the record that of call `sequence`; gives the tag of its messages.
    std::uint32_t stamp(std::uint64_t sequence, std::uint64_t count) {
      record.sequence = sequence;
      record.count = count;
      return record.tag = tag_of(identity, count, sequence);
    }
    [[gnu::noinline]] status too_large(Tr const& transport, std::size_t element_bytes) const {
      return status::failure(errc::invalid_configuration, transport.rank(),
                             "slots of %zu bytes cannot hold %d elements of %zu bytes, which %.40s sends at once: raise slot_bytes",
                             transport.slot_bytes(), bound.content().largest_message, element_bytes, record.what);
    }
  };

  explicit plan_cache(Tr& transport) : transport_(transport) {}

  /// The plan of a schedule for a collective, made where there is none yet; null where the schedule cannot run in this group.
  template <Schedule S, Collective C>
  entry* find(S const& schedule, C const& collective, call_kind const& kind) {
    static_assert(
        comparable_schedule<S>,
        "collectx: a schedule with state needs == so that its plan can be kept: friend constexpr bool operator==(S const&, S const&) "
        "= default;");
    void const* const type = &type_tag<S, C>;
    for (auto const& e : entries_) {
      if (e->type != type || e->kind != kind) continue;
      auto const& known = static_cast<typed<S, C> const&>(*e);
      if (known.collective == collective && same_schedule(known.schedule, schedule)) return e.get();
    }
    return make(schedule, collective, kind, type);
  }

  /// Why `find` gave none just now.
  status const& refusal() const { return refusal_; }

 private:
  /// Plans need one to three slots. Who has fewer than that to spare has all ranks' plans looked at.
  static constexpr int slots_to_spare = 4;
  template <Schedule S, Collective C>
  bool enough_slots(S const& schedule, C const& collective) const {
    if (transport_.slots() >= slots_to_spare) return true;
    auto const plans = exec::make_plans(schedule, collective, transport_.size());
    return exec::verify_plans(collective, plans, transport_.slots()).finding.what != flaw::deadlock_with_slots;
  }

  template <class S, class C>
  struct typed : entry {
    S schedule;
    C collective;
    typed(S const& s, C const& c, void const* tag, call_kind const& k, exec::plan&& plan, Tr& transport)
        : entry(tag, k, std::move(plan), transport), schedule(s), collective(c) {}
  };

  template <class S, class C>
  entry* make(S const& schedule, C const& collective, call_kind const& kind, void const* type) {
    int const n = transport_.size();
    if (!admits(schedule, n) || lanes_of(schedule) > transport_.lanes() || !enough_slots(schedule, collective)) {
      refuse(C::name, kind.algorithm, admits(schedule, n), lanes_of(schedule));
      return nullptr;
    }
    exec::plan plan = exec::make_plan(schedule, collective, n, transport_.rank());
    plan.largest_message = exec::largest_message(schedule, plan.form);
    entries_.push_back(std::make_unique<typed<S, C>>(schedule, collective, type, kind, std::move(plan), transport_));
    entries_.back()->introduce(C::name, has_root<C> ? root_of(collective) : -1);
    return entries_.back().get();
  }

  [[gnu::noinline]] void refuse(char const* collective, char const* algorithm, bool defined, int lanes) {
    int const rank = transport_.rank(), n = transport_.size();
    if (!defined)
      refusal_ = status::failure(errc::not_supported, rank, "%s by %s is not defined for %d ranks", collective, algorithm, n);
    else if (lanes > transport_.lanes())
      refusal_ = status::failure(errc::invalid_configuration, rank, "%s by %s needs %d lanes, the transport has %d: raise lanes",
                                 collective, algorithm, lanes, transport_.lanes());
    else
      refusal_ = status::failure(errc::invalid_configuration, rank,
                                 "%s by %s among %d ranks would wait for ever with %d slots per channel: raise slots", collective,
                                 algorithm, n, transport_.slots());
  }

  template <class C>
  static constexpr bool has_root = requires(C const& c) {
    c.root;
  };

  Tr& transport_;
  std::vector<std::unique_ptr<entry>> entries_;
  status refusal_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
