// SPDX-License-Identifier: Apache-2.0
// runs: 10000
/// For libFuzzer: whoever connects to a rank that joins, and whatever a rank says that has joined, the mesh and the board stay within their
/// memory, do not wait for ever, and take nobody in who has not read the invitation.
#include <collectx/transport/socket_board.hpp>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

namespace cx = collectx;
using cx::detail::frame, cx::detail::hello, cx::detail::socket_board, cx::detail::socket_mesh, cx::detail::socket_place;

namespace {

std::int64_t slept = 0;  // ns
int in_a_circle = 0;     // looks in a row that found something to do, while nobody did anything

void require(bool condition) {
  if (!condition) std::abort();
}

/// What others do to rank 1 of 3, as the input says: one act after the other. Also rank 1's rendezvous.
class others {
 public:
  others(std::uint8_t const* data, std::size_t size) : at_(data), end_(data + size) {}
  others(others&&) = delete;
  ~others() {
    for (int s : sockets_) hang_up(s);
  }

  bool done() const { return at_ == end_; }
  /// Acts until the input says that rank 1 has its turn.
  void act() {
    in_a_circle = 0;
    while (!done()) {
      switch (next() % 8) {
        case 0:
          return;
        case 1:
          if (sockets_.size() < 12) sockets_.push_back(knock());
          break;
        case 2:
          say_raw();
          break;
        case 3:
          say(said());
          break;
        case 4:
          if (sockets_.empty()) break;
          hang_up(sockets_[some(sockets_.size())]);
          break;
        case 5:
          if (int const s = ::accept4(home(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); s >= 0) sockets_.push_back(s);
          break;
        case 6:
          greet(2, knock());
          break;
        default:
          greet(0, ::accept4(home(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      }
    }
  }

  int rank() const { return 1; }
  int size() const { return 3; }
  cx::status put(char const*, cx::rendezvous_value const& value) {
    std::memcpy(static_cast<void*>(&place_), value.data(), sizeof place_);
    return {};
  }
  /// Rank 0 is at home, or has not come yet.
  cx::result<cx::rendezvous_value> get(char const*, cx::nanoseconds deadline) {
    cx::nanoseconds const now = cx::detail::monotonic_now();
    if (next() % 4 == 0) {
      if (deadline > now) slept += deadline - now;
      return cx::status::failure(cx::errc::timeout, 0, "not yet");
    }
    socket_place where;
    ::sockaddr_in address{};
    ::socklen_t length = sizeof address;
    require(::getsockname(home(), reinterpret_cast<::sockaddr*>(&address), &length) == 0);
    where.stand_at(reinterpret_cast<::sockaddr const*>(&address), length);
    return cx::rendezvous_value(&where, sizeof where);
  }
  cx::status trouble() {
    act();
    return done() ? cx::status::failure(cx::errc::aborted, 0, "enough") : cx::status{};
  }
  void conclude() {}

  std::uint8_t const* nonce() const { return place_.nonce; }

 private:
  std::uint8_t next() { return done() ? std::uint8_t{0} : *at_++; }
  std::size_t some(std::size_t count) { return next() % count; }

  /// Where rank 1 calls rank 0.
  static int home() {
    static int const listener = [] {
      int const s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      ::sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      require(::bind(s, reinterpret_cast<::sockaddr*>(&address), sizeof address) == 0 && ::listen(s, 64) == 0);
      return s;
    }();
    return listener;
  }

  int knock() const {
    int const s = ::socket(place_.where()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    static_cast<void>(::connect(s, place_.where(), static_cast<::socklen_t>(place_.length)));  // it may not listen any more
    return s;
  }
  /// Leaves nothing behind in the kernel: there are but so many ports.
  static void hang_up(int& socket) {
    if (socket < 0) return;
    ::linger const at_once{1, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ::close(socket);
    socket = -1;
  }

  void say(frame const& f) {
    if (!sockets_.empty()) static_cast<void>(::send(sockets_[some(sockets_.size())], &f, sizeof f, MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  void say_raw() {
    if (sockets_.empty()) return;
    int const socket = sockets_[some(sockets_.size())];
    std::size_t const wanted = next(), left = static_cast<std::size_t>(end_ - at_), bytes = wanted < left ? wanted : left;
    static_cast<void>(::send(socket, at_, bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
    at_ += bytes;
  }
  /// A frame of any kind, with any content, or what a rank would say to the board, with any numbers.
  frame said() {
    auto const number = [this] { return static_cast<int>(static_cast<std::int8_t>(next())); };
    std::uint8_t const what = next() % 4;
    if (what == 0) {
      cx::detail::socket_seats::told told;
      told.record.sequence = next() % 4;
      told.record.tag = next() % 2;
      told.finished = next() % 4;
      told.waits_for = number();
      return frame::of(frame::seat, number(), told);
    }
    if (what == 1) {
      cx::detail::socket_seats::posting posting;
      posting.key[0] = static_cast<char>('j' + next() % 8);
      posting.bytes = next() * 4u;
      return frame::of(frame::notice, number(), posting);
    }
    frame f;
    f.kind = next() % 10;
    f.from = static_cast<std::int8_t>(next());
    std::size_t const begin = 2 * some(frame::capacity / 2), bytes = some(64);
    for (std::size_t i = begin; i < begin + bytes && i < frame::capacity; ++i) f.payload[i] = static_cast<std::byte>(next());
    return f;
  }
  /// What a rank says first, with some of it wrong where the input says so.
  void greet(int rank, int socket) {
    if (socket < 0) return;
    hello h;
    h.rank = rank;
    h.size = 3;
    h.slots = 4;
    h.lanes = 1;
    h.slot_bytes = 64;
    std::memcpy(h.nonce, place_.nonce, sizeof h.nonce);
    frame f = frame::of(frame::greeting, rank, h);
    for (std::uint8_t wrong = next() % 4; wrong == 3; wrong = next() % 4) f.payload[some(sizeof h)] = static_cast<std::byte>(next());
    static_cast<void>(::send(socket, &f, sizeof f, MSG_NOSIGNAL | MSG_DONTWAIT));
    sockets_.push_back(socket);
  }

  std::uint8_t const* at_;
  std::uint8_t const* const end_;
  std::vector<int> sockets_;
  socket_place place_;
};

/// As much as a rank says of itself in one of the rounds.
struct fact {
  std::uint64_t words[32] = {};
};

/// The mesh has been made: what its ranks say now goes to the board.
void live(others& world, socket_mesh mesh) {
  std::vector<fact> all;
  cx::status s;
  for (int rounds = 0; rounds < 2 && s.ok(); ++rounds) {
    world.act();
    s = mesh.share(fact{}, all, 0);
    require(!s || all.size() == 3);
  }
  socket_board board(std::move(mesh));
  require(board.open().ok());
  cx::call_record call;
  cx::rendezvous_value seen;
  char text[64];
  for (call.sequence = 1; !world.done(); ++call.sequence) {
    board.begin(call);
    world.act();
    board.attend(cx::detail::monotonic_now());
    s = board.look_around(world.done() ? 2 : 0);
    int const blamed = board.blame(2);
    require(blamed >= 0 && blamed < 3);
    board.absent(text, sizeof text);
    for (int r : {0, 2}) {
      board.posted(r, "k", seen);
      require(seen.size() <= cx::rendezvous_value::capacity);
      static_cast<void>(board.lost(r));
    }
    if (call.sequence % 3 == 0) static_cast<void>(board.post("k", &seen));
    board.end();
  }
  require(!board.conflict(0).ok());
}

}  // namespace

// Time passes by being waited for: who waits in vain, or sleeps, is late at once.
extern "C" int clock_gettime(::clockid_t which, ::timespec* time) {
  if (::syscall(SYS_clock_gettime, which, time) != 0) return -1;
  if (which == CLOCK_MONOTONIC) time->tv_sec += slept / 1'000'000'000, time->tv_nsec = slept % 1'000'000'000;
  return 0;
}
extern "C" int nanosleep(::timespec const* time, ::timespec*) {
  slept += time->tv_sec * 1'000'000'000 + time->tv_nsec;
  return 0;
}
extern "C" int poll(::pollfd* descriptors, ::nfds_t count, int ms) {
  ::timespec const none{};
  int const ready = static_cast<int>(::syscall(SYS_ppoll, descriptors, count, &none, nullptr, 0));
  if (ready <= 0) slept += std::int64_t{ms} * 1'000'000;
  in_a_circle = ready > 0 ? in_a_circle + 1 : 0;
  require(in_a_circle < 1000);
  return ready;
}

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  others world(data, size);
  hello mine;
  mine.rank = 1;
  mine.size = 3;
  mine.slots = 4;
  mine.lanes = 1;
  mine.slot_bytes = 64;
  cx::nanoseconds const deadline = cx::detail::monotonic_now() + 10'000'000'000'000;
  cx::result<socket_mesh> mesh = socket_mesh::join(world, mine, 1'000'000'000, deadline);
  if (!mesh) {
    require(!mesh.error().ok() && cx::detail::monotonic_now() < deadline);
    return 0;
  }
  for (int r : {0, 1, 2}) require(mesh->said(r).rank == r && mesh->said(r).size == 3 && mesh->to(r).operator bool() == (r != 1));
  require(std::memcmp(mesh->said(2).nonce, world.nonce(), 16) == 0);
  live(world, std::move(*mesh));
  return 0;
}
