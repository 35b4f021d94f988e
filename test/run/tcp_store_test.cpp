// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// cores: 1
// timeout: 120
// labels: sanitize
#include <collectx/launch.hpp>
#include <collectx/rendezvous/tcp_store.hpp>

#include <doctest/doctest.h>

#include "processes.hpp"
#include "support/promises.hpp"
#include "support/sanitizers.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace cx = collectx;

namespace {

using cx::detail::descriptor;
using cx::detail::frame_kind;
using cx::detail::store_frame;
using support::in, support::keeps_its_promises, support::text, support::value;
using store = cx::result<cx::tcp_store_rendezvous>;

cx::tcp_store_options options(int port = 0, std::int64_t ms = 30'000, char const* secret = "test") {
  cx::tcp_store_options o;
  o.port = port;
  o.timeout = std::chrono::milliseconds(ms);
  o.secret = secret;
  o.linger = std::chrono::milliseconds(100);  // all have heard before rank 0 goes
  return o;
}

store lead(int size, std::int64_t ms = 30'000, char const* secret = "test") {
  return cx::tcp_store_rendezvous::create(0, size, options(0, ms, secret));
}
store follow(store& leader, int rank, int size, std::int64_t ms = 30'000, char const* secret = "test") {
  return cx::tcp_store_rendezvous::create(rank, size, options(leader->port(), ms, secret));
}

bool says(cx::status const& s, char const* part) { return std::strstr(s.what(), part) != nullptr; }

/// A socket of a stranger, or of a rank played by hand.
class caller {
 public:
  explicit caller(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    ::sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(static_cast<std::uint16_t>(port));
    ::timeval patience{20, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    connected_ = ::connect(socket_.get(), reinterpret_cast<::sockaddr*>(&a), sizeof a) == 0;
  }
  explicit caller(descriptor socket) : socket_(std::move(socket)), connected_(true) {}
  bool connected() const { return connected_; }
  void say(void const* data, std::size_t bytes) { ::send(socket_.get(), data, bytes, MSG_NOSIGNAL); }
  void say(store_frame const& f) {
    std::byte out[store_frame::capacity];
    say(out, cx::detail::write_frame(f, out));
  }
  /// False where the other has hung up.
  bool hear(store_frame& f) {
    for (;;) {
      cx::detail::parsed_frame const p = cx::detail::parse_frame(in_.data(), in_.size(), f);
      if (p.state == cx::detail::parsed_frame::bad) return false;
      if (p.state == cx::detail::parsed_frame::good) {
        in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(p.bytes));
        return true;
      }
      std::byte more[512];
      ssize_t const got = ::recv(socket_.get(), more, sizeof more, 0);
      if (got <= 0) return false;
      in_.insert(in_.end(), more, more + got);
    }
  }
  /// Joins as a rank would; the store's answer.
  store_frame join(int rank, int size, char const* secret = "test", std::uint32_t version = COLLECTX_VERSION) {
    store_frame challenge, hello, answer;
    REQUIRE(hear(challenge));
    REQUIRE(challenge.kind == frame_kind::challenge);
    hello.kind = frame_kind::hello;
    hello.rank = rank;
    hello.size = size;
    hello.version = version;
    hello.process = 4711;
    std::strcpy(hello.host, "elsewhere");
    hello.proof = cx::detail::proof_of(hello, challenge.nonce, cx::detail::key_of(secret));
    say(hello);
    REQUIRE(hear(answer));
    return answer;
  }

 private:
  descriptor socket_;
  bool connected_;
  std::vector<std::byte> in_;
};

/// A port that nobody else is given, and at which nobody listens yet.
class reserved_port {
 public:
  reserved_port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    int const on = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ::sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::socklen_t length = sizeof a;
    REQUIRE(::bind(socket_.get(), reinterpret_cast<::sockaddr*>(&a), length) == 0);
    REQUIRE(::getsockname(socket_.get(), reinterpret_cast<::sockaddr*>(&a), &length) == 0);
    number_ = ntohs(a.sin_port);
  }
  int number() const { return number_; }
  int listen() { return ::listen(socket_.get(), 16), socket_.get(); }

 private:
  descriptor socket_;
  int number_;
};

std::size_t descriptors() { return processes::count_in("/proc/self/fd"); }
std::size_t threads() { return processes::count_in("/proc/self/task"); }

store_frame frame(frame_kind kind) {
  store_frame f;
  f.kind = kind;
  return f;
}

std::vector<store_frame> one_of_each() {
  std::vector<store_frame> all;
  for (frame_kind k : {frame_kind::challenge, frame_kind::hello, frame_kind::welcome, frame_kind::verdict, frame_kind::put, frame_kind::get,
                       frame_kind::conclude, frame_kind::bye, frame_kind::answer}) {
    store_frame f = frame(k);
    f.rank = 3;
    f.size = 70000;
    f.process = 0x0102030405060708;
    f.proof = ~f.process;
    f.patience = -5;
    f.nonce[15] = 0xee;
    std::strcpy(f.key, "key");
    std::strcpy(f.host, "host-1.example");
    f.bytes = 5;
    std::memcpy(f.data, "value", 5);
    if (k == frame_kind::verdict) f.code = 6;
    all.push_back(f);
  }
  return all;
}

