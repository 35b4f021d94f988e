// SPDX-License-Identifier: Apache-2.0
#include "collectx/transport.hpp"

#include "collectx/transport/hostile.hpp"
#include "collectx/transport/loopback.hpp"
#include "collectx/transport/shared_memory.hpp"

namespace transport_test {

namespace cx = collectx;
using wire = cx::segment_transport;

static_assert(cx::Transport<cx::loopback_transport> && cx::Transport<cx::shared_memory_transport> && cx::Transport<cx::hostile_transport>);

// Near misses: one promise each is another one.
struct keeps_its_verdict : wire {
  void verdict();
};
struct counts_the_lost : wire {
  int lost(int);
};
struct shows_nothing : wire {
  bool posted(int, char const*);
};
struct posts_in_vain : wire {
  void post(char const*, cx::rendezvous_value const&);
};
struct has_no_options : wire {
 private:
  using wire::options;
};
struct sends_numbers : wire {
  int channel_to(int, int);
};
struct idles_for_ever : wire {
  void idle(int, int);
};
static_assert(!cx::Transport<keeps_its_verdict> && !cx::Transport<counts_the_lost> && !cx::Transport<shows_nothing>);
static_assert(!cx::Transport<posts_in_vain> && !cx::Transport<has_no_options>);
static_assert(!cx::Transport<sends_numbers> && !cx::Transport<idles_for_ever>);

struct commits_without_tag : cx::ring_sender<> {
  void commit(std::size_t);
};
struct acquires_nothing_to_write : cx::ring_sender<> {
  std::byte const* try_acquire(std::size_t);
};
struct peeks_at_bytes : cx::ring_receiver<> {
  std::byte const* try_peek();
};
static_assert(cx::SendChannel<cx::ring_sender<>> && cx::RecvChannel<cx::ring_receiver<>>);
static_assert(!cx::SendChannel<commits_without_tag> && !cx::SendChannel<acquires_nothing_to_write>);
static_assert(!cx::RecvChannel<peeks_at_bytes> && !cx::RecvChannel<cx::ring_sender<>>);

}  // namespace transport_test
