// SPDX-License-Identifier: Apache-2.0
// compile: -O0
#include <collectx/network.hpp>

#include <doctest/doctest.h>

#include <net/if.h>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace cx = collectx;

namespace {

cx::network_address at(char const* host, int port = 0) {
  cx::detail::resolution const r = cx::detail::resolve(host, port);
  REQUIRE(r.error == 0);
  return r.found[0];
}

bool admits(char const* pattern, char const* name) {
  auto filter = cx::interface_filter::parse(pattern, "IFNAME");
  REQUIRE_MESSAGE(filter.has_value(), filter.error().what());
  return filter->admits(name);
}

std::string refused(char const* pattern) {
  auto filter = cx::interface_filter::parse(pattern, "IFNAME");
  CHECK(filter.error().code() == cx::errc::invalid_argument);
  return filter.error().what();
}

}  // namespace

TEST_CASE("NET-01: two addresses are in one network where their first bits agree") {
  CHECK(cx::same_subnet(at("172.17.16.2"), at("172.17.31.255"), 20));
  CHECK(!cx::same_subnet(at("172.17.16.2"), at("172.17.32.0"), 20));
  CHECK(!cx::same_subnet(at("127.0.0.1"), at("172.17.16.2"), 8));
  CHECK(cx::same_subnet(at("127.0.0.1"), at("172.17.16.2"), 0));
  CHECK(cx::same_subnet(at("10.1.2.3"), at("10.1.2.3"), 32));
  CHECK(!cx::same_subnet(at("10.1.2.3"), at("10.1.2.2"), 32));
  CHECK(cx::same_subnet(at("fe80::1"), at("fe80::2"), 64));
  CHECK(!cx::same_subnet(at("fe80::1"), at("fe80:1::1"), 64));
  CHECK(!cx::same_subnet(at("fe80::1"), at("10.1.2.3"), 0));
  CHECK(!cx::same_subnet(at("10.1.2.3"), at("10.1.2.3"), 33));
}

TEST_CASE("NET-02: patterns name interfaces by how they begin, exactly, or those to leave out") {
  CHECK(admits(nullptr, "anything"));
  CHECK(admits("eth", "eth0"));
  CHECK(!admits("eth", "ib0"));
  CHECK(admits("eth,ib", "ib0"));
  CHECK(admits("=eth0", "eth0"));
  CHECK(!admits("=eth0", "eth01"));
  CHECK(!admits("=eth", "eth0"));
  CHECK(!admits("^lo", "lo"));
  CHECK(admits("^lo", "eth0"));
  CHECK(!admits("^docker,lo", "docker0"));
  CHECK(admits("^=lo", "lo1"));
  CHECK(!admits("^=lo", "lo"));
}

TEST_CASE("NET-02: what is no pattern is quoted in the error") {
  for (char const* pattern : {"", "^", "=", "eth0,", ",eth0", "eth 0", "=lo=", "lo^", "a/b", "anametoolongfor1"})
    CHECK_MESSAGE(refused(pattern).find(std::string("IFNAME is \"") + pattern + "\"") != std::string::npos, refused(pattern));
}

TEST_CASE("NET-02: an interface that does not exist is an error that names it, those there are, and the variable; nothing else is tried") {
  cx::status const s = cx::local_address("nosuch0").error();
  CHECK(s.code() == cx::errc::invalid_argument);
  for (char const* part : {"COLLECTX_SOCKET_IFNAME", "\"nosuch0\"", "lo"}) CHECK_MESSAGE(std::strstr(s.what(), part) != nullptr, s.what());
  ::setenv("COLLECTX_SOCKET_IFNAME", "nosuch1", 1);
  CHECK(std::strstr(cx::local_address().error().what(), "\"nosuch1\"") != nullptr);
  ::setenv("COLLECTX_SOCKET_IFNAME", "", 1);
  CHECK(std::strstr(cx::local_address().error().what(), "is \"\"") != nullptr);
  ::unsetenv("COLLECTX_SOCKET_IFNAME");
}

TEST_CASE("this host has an address, and loopback where loopback is asked for") {
  auto any = cx::local_address();
  REQUIRE_MESSAGE(any.has_value(), any.error().what());
  CHECK(any->host()[0] != 0);
  auto lo = cx::local_address("=lo");
  REQUIRE_MESSAGE(lo.has_value(), lo.error().what());
  CHECK(lo->is_loopback());
}

TEST_CASE("of several addresses the one is taken that others most likely reach") {
  std::vector<std::pair<char const*, char const*>> const order = {
      {"lo", "127.0.0.1"}, {"eth0", "fe80::1"}, {"docker0", "172.17.0.1"}, {"eth0", "2001:db8::1"}, {"eth0", "10.0.0.1"}};
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    CHECK(cx::detail::reach_of(order[i].first, at(order[i].second)) < cx::detail::reach_of(order[i + 1].first, at(order[i + 1].second)));
  CHECK(cx::detail::reach_of("lo", at("::1")) == cx::detail::reach_of("lo", at("127.0.0.1")));
  CHECK(cx::detail::reach_of("eth0", at("169.254.1.1")) == cx::detail::reach_of("eth0", at("fe80::1")));
}

TEST_CASE("NET-04: endpoints are taken apart, with and without brackets and port") {
  char host[32];
  int port = 0;
  struct {
    char const *text, *host;
    int port;
  } const good[] = {{"node1", "node1", -1}, {"node1:29500", "node1", 29500}, {"10.0.0.1:0", "10.0.0.1", 0}, {"::1", "::1", -1},
                    {"[::1]", "::1", -1},   {"[::1]:29500", "::1", 29500},   {"fe80::1", "fe80::1", -1}};
  for (auto const& g : good) {
    CAPTURE(g.text);
    CHECK(cx::detail::split_endpoint(g.text, host, port));
    CHECK(std::string(host) == g.host);
    CHECK(port == g.port);
  }
  for (char const* bad : {"", ":29500", "node1:", "node1:x", "node1:65536", "node1:-1", "[::1", "[]", "[::1]29500",
                          "[::1]:", "anamethatislongerthanthehostmaybe"}) {
    CAPTURE(bad);
    CHECK(!cx::detail::split_endpoint(bad, host, port));
  }
}

TEST_CASE("addresses know their family, port and text") {
  cx::network_address four = at("10.0.0.1", 80), six = at("::1", 81);
  CHECK(four.family() == AF_INET);
  CHECK(six.family() == AF_INET6);
  CHECK(four.port() == 80);
  six.set_port(82);
  CHECK(six.port() == 82);
  CHECK(std::string(four.host()) == "10.0.0.1");
  CHECK(std::string(six.host()) == "::1");
  CHECK(six.is_loopback());
  CHECK(!at("::2").is_loopback());
  CHECK(!four.is_loopback());
  CHECK(cx::network_address().family() == AF_UNSPEC);
  CHECK(!cx::network_address().is_loopback());
}

TEST_CASE("digits are digits only, and in range") {
  long long v = 0;
  CHECK(cx::detail::parse_digits("0", 0, 3, v));
  CHECK(cx::detail::parse_digits("65535", 0, 65535, v));
  CHECK(v == 65535);
  for (char const* bad : {"", "-1", "+1", " 1", "1 ", "4", "abc", "1e0", "99999999999999999999999999"})
    CHECK(!cx::detail::parse_digits(bad, 0, 3, v));
}