std::vector<std::byte> written(store_frame const& f) {
  std::vector<std::byte> out(store_frame::capacity);
  out.resize(cx::detail::write_frame(f, out.data()));
  return out;
}

}  // namespace

TEST_CASE("siphash: the vectors of its authors") {
  cx::detail::siphash_key const key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  unsigned char text[15];
  for (unsigned char i = 0; i < 15; ++i) text[i] = i;
  CHECK(cx::detail::siphash(key, text, 0) == 0x726fdb47dd0e0e31);
  CHECK(cx::detail::siphash(key, text, 15) == 0xa129ca6149be45e5);
}

TEST_CASE("keys differ where secrets do, of any length; hashes are compared as a whole") {
  std::vector<std::string> const secrets = {"", "a", "b", "ab", std::string(256, 'x'), std::string(257, 'x'), std::string(5000, 'x')};
  for (std::string const& a : secrets)
    for (std::string const& b : secrets) {
      auto const ka = cx::detail::key_of(a.c_str()), kb = cx::detail::key_of(b.c_str());
      CHECK((ka.low == kb.low) == (a == b));
      CHECK((ka.high == kb.high) == (a == b));
    }
  CHECK(cx::detail::same_hash(0x8000000000000001, 0x8000000000000001));
  for (int bit = 0; bit < 64; ++bit) CHECK(!cx::detail::same_hash(0, std::uint64_t{1} << bit));
}

TEST_CASE("frames: each kind is read as it was written, and not before its last byte is there") {
  for (store_frame const& f : one_of_each()) {
    std::vector<std::byte> const bytes = written(f);
    store_frame read;
    for (std::size_t some = 0; some < bytes.size(); ++some)
      CHECK(cx::detail::parse_frame(bytes.data(), some, read).state == cx::detail::parsed_frame::unfinished);
    auto const p = cx::detail::parse_frame(bytes.data(), bytes.size(), read);
    REQUIRE(p.state == cx::detail::parsed_frame::good);
    CHECK(p.bytes == bytes.size());
    CHECK(read.kind == f.kind);
    CHECK(written(read) == bytes);
  }
}

TEST_CASE("frames: what cannot be one is bad at once") {
  store_frame f;
  auto state = [&](std::vector<std::byte> const& bytes) { return cx::detail::parse_frame(bytes.data(), bytes.size(), f).state; };
  constexpr auto bad = cx::detail::parsed_frame::bad;
  CHECK(state({std::byte{'G'}}) == bad);
  for (store_frame const& each : one_of_each()) {
    CAPTURE(static_cast<int>(each.kind));
    std::vector<std::byte> bytes = written(each);
    bytes[5] = std::byte{1};
    CHECK(state(bytes) == bad);
    bytes = written(each);
    bytes[4] = std::byte{77};  // no such kind
    CHECK(state(bytes) == bad);
    bytes = written(each);
    bytes[7] = std::byte{2};  // more than a frame holds
    CHECK(state(bytes) == bad);
  }
  auto broken = [&](frame_kind k, auto change) {
    store_frame g = one_of_each()[static_cast<std::size_t>(k) - 1];
    change(g);
    return state(written(g));
  };
  CHECK(broken(frame_kind::put, [](store_frame& g) { g.bytes = 0; }) == bad);
  CHECK(broken(frame_kind::put, [](store_frame& g) { g.bytes = 257; }) == bad);
  CHECK(broken(frame_kind::put, [](store_frame& g) { g.key[0] = 0; }) == bad);
  CHECK(broken(frame_kind::put, [](store_frame& g) { g.key[1] = ' '; }) == bad);
  CHECK(broken(frame_kind::get, [](store_frame& g) { g.key[0] = 0; }) == bad);
  CHECK(broken(frame_kind::get, [](store_frame& g) { std::memset(g.key, 'k', 31); }) == cx::detail::parsed_frame::good);
  CHECK(broken(frame_kind::hello, [](store_frame& g) { g.host[0] = '\n'; }) == bad);
  CHECK(broken(frame_kind::verdict, [](store_frame& g) { g.code = 0; }) == bad);
  CHECK(broken(frame_kind::answer, [](store_frame& g) { g.code = -1; }) == bad);
  CHECK(broken(frame_kind::answer, [](store_frame& g) { g.bytes = 257; }) == bad);
}

