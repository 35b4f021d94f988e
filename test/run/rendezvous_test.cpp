// SPDX-License-Identifier: Apache-2.0
// compile: -O0
#include <collectx/rendezvous/file.hpp>
#include <collectx/rendezvous/in_process.hpp>

#include <doctest/doctest.h>

#include "processes.hpp"
#include "support/promises.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cx = collectx;

namespace {

using support::in, support::keeps_its_promises, support::text, support::value;

auto in_file(processes::scratch const& place, int rank, int size) { return cx::file_rendezvous::create(place.file().c_str(), rank, size); }

void write(processes::scratch const& place, std::string const& contents) { std::ofstream(place.file()) << contents; }
std::string read(processes::scratch const& place) {
  std::ifstream f(place.file());
  return {std::istreambuf_iterator<char>(f), {}};
}

}  // namespace

TEST_CASE("in process: values are put, got, kept from being overwritten, and withdrawn") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  auto a = table->of(0), b = table->of(1);
  CHECK(a.rank() == 0);
  CHECK(b.rank() == 1);
  CHECK(b.size() == 2);
  for (int i = 0; i < 100; ++i) keeps_its_promises(a, b);  // places are used again
}

TEST_CASE("in process: a full table is an error") {
  auto table = cx::in_process_rendezvous::create(1);
  REQUIRE(table.has_value());
  auto a = table->of(0);
  cx::status s;
  int count = 0;
  for (; s.ok() && count < 1000; ++count) s = a.put(std::to_string(count).c_str(), value("v"));
  CHECK(s.code() == cx::errc::out_of_memory);
  a.conclude();
  CHECK(a.put("again", value("v")).ok());
}

