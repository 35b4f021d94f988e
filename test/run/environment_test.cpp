// SPDX-License-Identifier: Apache-2.0
// compile: -O0
#include <collectx/launch.hpp>
#include <collectx/rendezvous/environment.hpp>

#include <doctest/doctest.h>

#include "processes.hpp"
#include "support/promises.hpp"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cx = collectx;

namespace {

using way = cx::detail::surroundings::way;
using variables = std::vector<std::pair<char const*, std::string>>;

/// Nothing of what may start ranks is set but these.
class surrounded_by {
 public:
  explicit surrounded_by(variables const& set) {
    for (char const* name : all) {
      char const* const before = std::getenv(name);
      before_.push_back(before == nullptr ? std::optional<std::string>() : before);
      ::unsetenv(name);
    }
    for (auto const& [name, value] : set) ::setenv(name, value.c_str(), 1);
  }
  surrounded_by(surrounded_by&&) = delete;
  ~surrounded_by() {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      ::unsetenv(all[i]);
      if (before_[i]) ::setenv(all[i], before_[i]->c_str(), 1);
    }
  }

 private:
  static constexpr char const* all[] = {
      "COLLECTX_RENDEZVOUS", "COLLECTX_JOIN_TIMEOUT", "COLLECTX_MASTER_PORT",         "COLLECTX_SECRET", "RANK",         "WORLD_SIZE",
      "MASTER_ADDR",         "MASTER_PORT",           "TORCHELASTIC_USE_AGENT_STORE", "PMIX_NAMESPACE",  "SLURM_PROCID", "SLURM_NTASKS",
      "SLURM_STEP_ID",       "SLURM_STEP_NUM_TASKS"};
  std::vector<std::optional<std::string>> before_;
};

cx::detail::surroundings look(variables const& set) {
  surrounded_by s(set);
  auto seen = cx::detail::surroundings::look();
  REQUIRE_MESSAGE(seen.has_value(), seen.error().what());
  return *seen;
}

/// The one error that all rendezvous of the environment meet there.
std::string refused(variables const& set) {
  surrounded_by s(set);
  cx::status const why = cx::environment_rendezvous::create().error();
  CHECK_MESSAGE(why.code() == cx::errc::invalid_argument, why.what());
  return why.what();
}

bool has(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

variables torchrun(char const* rank, char const* size, char const* address, char const* port, variables more = {}) {
  more.insert(more.end(), {{"RANK", rank}, {"WORLD_SIZE", size}, {"MASTER_ADDR", address}, {"MASTER_PORT", port}});
  return more;
}

/// A launcher as a program would pass it.
struct pretended_launcher : cx::file_rendezvous {
  static inline bool here = true;
  static inline std::string path;
  static bool present() { return here; }
  static cx::result<pretended_launcher> create(std::chrono::nanoseconds) {
    auto file = cx::file_rendezvous::create(path.c_str(), 1, 2);
    if (!file) return file.error();
    return pretended_launcher(std::move(*file));
  }
  explicit pretended_launcher(cx::file_rendezvous file) : cx::file_rendezvous(std::move(file)) {}
};

}  // namespace

TEST_CASE("without anything in the environment, a process is a group of one, which can do all that groups can") {
  surrounded_by const nothing(variables{});
  auto meeting = cx::environment_rendezvous::create();
  REQUIRE(meeting.has_value());
  CHECK(meeting->rank() == 0);
  CHECK(meeting->size() == 1);
  CHECK(!meeting->launched());
  CHECK(meeting->put("k", support::value("v")).ok());
  CHECK(support::text(*meeting->get("k", support::in(0))) == "v");
  meeting->conclude();
  CHECK(meeting->get("k", support::in(0)).error().code() == cx::errc::timeout);
  auto comm = cx::shared_memory::join(*meeting);
  REQUIRE_MESSAGE(comm.has_value(), comm.error().what());
  int sum = 5;
  CHECK(comm->all_reduce(cx::in_place(std::span(&sum, 1)), cx::sum{}).ok());
  CHECK(sum == 5);
}