TEST_CASE("tcp: values are put, got, kept from being overwritten, and withdrawn") {
  for (char const* address : {"127.0.0.1", "localhost", "127.0.0.1:0"}) {
    CAPTURE(address);
    cx::tcp_store_options o = options();
    o.address = address;
    store a = cx::tcp_store_rendezvous::create(0, 2, o);
    REQUIRE_MESSAGE(a.has_value(), a.error().what());
    o.address = "localhost";
    o.port = a->port();
    store b = cx::tcp_store_rendezvous::create(1, 2, o);
    REQUIRE_MESSAGE(b.has_value(), b.error().what());
    CHECK(a->rank() == 0);
    CHECK(b->rank() == 1);
    CHECK(b->size() == 2);
    for (int i = 0; i < 20; ++i) keeps_its_promises(*a, *b);
  }
}

TEST_CASE("NET-04: rank 0 at [::1], the other knows it as ::1; and rank 0 at 127.0.0.1 is found by a name that means ::1 first") {
  cx::tcp_store_options o = options();
  o.address = "[::1]:0";
  store a = cx::tcp_store_rendezvous::create(0, 2, o);
  if (!a && a.error().native() == EADDRNOTAVAIL) {
    MESSAGE("skipped: no IPv6 on this host");
  } else {
    REQUIRE_MESSAGE(a.has_value(), a.error().what());
    o.address = "::1";
    o.port = a->port();
    store b = cx::tcp_store_rendezvous::create(1, 2, o);
    REQUIRE_MESSAGE(b.has_value(), b.error().what());
    CHECK(b->put("k", value("v")).ok());
    CHECK(text(*a->get("k", in(0))) == "v");
  }
}

TEST_CASE("NET-04: without IPv6 in the kernel, localhost is still found") {
  processes::group g(1);
  g.start([]() -> cx::status {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
      return cx::status::failure(cx::errc::not_supported, -1, "skipped: no namespaces here");
    descriptor const s(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ::ifreq lo{};
    std::strcpy(lo.ifr_name, "lo");
    lo.ifr_flags = IFF_UP;
    std::ofstream("/proc/sys/net/ipv6/conf/all/disable_ipv6") << "1\n";
    if (::ioctl(s.get(), SIOCSIFFLAGS, &lo) != 0) return cx::status::failure(cx::errc::not_supported, -1, "skipped: no loopback there");
    cx::tcp_store_options o = options();
    o.address = "localhost";
    store a = cx::tcp_store_rendezvous::create(0, 2, o);
    if (!a) return a.error();
    o.port = a->port();
    store b = cx::tcp_store_rendezvous::create(1, 2, o);
    if (!b) return b.error();
    auto address = cx::local_address();
    if (!address || !address->is_loopback())
      return cx::status::failure(cx::errc::system, -1, "there is loopback only, and it is not named");
    return b->put("k", value("v"));
  });
  g.wait();
  if (g[0].code == static_cast<int>(cx::errc::not_supported)) MESSAGE(g[0].text);
  CHECK_MESSAGE((g[0].code == 0 || g[0].code == static_cast<int>(cx::errc::not_supported)), g[0].text);
}

TEST_CASE("NET-05: rank 0 listens at the address it was given and at no other") {
  store a = lead(2, 50);
  REQUIRE(a.has_value());
  char wanted[32];
  std::snprintf(wanted, sizeof wanted, ":%04X", static_cast<unsigned>(a->port()));
  int listeners = 0;
  for (char const* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::size_t const at = line.find(wanted);
      if (at == std::string::npos || line.find(" 0A ") == std::string::npos || line.find(wanted) > line.find(' ', line.find(": ") + 2))
        continue;
      ++listeners;
      CHECK_MESSAGE(line.find(std::string("0100007F") + wanted) != std::string::npos, line);
    }
  }
  CHECK(listeners == 1);
}