TEST_CASE("in process: forked children meet in the table of their parent; who asks first waits") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  processes::group g(2);
  for (int r : {1, 0}) {
    g.start([&, r]() -> cx::status {
      auto mine = table->of(r);
      if (r == 0) {
        cx::detail::nap(20'000'000);
        return mine.put("k", value("hello"));
      }
      auto got = mine.get("k", in(30'000));
      if (!got) return got.error();
      return text(*got) == "hello" ? cx::status{} : cx::status::failure(cx::errc::system, r, "got something else");
    });
  }
  g.wait();
  for (int i = 0; i < 2; ++i) CHECK_MESSAGE(g[i].code == 0, g[i].text);
}

TEST_CASE("file: values are put, got, kept from being overwritten, and withdrawn; then the file is gone") {
  processes::scratch place;
  auto a = in_file(place, 0, 2), b = in_file(place, 1, 2);
  REQUIRE(a.has_value());
  REQUIRE(b.has_value());
  for (int i = 0; i < 3; ++i) {
    keeps_its_promises(*a, *b);
    CHECK(processes::count_in(place.folder().c_str()) == 2);
  }
}

TEST_CASE("file: the deadline of a get is kept, and a get makes no file") {
  processes::scratch place;
  auto a = in_file(place, 0, 2);
  REQUIRE(a.has_value());
  cx::nanoseconds const begun = cx::detail::monotonic_now();
  CHECK(a->get("k", in(50)).error().code() == cx::errc::timeout);
  CHECK(cx::detail::monotonic_now() - begun >= 50'000'000);
  CHECK(processes::count_in(place.folder().c_str()) == 2);
}

TEST_CASE("SHM-01: what a dead process has put is not there, and is cleared away by the next put") {
  processes::scratch place;
  processes::group g(1);
  g.start([&]() -> cx::status {
    auto mine = in_file(place, 0, 2);
    return mine ? mine->put("k", value("stale")) : mine.error();
  });
  g.wait();
  REQUIRE_MESSAGE(g[0].code == 0, g[0].text);
  CHECK(processes::count_in(place.folder().c_str()) == 3);
  auto a = in_file(place, 0, 2), b = in_file(place, 1, 2);
  REQUIRE(a.has_value());
  REQUIRE(b.has_value());
  CHECK(b->get("k", in(0)).error().code() == cx::errc::timeout);
  CHECK(a->put("k", value("fresh")).ok());
  CHECK(text(*b->get("k", in(0))) == "fresh");
  std::string const contents = read(place);
  CHECK(std::count(contents.begin(), contents.end(), '\n') == 1);
  a->conclude();
  CHECK(processes::count_in(place.folder().c_str()) == 2);
}

TEST_CASE("SHM-01: a record of a process before the last boot, or of a number that is somebody else's now, counts as dead") {
  processes::scratch place;
  auto a = in_file(place, 0, 2), b = in_file(place, 1, 2);
  REQUIRE(a.has_value());
  REQUIRE(b.has_value());
  REQUIRE(a->put("k", value("v")).ok());
  std::string const mine = read(place);
  cx::process_identity const me = cx::this_process();
  std::string const start = " " + std::to_string(me.start) + " ";
  std::size_t const at = mine.find(start);
  REQUIRE(at != std::string::npos);

  std::string reused = mine;
  reused.replace(at, start.size(), " " + std::to_string(me.start - 1) + " ");
  write(place, reused);
  CHECK(b->get("k", in(0)).error().code() == cx::errc::timeout);

  std::size_t const boot = mine.find('-');
  REQUIRE(boot != std::string::npos);
  std::string other_boot = mine;
  other_boot[boot + 1] = other_boot[boot + 1] == '0' ? '1' : '0';
  write(place, other_boot);
  CHECK(b->get("k", in(0)).error().code() == cx::errc::timeout);

  write(place, mine);
  CHECK(text(*b->get("k", in(0))) == "v");
}

TEST_CASE("file: a file that is somebody's own is refused and not touched") {
  processes::scratch place;
  auto a = in_file(place, 0, 2);
  REQUIRE(a.has_value());
  for (std::string const contents : {"my thesis\n", "+ 1 2 3\n", "\n", "+ 1 2 3 b 0 k 6162"}) {
    write(place, contents);
    CHECK(a->put("k", value("v")).code() == cx::errc::invalid_argument);
    CHECK(a->get("k", in(0)).error().code() == cx::errc::invalid_argument);
    a->conclude();
    CHECK(read(place) == contents);
  }
  ::unlink(place.file().c_str());
  REQUIRE(::mkfifo(place.file().c_str(), 0600) == 0);  // nobody is at its other end
  CHECK(a->get("k", in(0)).error().code() == cx::errc::invalid_argument);
  CHECK(!a->put("k", value("v")).ok());
  ::unlink(place.file().c_str());
  REQUIRE(::symlink("/etc/hostname", place.file().c_str()) == 0);
  CHECK(a->put("k", value("v")).code() == cx::errc::system);
}

TEST_CASE("LEK-04: a malformed file is the same error with its name and line the 500th time, and no descriptor is left") {
  ::rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  ::rlimit const few{64, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  processes::scratch place;
  auto a = in_file(place, 0, 2);
  REQUIRE(a.has_value());
  REQUIRE(a->put("k", value("v")).ok());
  std::string const good = read(place);
  std::size_t const descriptors = processes::count_in("/proc/self/fd");
  std::pair<std::string, int> const malformed[] = {
      {"* " + good.substr(2), 1},                       // another version
      {good + good.substr(0, good.size() - 1), 2},      // unterminated
      {good + "\n", 2},                                 // an empty line
      {std::string("\0\1\2", 3) + good, 1},             // binary
      {good + std::string(1, '\0') + "my thesis\n", 2}  // and behind a good line
  };
  for (auto const& [contents, line] : malformed) {
    write(place, contents);
    std::string const expected = place.file() + " is no rendezvous file: line " + std::to_string(line) + " is";
    for (int i = 0; i < 500; ++i) {
      cx::status const got = a->get("k", in(1000)).error(), put = a->put("k", value("v"));
      REQUIRE_MESSAGE(got.code() == cx::errc::invalid_argument, got.what());
      REQUIRE_MESSAGE(std::strstr(got.what(), expected.c_str()) != nullptr, got.what());
      REQUIRE_MESSAGE(put.code() == cx::errc::invalid_argument, put.what());
    }
    CHECK(read(place) == contents);
  }
  CHECK(processes::count_in("/proc/self/fd") == descriptors);
  CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("file: a folder that does not exist, and a path that is too long, are errors that name it") {
  auto a = cx::file_rendezvous::create("/nonexistent/folder/meet", 0, 2);
  REQUIRE(a.has_value());
  cx::status const s = a->put("k", value("v"));
  CHECK(s.code() == cx::errc::system);
  CHECK(s.native() == ENOENT);
  CHECK(std::strstr(s.what(), "/nonexistent/folder/meet") != nullptr);
  CHECK(cx::file_rendezvous::create(std::string(5000, 'a').c_str(), 0, 2).error().code() == cx::errc::invalid_argument);
}

TEST_CASE("file: many processes put and get at once, and none loses a record") {
  processes::scratch place;
  constexpr int n = 8;
  auto* through = processes::shared<std::atomic<int>>();
  processes::group g(n);
  for (int r = 0; r < n; ++r) {
    g.start([&, r]() -> cx::status {
      auto mine = in_file(place, r, n);
      if (!mine) return mine.error();
      if (cx::status s = mine->put(("key" + std::to_string(r)).c_str(), value("value" + std::to_string(r))); !s) return s;
      for (int q = 0; q < n; ++q) {
        auto got = mine->get(("key" + std::to_string(q)).c_str(), in(30'000));
        if (!got) return got.error();
        if (text(*got) != "value" + std::to_string(q)) return cx::status::failure(cx::errc::system, r, "wrong value of %d", q);
      }
      // Nobody may go before all have got all: a value does not outlive its writer.
      for (++*through; *through < n;) cx::detail::nap(1'000'000);
      if (r == 0) mine->conclude();
      return {};
    });
  }
  g.wait();
  for (int r = 0; r < n; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
}