TEST_CASE("torchrun: rank, size, address and port; where its own store is at the port, the one above or the one that is named") {
  auto s = look(torchrun("3", "4", "node1", "29500"));
  CHECK(s.how == way::store);
  CHECK(s.launched);
  CHECK(s.rank == 3);
  CHECK(s.size == 4);
  CHECK(s.port == 29500);
  CHECK(look(torchrun("3", "4", "node1", "29500", {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).port == 29501);
  CHECK(look(torchrun("3", "4", "node1", "29500", {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).port == 29500);
  CHECK(look(torchrun("3", "4", "node1", "29500", {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"COLLECTX_MASTER_PORT", "7"}})).port == 7);
  CHECK(look(torchrun("3", "4", "node1", "29500", {{"COLLECTX_MASTER_PORT", "7"}})).port == 7);
}

TEST_CASE("the order: what a user says, then torchrun's ranks even in a job of PMIx or Slurm, then PMIx, then Slurm") {
  variables const slurm = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}, {"PMIX_NAMESPACE", "job"}};
  CHECK(look(slurm).how == way::launcher);
  CHECK(look(torchrun("0", "2", "h", "1", slurm)).how == way::store);
  CHECK(look(torchrun("0", "2", "h", "1", {{"COLLECTX_RENDEZVOUS", "file:/x"}, {"PMIX_NAMESPACE", "job"}})).how == way::file);
}

TEST_CASE("Slurm without PMIx: the task of the step and where rank 0 is; a batch script without a step is alone") {
  variables const addressed = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "8"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "5"}};
  auto s = look(addressed);
  CHECK(s.how == way::store);
  CHECK(s.rank == 1);
  CHECK(s.size == 8);
  CHECK(s.port == 5);
  variables step = addressed;
  step.insert(step.end(), {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  CHECK(look(step).size == 2);
  CHECK(look({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).how == way::alone);
  CHECK(has(refused({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}}), "MASTER_ADDR is not set"));
}

TEST_CASE("one rank alone needs no address, however it was started") {
  auto const s = look({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  CHECK(s.how == way::alone);
  CHECK(s.launched);
}

TEST_CASE("what is malformed is one error each, which names the variable, what it holds and what it needs") {
  char const* const a = "127.0.0.1";
  CHECK(has(refused(torchrun("abc", "4", a, "1")), "RANK is \"abc\": it needs a number from 0 to 3"));
  CHECK(has(refused(torchrun("4", "4", a, "1")), "RANK is \"4\": it needs a number from 0 to 3"));
  CHECK(has(refused(torchrun("-1", "4", a, "1")), "RANK is \"-1\""));
  CHECK(has(refused(torchrun("", "4", a, "1")), "RANK is \"\""));
  CHECK(has(refused(torchrun("0", "0", a, "1")), "WORLD_SIZE is \"0\": it needs a number from 1"));
  CHECK(has(refused(torchrun("0", "", a, "1")), "WORLD_SIZE is \"\""));
  CHECK(has(refused(torchrun("0", "4 ", a, "1")), "WORLD_SIZE is \"4 \""));
  CHECK(has(refused(torchrun("0", "99999999999999999999", a, "1")), "WORLD_SIZE is \"99999999999999999999\""));
  CHECK(has(refused(torchrun("0", "4", a, "99999")), "MASTER_PORT is \"99999\": it needs a number from 1 to 65535"));
  CHECK(has(refused(torchrun("0", "4", a, "0")), "MASTER_PORT is \"0\""));
  CHECK(has(refused(torchrun("0", "4", a, "")), "MASTER_PORT is \"\""));
  CHECK(has(refused(torchrun("0", "4", "", "1")), "MASTER_ADDR is \"\""));
  CHECK(has(refused(torchrun("0", "4", "h:1", "1")), "MASTER_ADDR is \"h:1\""));
  CHECK(has(refused(torchrun("0", "4", a, "65535", {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})), "it needs a number from 1 to 65534"));
  CHECK(has(refused(torchrun("0", "4", a, "1", {{"COLLECTX_MASTER_PORT", "x"}})), "COLLECTX_MASTER_PORT is \"x\""));
  CHECK(has(refused({{"RANK", "0"}}), "WORLD_SIZE is not set"));
  CHECK(has(refused({{"WORLD_SIZE", "4"}}), "RANK is not set: it needs a number from 0 to 3"));
  CHECK(has(refused({{"RANK", "0"}, {"WORLD_SIZE", "4"}}), "MASTER_ADDR is not set"));
  CHECK(has(refused({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", a}}), "MASTER_PORT is not set"));
  CHECK(has(refused({{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "4"}, {"MASTER_ADDR", a}}), "SLURM_PROCID is \"x\""));
  CHECK(has(refused({{"SLURM_PROCID", "0"}, {"MASTER_ADDR", a}}), "SLURM_NTASKS is not set"));
  for (char const* bad : {"", "file:", "/path", "tcp:1"})
    CHECK(has(refused({{"COLLECTX_RENDEZVOUS", bad}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}),
              (std::string("\"") + bad + "\": it needs file:/path").c_str()));
  CHECK(has(refused({{"COLLECTX_RENDEZVOUS", "file:/x"}}), "WORLD_SIZE is not set"));
}

TEST_CASE("PMIx that the program does not know is one error, which says what to include or to set; a launcher that is passed is used") {
  surrounded_by const pmix(variables{{"PMIX_NAMESPACE", "job"}});
  processes::scratch place;
  pretended_launcher::path = place.file();
  cx::status const why = cx::environment_rendezvous::create().error();
  CHECK(why.code() == cx::errc::not_supported);
  for (char const* part : {"collectx/rendezvous/pmix.hpp", "create<pmix_rendezvous>()", "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"})
    CHECK_MESSAGE(std::strstr(why.what(), part) != nullptr, why.what());
  auto meeting = cx::environment_rendezvous::create<pretended_launcher>();
  REQUIRE(meeting.has_value());
  CHECK(meeting->rank() == 1);
  CHECK(meeting->launched());
  pretended_launcher::here = false;
  CHECK(cx::environment_rendezvous::create<pretended_launcher>().error().code() == cx::errc::not_supported);
  pretended_launcher::here = true;
}

TEST_CASE("processes meet as the environment says: at a file, or at an address and a port") {
  processes::scratch place;
  // Rank 0's port is the kernel's choice, reserved by a socket that does not listen there.
  cx::detail::descriptor const reserved(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int const on = 1;
  ::setsockopt(reserved.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  cx::network_address here = cx::detail::resolve("127.0.0.1", 0).found[0];
  ::sockaddr_in bound{};
  ::socklen_t length = sizeof bound;
  REQUIRE(::bind(reserved.get(), here.get(), here.length()) == 0);
  REQUIRE(::getsockname(reserved.get(), reinterpret_cast<::sockaddr*>(&bound), &length) == 0);
  std::string const port = std::to_string(ntohs(bound.sin_port));
  for (bool at_file : {true, false}) {
    constexpr int n = 3;
    processes::group g(n);
    for (int r = 0; r < n; ++r) {
      g.start([&, r]() -> cx::status {
        variables set = torchrun(std::to_string(r).c_str(), "3", "127.0.0.1", port.c_str());
        if (at_file) set.push_back({"COLLECTX_RENDEZVOUS", "file:" + place.file()});
        surrounded_by const s(set);
        auto meeting = cx::environment_rendezvous::create();
        if (!meeting) return meeting.error();
        auto comm = cx::shared_memory::join(*meeting);
        if (!comm) return comm.error();
        std::vector<int> sum(3, r);
        if (cx::status e = comm->all_reduce(cx::in_place(sum), cx::sum{}); !e) return e;
        return sum[2] == 3 ? cx::status{} : cx::status::failure(cx::errc::system, r, "a sum is %d", sum[2]);
      });
    }
    g.wait();
    for (int r = 0; r < n; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
  }
}

namespace {

/// What rank 1 of 2 comes to by each way of joining in one process, where rank 0 never comes.
std::vector<cx::status> waits_in_vain(std::chrono::nanoseconds chosen) {
  cx::transport_options options;
  options.join_timeout = chosen;
  cx::tcp_store_options store;
  store.timeout = chosen;
  store.port = 1;
  processes::scratch place;
  auto table = cx::in_process_rendezvous::create(2);
  auto file = cx::file_rendezvous::create(place.file().c_str(), 1, 2);
  auto in_table = table->of(1);
  return {cx::shared_memory::join(table->of(1), options).error(), cx::shared_memory::join(*file, options).error(),
          cx::loopback_transport::join(in_table, options).error(), cx::tcp_store_rendezvous::create(1, 2, store).error()};
}

}  // namespace

TEST_CASE("COLLECTX_JOIN_TIMEOUT is how long ranks wait for each other where the program does not say it") {
  auto const all_late = [](std::string const& said, std::chrono::nanoseconds chosen) {
    surrounded_by const s(variables{{"COLLECTX_JOIN_TIMEOUT", said}});
    cx::nanoseconds const begun = cx::detail::monotonic_now();
    std::vector<cx::status> ends = waits_in_vain(chosen);
    if (chosen.count() == 0) {
      surrounded_by const too(torchrun("1", "2", "127.0.0.1", "1", {{"COLLECTX_JOIN_TIMEOUT", said}}));
      ends.push_back(cx::environment_rendezvous::create().error());
    }
    for (cx::status const& end : ends) CHECK_MESSAGE(end.code() == cx::errc::timeout, end.what());
    CHECK(cx::detail::monotonic_now() - begun < 30'000'000'000);
  };
  all_late("0.05", std::chrono::nanoseconds(0));
  all_late("600", std::chrono::milliseconds(50));

  for (char const* bad : {"", "soon", "0", "-1", "1e-12", "1e9", "nan", "60 s"}) {
    surrounded_by const s(variables{{"COLLECTX_JOIN_TIMEOUT", bad}});
    std::string const expected = "COLLECTX_JOIN_TIMEOUT is \"" + std::string(bad) + "\": it needs seconds";
    for (cx::status const& end : waits_in_vain({})) {
      CHECK(end.code() == cx::errc::invalid_configuration);
      CHECK_MESSAGE(has(end.what(), expected.c_str()), end.what());
    }
    CHECK(cx::tcp_store_rendezvous::create(0, 2).error().code() == cx::errc::invalid_configuration);
  }
}