TEST_CASE("a rank that comes before rank 0 waits for it") {
  reserved_port port;
  std::atomic<bool> called{false};
  std::thread early([&] {
    called = true;
    store b = cx::tcp_store_rendezvous::create(1, 2, options(port.number()));
    CHECK_MESSAGE(b.has_value(), b.error().what());
    if (b) CHECK(text(*b->get("k", in(30'000))) == "v");
  });
  while (!called) std::this_thread::yield();
  cx::detail::nap(30'000'000);
  store a = cx::tcp_store_rendezvous::create(0, 2, options(port.number()));
  CHECK_MESSAGE(a.has_value(), a.error().what());
  if (a) CHECK(a->put("k", value("v")).ok());
  early.join();
}

TEST_CASE("rank 0 that never comes is an error with its address and the reason") {
  reserved_port port;
  store b = cx::tcp_store_rendezvous::create(1, 2, options(port.number(), 100));
  CHECK(b.error().code() == cx::errc::timeout);
  CHECK(b.error().rank() == 0);
  CHECK_MESSAGE(says(b.error(), ("127.0.0.1:" + std::to_string(port.number()) + " within 0.1 s: 127.0.0.1: Connection refused").c_str()),
                b.error().what());
}

TEST_CASE("ranks that never came are named to all who did, in one sentence") {
  store a = lead(4, 300);
  REQUIRE(a.has_value());
  store b = follow(a, 1, 4);
  REQUIRE_MESSAGE(b.has_value(), b.error().what());
  std::string const sentence = "ranks 2, 3 of 4 never came to 127.0.0.1:" + std::to_string(a->port()) + " within 0.3 s";
  for (store* s : {&a, &b}) {
    cx::status const why = (*s)->get("k", in(30'000)).error();
    CHECK(why.code() == cx::errc::timeout);
    CHECK(why.rank() == 2);
    CHECK_MESSAGE(says(why, sentence.c_str()), why.what());
    CHECK(says((*s)->put("k", value("v")), sentence.c_str()));
  }
  // Who comes too late hears it, too.
  store c = follow(a, 2, 4);
  CHECK(says(c.error(), sentence.c_str()));
}

TEST_CASE("a get that ends before the time to come does, names who is not there yet") {
  store a = lead(3);
  REQUIRE(a.has_value());
  cx::status why = a->get("k", in(20)).error();
  CHECK(says(why, "ranks 1, 2 of 3 never came"));
  store b = follow(a, 1, 3);
  CHECK(says(a->get("k", in(20)).error(), "rank 2 of 3 never came"));
  store c = follow(a, 2, 3);
  REQUIRE(c.has_value());
  CHECK(says(c->get("k", in(0)).error(), "nobody has put k at 127.0.0.1:"));
}

TEST_CASE("NET-07: two processes of one rank are both named, to both and to all others, long before the time is over") {
  store a = lead(4);
  REQUIRE(a.has_value());
  store b = follow(a, 1, 4), d = follow(a, 3, 4);
  REQUIRE(b.has_value());
  REQUIRE(d.has_value());
  store twin = follow(a, 1, 4);
  std::string const me = "process " + std::to_string(::getpid());
  for (cx::status const& s : {twin.error(), b->get("k", in(30'000)).error(), a->get("k", in(30'000)).error(), d->put("k", value("v"))}) {
    CHECK(s.code() == cx::errc::invalid_argument);
    CHECK(s.rank() == 1);
    CHECK_MESSAGE(says(s, "two processes are rank 1: "), s.what());
    CHECK(says(s, (me + " on ").c_str()));
  }
}

TEST_CASE("NET-07: a rank that is not in the group is told so at once, and so is one of a used up group") {
  CHECK(says(cx::tcp_store_rendezvous::create(7, 4, options(1)).error(), "rank 7 is not in a group of 4"));
  CHECK(says(cx::tcp_store_rendezvous::create(-1, 4, options(1)).error(), "rank -1 is not in a group of 4"));
  store a = lead(2);
  REQUIRE(a.has_value());
  store b = follow(a, 1, 2);
  REQUIRE(b.has_value());
  a->conclude();
  b->conclude();
  store late = follow(a, 1, 2, 100);
  CHECK(late.error().code() == cx::errc::timeout);
  CHECK_MESSAGE(says(late.error(), "comes when the group is complete"), late.error().what());
  CHECK(b->put("k", value("v")).ok());  // whom it does not disturb
}

TEST_CASE("NET-07: a second rank 0 and the first are told of each other") {
  store a = lead(2);
  REQUIRE(a.has_value());
  store twin = cx::tcp_store_rendezvous::create(0, 2, options(a->port()));
  for (cx::status const& s : {twin.error(), a->get("k", in(30'000)).error()})
    CHECK_MESSAGE(says(s, "two processes are rank 0: "), s.what());
}

TEST_CASE("NET-07: of two processes that are rank 0 neither is too fast for the other") {
  reserved_port port;
  for (int round = 0; round < 20; ++round) {
    processes::group g(2);
    for (int i = 0; i < 2; ++i) {
      g.start([&]() -> cx::status {
        store meeting = cx::tcp_store_rendezvous::create(0, 2, options(port.number()));
        return meeting ? meeting->get("never", in(20'000)).error() : meeting.error();
      });
    }
    g.wait();
    for (int i = 0; i < 2; ++i) CHECK_MESSAGE(g[i].names("two processes are rank 0: "), g[i].text);
  }
}

TEST_CASE("NET-07: rank 0, which waits for others to share its memory, hears of two that are one rank") {
  reserved_port port;
  processes::group g(3);
  for (int r : {0, 1, 1}) {
    g.start([&, r]() -> cx::status {
      store meeting = cx::tcp_store_rendezvous::create(r, 3, options(port.number()));
      if (!meeting) return meeting.error();
      return r == 0 ? cx::shared_memory::join(*meeting).error() : meeting->get("never", in(50'000)).error();
    });
  }
  g.wait();
  for (int i = 0; i < 3; ++i) CHECK_MESSAGE(g[i].names("two processes are rank 1: "), g[i].text);
  for (int i = 0; i < 3; ++i) CHECK(g[i].seconds < 25);
}

TEST_CASE("DIE: a rank that waits for rank 0's memory and is killed is named, and rank 0 does not wait for those who never came") {
  reserved_port port;
  std::atomic<bool>* const there = processes::shared<std::atomic<bool>>();
  processes::group g(2);
  auto const rank = [&](int r) {
    return [&, r]() -> cx::status {
      store meeting = cx::tcp_store_rendezvous::create(r, 3, options(port.number()));
      if (r == 1) *there = true;
      return meeting ? cx::shared_memory::join(*meeting).error() : meeting.error();
    };
  };
  g.start(rank(0));
  g.start(rank(1));
  for (int looks = 0; !*there && looks < 20'000; ++looks) cx::detail::nap(1'000'000);
  cx::detail::nap(100'000'000);  // so that it most likely has asked for the memory, too
  g.kill(1);
  g.wait();
  CHECK(g[0].code == static_cast<int>(cx::errc::peer_lost));
  CHECK_MESSAGE(g[0].names("rank 1 "), g[0].text);
  CHECK(g[0].seconds < 20);
  ::munmap(there, sizeof *there);
}

TEST_CASE("sizes that differ are named on both sides") {
  store a = lead(2);
  REQUIRE(a.has_value());
  store b = follow(a, 1, 3);
  for (cx::status const& s : {b.error(), a->get("k", in(30'000)).error()}) {
    CHECK(s.code() == cx::errc::invalid_configuration);
    CHECK_MESSAGE(says(s, "joins a group of 3, rank 0 one of 2"), s.what());
  }
}

TEST_CASE("versions that differ are named on both sides") {
  store a = lead(2);
  REQUIRE(a.has_value());
  caller other(a->port());
  REQUIRE(other.connected());
  store_frame const answer = other.join(1, 2, "test", 123456);
  REQUIRE(answer.kind == frame_kind::verdict);
  int const v = COLLECTX_VERSION;
  std::string const mine = std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
  for (cx::status const& s : {answer.spell(), a->get("k", in(30'000)).error()}) {
    CHECK(s.code() == cx::errc::invalid_configuration);
    CHECK_MESSAGE(says(s, ("rank 1 (process 4711 on elsewhere) has collectx 12.34.56, rank 0 has " + mine).c_str()), s.what());
  }
}

TEST_CASE("a rank with another secret is told so, and disturbs nobody") {
  store a = lead(2, 30'000, "right");
  REQUIRE(a.has_value());
  for (char const* secret : {"wrong", ""}) {
    store b = follow(a, 1, 2, 30'000, secret);
    CHECK(b.error().code() == cx::errc::invalid_argument);
    CHECK_MESSAGE(says(b.error(), "rank 1 knows another secret than rank 0 at 127.0.0.1:"), b.error().what());
    CHECK(says(b.error(), "COLLECTX_SECRET"));
  }
  CHECK(says(a->get("k", in(0)).error(), "2 times somebody came with another secret"));
  store b = follow(a, 1, 2, 30'000, "right");
  REQUIRE_MESSAGE(b.has_value(), b.error().what());
  keeps_its_promises(*a, *b);
}

TEST_CASE("the secret comes from the environment where no option says it") {
  ::setenv("COLLECTX_SECRET", "from outside", 1);
  store a = lead(2, 30'000, nullptr);
  REQUIRE(a.has_value());
  store b = follow(a, 1, 2, 30'000, "from outside");
  CHECK(b.has_value());
  ::unsetenv("COLLECTX_SECRET");
}

TEST_CASE("a store that does not know the secret is not believed, and the secret is not sent to it") {
  reserved_port port;
  int const listener = port.listen();
  std::string said;
  std::thread impostor([&] {
    descriptor line(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    caller c(std::move(line));
    store_frame hello;
    c.say(frame(frame_kind::challenge));
    if (!c.hear(hello)) return;
    for (std::byte b : written(hello)) said.push_back(static_cast<char>(b));
    c.say(frame(frame_kind::welcome));
    c.hear(hello);
  });
  store b = cx::tcp_store_rendezvous::create(1, 2, options(port.number(), 20'000, "hush, quite secret"));
  impostor.join();
  CHECK_MESSAGE(says(b.error(), "does not know the secret of this group"), b.error().what());
  CHECK(said.size() > 40);
  CHECK(said.find("hush") == std::string::npos);
  CHECK(said.find("secret") == std::string::npos);
}

TEST_CASE("each proof is about a number of its own: what was heard once cannot be said again") {
  store a = lead(2);
  REQUIRE(a.has_value());
  caller one(a->port()), two(a->port());
  store_frame first, second, hello, answer;
  REQUIRE(one.hear(first));
  REQUIRE(two.hear(second));
  CHECK(std::memcmp(first.nonce, second.nonce, sizeof first.nonce) != 0);
  hello.kind = frame_kind::hello;
  hello.rank = 1;
  hello.size = 2;
  hello.proof = cx::detail::proof_of(hello, first.nonce, cx::detail::key_of("test"));
  two.say(hello);
  REQUIRE(two.hear(answer));
  CHECK(answer.kind == frame_kind::verdict);
  one.say(hello);
  REQUIRE(one.hear(answer));
  CHECK(answer.kind == frame_kind::welcome);
}

TEST_CASE("strangers who say nothing, nonsense or half a frame neither disturb the start nor use up descriptors") {
  store a = lead(2);
  REQUIRE(a.has_value());
  std::size_t const before = descriptors();
  std::vector<std::unique_ptr<caller>> strangers;
  std::vector<std::byte> const hello = written(one_of_each()[1]), put = written(one_of_each()[4]);
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(std::make_unique<caller>(a->port()));
    caller& c = *strangers.back();
    REQUIRE(c.connected());
    if (i % 4 == 1) c.say("GET / HTTP/1.1\r\n\r\n", 18);
    if (i % 4 == 2) c.say(hello.data(), hello.size() / 2);
    if (i % 4 == 3) c.say(put.data(), put.size());  // before it has been let in
  }
  store b = follow(a, 1, 2);
  REQUIRE_MESSAGE(b.has_value(), b.error().what());
  keeps_its_promises(*a, *b);
  CHECK(descriptors() <= before + 300 + 2 + cx::detail::store_server::most_strangers);
}

TEST_CASE("where descriptors are scarce, the store drops strangers and serves its ranks") {
  reserved_port port;
  processes::group g(2);
  auto* ready = processes::shared<std::atomic<int>>();
  g.start([&]() -> cx::status {
    ::rlimit const few{24, 24};
    ::setrlimit(RLIMIT_NOFILE, &few);
    store a = cx::tcp_store_rendezvous::create(0, 2, options(port.number()));
    if (!a) return a.error();
    ++*ready;
    auto got = a->get("k", in(30'000));
    if (!got) return got.error();
    a->conclude();
    return {};
  });
  g.start([&]() -> cx::status {
    while (*ready == 0) cx::detail::nap(1'000'000);
    std::vector<std::unique_ptr<caller>> strangers;
    for (int i = 0; i < 60; ++i) strangers.push_back(std::make_unique<caller>(port.number()));
    store b = cx::tcp_store_rendezvous::create(1, 2, options(port.number()));
    if (!b) return b.error();
    cx::status const s = b->put("k", value("v"));
    b->conclude();
    return s;
  });
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
}

TEST_CASE("a rank that asks without end, or says nonsense once it is in, is the one that is lost") {
  for (bool nonsense : {true, false}) {
    store a = lead(2);
    REQUIRE(a.has_value());
    caller c(a->port());
    REQUIRE(c.join(1, 2).kind == frame_kind::welcome);
    store_frame get = frame(frame_kind::get);
    std::strcpy(get.key, "k");
    get.patience = 60'000'000'000;
    if (nonsense) {
      c.say("nonsense", 8);
    } else {
      c.say(get);
      c.say(get);
    }
    cx::status const s = a->get("k", in(30'000)).error();
    CHECK(s.code() == cx::errc::peer_lost);
    CHECK(s.rank() == 1);
  }
}

TEST_CASE("a port that something else uses is one clear error") {
  reserved_port port;
  port.listen();
  store a = cx::tcp_store_rendezvous::create(0, 2, options(port.number()));
  CHECK(a.error().code() == cx::errc::system);
  CHECK(a.error().native() == EADDRINUSE);
  CHECK_MESSAGE(says(a.error(), ("127.0.0.1:" + std::to_string(port.number()) + ", something else does").c_str()), a.error().what());
}

TEST_CASE("addresses that are none, nobody's or somebody else's are errors that say so") {
  cx::tcp_store_options o = options(1, 20);
  o.address = "";
  CHECK(says(cx::tcp_store_rendezvous::create(0, 2, o).error(), "\"\" is no address"));
  o.address = "[::1";
  CHECK(says(cx::tcp_store_rendezvous::create(1, 2, o).error(), "\"[::1\" is no address"));
  o.address = "192.0.2.1";  // for documentation (RFC 5737)
  CHECK_MESSAGE(says(cx::tcp_store_rendezvous::create(0, 2, o).error(), "no interface of its host has that address"),
                cx::tcp_store_rendezvous::create(0, 2, o).error().what());
  o.address = "no.such.host.invalid";
  CHECK(says(cx::tcp_store_rendezvous::create(0, 2, o).error(), "rank 0 cannot find its own address, no.such.host.invalid"));
  CHECK(says(cx::tcp_store_rendezvous::create(1, 2, o).error(), "its address cannot be found"));
  o.address = "127.0.0.1";
  o.port = 65536;
  CHECK(says(cx::tcp_store_rendezvous::create(0, 2, o).error(), "port 65536"));
  o.port = 0;
  CHECK(says(cx::tcp_store_rendezvous::create(1, 2, o).error(), "port 0: rank 1 needs one from 1"));
}

TEST_CASE("keys that are none are refused before they are sent") {
  store a = lead(1);
  REQUIRE(a.has_value());
  for (char const* key : {"", "two words", "a-key-of-thirty-two-characters-xx"}) {
    CHECK(a->put(key, value("v")).code() == cx::errc::invalid_argument);
    CHECK(a->get(key, in(0)).error().code() == cx::errc::invalid_argument);
  }
}

TEST_CASE("a rank cannot use up rank 0's memory") {
  store a = lead(1);
  REQUIRE(a.has_value());
  cx::status s;
  int count = 0;
  for (; s.ok() && count < 1000; ++count) s = a->put(std::to_string(count).c_str(), value("v"));
  CHECK(s.code() == cx::errc::out_of_memory);
  a->conclude();
  CHECK(a->put("again", value("v")).ok());
}

TEST_CASE("a rank that is killed while ranks join is named to all others at once") {
  store a = lead(3);
  REQUIRE(a.has_value());
  processes::group g(1);
  auto* in_there = processes::shared<std::atomic<int>>();
  int const port = a->port();
  g.start([&]() -> cx::status {
    store b = cx::tcp_store_rendezvous::create(2, 3, options(port));
    if (!b || !b->put("k", value("v"))) return b.error();
    ++*in_there;
    ::pause();
    return {};
  });
  while (*in_there == 0) cx::detail::nap(1'000'000);
  std::string const who = "rank 2 (process " + std::to_string(g.pid(0)) + " on ";
  g.kill(0);
  cx::status const s = a->get("never", in(30'000)).error();
  CHECK(s.code() == cx::errc::peer_lost);
  CHECK(s.rank() == 2);
  CHECK_MESSAGE(says(s, who.c_str()), s.what());
}

TEST_CASE("when rank 0 is killed, ranks are told, and nothing is left at its port") {
  reserved_port port;
  processes::group g(1);
  g.start([&]() -> cx::status {
    store a = cx::tcp_store_rendezvous::create(0, 2, options(port.number()));
    ::pause();
    return a.error();
  });
  store b = cx::tcp_store_rendezvous::create(1, 2, options(port.number()));
  REQUIRE_MESSAGE(b.has_value(), b.error().what());
  g.kill(0);
  cx::status const s = b->get("k", in(30'000)).error();
  CHECK(s.code() == cx::errc::peer_lost);
  CHECK(s.rank() == 0);
  CHECK_MESSAGE(says(s, "died or left while ranks were joining"), s.what());
  g.wait();
  store again = cx::tcp_store_rendezvous::create(0, 2, options(port.number(), 50));
  CHECK_MESSAGE(again.has_value(), again.error().what());
}

TEST_CASE("rank 0 goes last: who still holds or waits for a value is served, who is through is not waited for") {
  std::optional<store> a(lead(3));
  REQUIRE(a->has_value());
  store b = follow(*a, 1, 3), c = follow(*a, 2, 3);
  REQUIRE(b.has_value());
  REQUIRE(c.has_value());
  CHECK((*a)->put("zero", value("0")).ok());
  CHECK(text(*c->get("zero", in(0))) == "0");  // c takes part, and neither holds nor waits any more
  CHECK(b->put("k", value("v")).ok());
  (*a)->conclude();
  std::atomic<bool> gone{false};
  std::thread leaving([&] {
    a.reset();
    gone = true;
  });
  CHECK(text(*c->get("k", in(30'000))) == "v");
  CHECK(!gone);
  b->conclude();
  leaving.join();  // though b and c are still there
  CHECK(c->get("k", in(30'000)).error().code() == cx::errc::peer_lost);
}

TEST_CASE("rank 0 that leaves while all others wait for what nobody puts, lets them know at once") {
  std::optional<store> a(lead(2));
  REQUIRE(a->has_value());
  store b = follow(*a, 1, 2);
  REQUIRE(b.has_value());
  (*a)->conclude();
  std::thread leaving([&] { a.reset(); });
  cx::status const s = b->get("k", in(60'000)).error();
  leaving.join();
  CHECK(s.code() == cx::errc::peer_lost);
  CHECK(s.rank() == 0);
  CHECK_MESSAGE(says(s, "rank 0 left"), s.what());
}

TEST_CASE("rank 0 that leaves does not wait for those who never come beyond the time to come") {
  cx::nanoseconds const begun = cx::detail::monotonic_now();
  { store a = lead(2, 100); }
  CHECK(cx::detail::monotonic_now() - begun < 20'000'000'000);
}

TEST_CASE("a forked child that ends does not end the rendezvous of its parent") {
  store a = lead(2);
  REQUIRE(a.has_value());
  store b = follow(a, 1, 2);
  REQUIRE(b.has_value());
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(30);
    { store mine(std::move(a)), other(std::move(b)); }
    ::_exit(0);
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  CHECK(WIFEXITED(state));
  keeps_its_promises(*a, *b);
}

TEST_CASE("all descriptors are closed when another program is started") {
  std::vector<std::string> const before = processes::names_in("/proc/self/fd");
  store a = lead(2);
  REQUIRE(a.has_value());
  store b = follow(a, 1, 2);
  REQUIRE(b.has_value());
  int more = 0;
  for (std::string const& name : processes::names_in("/proc/self/fd")) {
    if (std::find(before.begin(), before.end(), name) != before.end()) continue;
    int const flags = ::fcntl(std::atoi(name.c_str()), F_GETFD);
    if (flags < 0) continue;  // of the folder that was just read
    ++more;
    CHECK((flags & FD_CLOEXEC) != 0);
  }
  CHECK(more >= 4);
}

TEST_CASE("NET-08: signals without SA_RESTART every millisecond do no harm") {
  processes::group g(2);
  reserved_port port;
  auto* through = processes::shared<std::atomic<int>>();
  for (int r : {0, 1}) {
    g.start([&, r]() -> cx::status {
      struct ::sigaction quiet {};
      quiet.sa_handler = [](int) {};
      ::sigaction(SIGALRM, &quiet, nullptr);
      ::itimerval const often{{0, 1000}, {0, 1000}};
      ::setitimer(ITIMER_REAL, &often, nullptr);
      store s = cx::tcp_store_rendezvous::create(r, 2, options(port.number()));
      if (!s) return s.error();
      for (int i = 0; i < 60; ++i) {
        std::string const mine = std::to_string(r) + "-" + std::to_string(i), other = std::to_string(1 - r) + "-" + std::to_string(i);
        std::string const long_one(256, static_cast<char>('a' + i % 26));
        if (cx::status p = s->put(mine.c_str(), value(long_one)); !p) return p;
        auto got = s->get(other.c_str(), in(30'000));
        if (!got) return got.error();
        if (text(*got) != long_one) return cx::status::failure(cx::errc::system, r, "wrong value");
      }
      // Nobody may go before both have got all: a value does not outlive its writer. (The timer has replaced the alarm of the group.)
      cx::nanoseconds const deadline = in(30'000);
      for (++*through; *through < 2 && cx::detail::monotonic_now() < deadline;) cx::detail::nap(1'000'000);
      s->conclude();
      return {};
    });
  }
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
}

TEST_CASE("LEK-01, LEK-03: cycles of coming and going, also such that fail half way, leave no descriptor and no thread") {
  ::rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  ::rlimit few = before;
  few.rlim_cur = 64;
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::size_t files = 0, tasks = 0;
  int const cycles = support::under_sanitizer ? 60 : 300;
  for (int i = 0; i < cycles; ++i) {
    store a = lead(2);
    REQUIRE_MESSAGE(a.has_value(), a.error().what());
    if (i % 10 == 5) {
      store wrong = follow(a, 1, 2, 30'000, "wrong");
      CHECK(!wrong.has_value());
    }
    store b = follow(a, 1, 2);
    REQUIRE_MESSAGE(b.has_value(), b.error().what());
    CHECK(b->put("k", value("v")).ok());
    CHECK(a->get("k", in(30'000)).has_value());
    a->conclude();
    b->conclude();
    if (i == 3) files = descriptors(), tasks = threads();
    if (i == cycles - 1) {
      CHECK(descriptors() == files);
      CHECK(threads() == tasks);
    }
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("LEK-01: processes join through one store again and again, add up, and part") {
  reserved_port port;
  constexpr int n = 4;
  processes::group g(n);
  for (int r = 0; r < n; ++r) {
    g.start([&, r]() -> cx::status {
      store meeting = cx::tcp_store_rendezvous::create(r, n, options(port.number()));
      if (!meeting) return meeting.error();
      std::size_t files = 0;
      for (int round = 0; round < 5; ++round) {
        auto comm = cx::shared_memory::join(*meeting);
        if (!comm) return comm.error();
        std::vector<int> sum(5, r + round);
        if (cx::status s = comm->all_reduce(cx::in_place(sum), cx::sum{}); !s) return s;
        if (sum[4] != 6 + 4 * round) return cx::status::failure(cx::errc::system, r, "a sum is %d", sum[4]);
        if (round == 0) files = descriptors();
        if (round == 4 && descriptors() > files)
          return cx::status::failure(cx::errc::system, r, "%zu descriptors, %zu before", descriptors(), files);
      }
      return {};
    });
  }
  g.wait();
  for (int r = 0; r < n; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
}
