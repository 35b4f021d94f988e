// SPDX-License-Identifier: Apache-2.0
/// One model trained by several ranks that share out every batch. Exits with 0 only if it has learnt, if all ranks hold the same
/// parameters to the bit, and if one process that trains alone comes to the same ones.
#include <collectx/collectx.hpp>
#include <collectx/rendezvous/environment.hpp>
#ifdef WITH_PMIX
#include <collectx/rendezvous/pmix.hpp>
#endif

#include <CLI/CLI.hpp>

#include <unistd.h>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <optional>

#include "model.hpp"

namespace cx = collectx;

// [composed]
// A ring inside each group of ranks, a double tree across the groups: composed of two schedules that know nothing of each other.
using gradient_sum = cx::algo::hierarchical<cx::algo::ring, cx::algo::double_binary_tree>;
static_assert(cx::proven(gradient_sum{}, cx::all_reduce{}, 4));
// [composed]

namespace {

constexpr std::size_t batch = 64;
constexpr double rate = 0.1, least_accuracy = 0.95, most_difference = 1e-4;

struct choices {
  int ranks = 4;
  int epochs = 60;
  std::string data = DATA_PARALLEL_FOLDER "/digits.csv";
  std::string transport = "shared_memory";
  std::string plot;
};

struct history {
  std::vector<double> loss, accuracy;
};

/// Stochastic gradient descent as rank `rank` of `size` does it. `exchange(sums)` makes everybody's sums the sums over all ranks.
/// Sums are of doubles, so that adding them up by shares, not one by one, changes the parameters by rounding only: about 1e-15.
template <class Exchange>
cx::status train(model& m, digits const& data, int epochs, int rank, int size, history& seen, Exchange const& exchange) {
  std::vector<std::size_t> order(data.train.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  generator random(7);                                   // the same on all ranks: they shuffle alike
  std::vector<double> sums(model::parameter_count + 1);  // the last: of the loss
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    double loss = 0;
    for (std::size_t first = 0; first < order.size(); first += batch) {
      std::size_t const count = std::min(batch, order.size() - first);
      cx::extent const mine = cx::share(count, size, rank);
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::size_t i = 0; i < mine.count; ++i) sums.back() += m.backward(data.train[order[first + mine.first + i]], sums);
      if (cx::status s = exchange(sums); !s) return s;
      for (std::size_t i = 0; i < model::parameter_count; ++i) m.parameters()[i] -= rate / static_cast<double>(count) * sums[i];
      loss += sums.back();
    }
    seen.loss.push_back(loss / static_cast<double>(order.size()));
    seen.accuracy.push_back(rank == 0 ? accuracy(m, data.test) : 0);
    if (rank == 0 && size > 1 && ((epoch + 1) % 10 == 0 || epoch == 0 || epoch + 1 == epochs)) {
      std::printf("  epoch %3d  loss %.5f  right on the test set %.2f %%\n", epoch + 1, seen.loss.back(), 100 * seen.accuracy.back());
      std::fflush(stdout);
    }
  }
  return {};
}

std::uint64_t hash_of(std::vector<double> const& values) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (double v : values) hash = (hash ^ std::bit_cast<std::uint64_t>(v)) * 0x100000001b3u;
  return hash;
}

struct identity {
  std::int64_t process;
  std::uint64_t parameters;
};

cx::status draw(choices const& chosen, history const& together, history const& alone) {
  std::string const command = "/usr/bin/python3 '" DATA_PARALLEL_FOLDER "/plot.py' '" + chosen.plot + "' '" + std::to_string(chosen.ranks) +
                              (chosen.transport == "loopback" ? " threads'" : " processes'");
  std::FILE* const script = ::popen(command.c_str(), "w");
  if (script == nullptr) return cx::status::system(errno, "cannot start /usr/bin/python3");
  for (std::size_t i = 0; i < alone.loss.size(); ++i)
    std::fprintf(script, "%zu %.9g %.9g %.9g %.9g\n", i + 1, together.loss[i], together.accuracy[i], alone.loss[i], alone.accuracy[i]);
  if (::pclose(script) != 0) return cx::status::failure(cx::errc::system, 0, "cannot draw %s: see above", chosen.plot.c_str());
  return {};
}

/// What rank 0 says in the end: ok only if the training was right in all three ways.
cx::status judge(model const& together, history const& seen, std::vector<identity> const& ranks, model const& alone) {
  bool same = true;
  std::printf("  rank  process  hash of the parameters\n");
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::printf("  %4zu  %7" PRId64 "  %016" PRIx64 "\n", r, ranks[r].process, ranks[r].parameters);
    same = same && ranks[r].parameters == ranks[0].parameters;
  }
  double difference = 0;
  for (std::size_t i = 0; i < model::parameter_count; ++i)
    difference = std::max(difference, std::abs(together.parameters()[i] - alone.parameters()[i]));
  std::printf("  right on the test set            %.2f %%\n", 100 * seen.accuracy.back());
  std::printf("  parameters the same on all ranks %s\n", same ? "to the bit" : "NO");
  std::printf("  largest difference to one alone  %.1e (%d parameters)\n", difference, static_cast<int>(model::parameter_count));
  if (!same) return cx::status::failure(cx::errc::aborted, 0, "the ranks ended with different parameters");
  if (!(difference <= most_difference))
    return cx::status::failure(cx::errc::aborted, 0, "parameters differ by %g from those of one process alone", difference);
  if (seen.accuracy.back() < least_accuracy)
    return cx::status::failure(cx::errc::aborted, 0, "accuracy %.2f %% is below 95 %%", 100 * seen.accuracy.back());
  return {};
}

template <class Tr>
cx::status be_rank(cx::communicator<Tr>& comm, digits const& data, choices const& chosen, model const& alone, history const& alone_seen) {
  model mine(1);
  history seen;
  auto const begin = std::chrono::steady_clock::now();
  // [step]
  auto const exchange = [&](std::vector<double>& sums) { return comm.all_reduce(cx::in_place(sums), cx::sum{}, gradient_sum{}); };
  // [step]
  if (cx::status s = train(mine, data, chosen.epochs, comm.rank(), comm.size(), seen, exchange); !s) return s;
  double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  std::vector<identity> const me{{::getpid(), hash_of(mine.parameters())}};
  std::vector<identity> ranks(static_cast<std::size_t>(comm.size()));
  if (cx::status s = comm.all_gather(me, ranks); !s) return s;
  if (comm.rank() != 0) return {};
  std::printf("  %.2f s\n", seconds);
  if (!chosen.plot.empty())
    if (cx::status s = draw(chosen, seen, alone_seen); !s) return s;
  return judge(mine, seen, ranks, alone);
}

std::optional<choices> parse(int count, char const* const* arguments, int& code) {
  choices chosen;
  CLI::App app("Trains one model on several ranks and checks that it is right.", "data_parallel");
  app.add_option("--ranks", chosen.ranks, "Number of ranks, where no launcher has started them")
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  app.add_option("--epochs", chosen.epochs, "Passes over the training set")->capture_default_str()->check(CLI::Range(1, 10000));
  app.add_option("--data", chosen.data, "Rows of 64 pixels and a digit")->check(CLI::ExistingFile);
  app.add_option("--transport", chosen.transport, "shared_memory (processes) or loopback (threads)")
      ->capture_default_str()
      ->check(CLI::IsMember({"shared_memory", "loopback"}));
  app.add_option("--plot", chosen.plot, "Draw the curves to this .png or .svg (needs matplotlib)");
  try {
    app.parse(count, arguments);
    return chosen;
  } catch (CLI::ParseError const& e) {
    code = app.exit(e);
    return std::nullopt;
  }
}

/// By mpirun, by torchrun, ..., or by hand, and then this process starts its ranks itself.
auto meet() {
#ifdef WITH_PMIX
  return cx::environment_rendezvous::create<cx::pmix_rendezvous>();
#else
  return cx::environment_rendezvous::create();
#endif
}

template <class F>
cx::status join(cx::environment_rendezvous& meeting, F const& f) {
  auto comm = cx::shared_memory::join(meeting);
  if (!comm) return comm.error();
  cx::status const s = f(*comm);
  return s ? s : comm->abort(s);
}

int run(choices const& chosen, cx::environment_rendezvous& meeting) {
  digits const data = read_digits(chosen.data);
  bool const threads = chosen.transport == "loopback" && !meeting.launched();
  int const ranks = meeting.launched() ? meeting.size() : chosen.ranks;
  model alone(1);
  history alone_seen;
  cx::status s;
  if (meeting.rank() == 0) {
    std::printf("%zu digits to learn from, %zu to be tested with, %d epochs\n", data.train.size(), data.test.size(), chosen.epochs);
    std::printf("one process alone\n");
    auto const begin = std::chrono::steady_clock::now();
    s = train(alone, data, chosen.epochs, 0, 1, alone_seen, [](std::vector<double>&) { return cx::status{}; });
    std::printf("  %.2f s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    std::printf("%d %s, gradients summed by hierarchical<ring, double_binary_tree>\n", ranks, threads ? "threads" : "processes");
  }
  auto const rank = [&](auto& comm) { return be_rank(comm, data, chosen, alone, alone_seen); };
  if (s) s = meeting.launched() ? join(meeting, rank) : threads ? cx::loopback::run(ranks, rank) : cx::shared_memory::run(ranks, rank);
  if (s) return 0;
  std::fprintf(stderr, "data_parallel: %s\n", s.what());
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    int code = 0;
    std::optional<choices> const chosen = parse(count, arguments, code);
    if (!chosen) return code;
    auto meeting = meet();
    if (meeting) return run(*chosen, *meeting);
    std::fprintf(stderr, "data_parallel: %s\n", meeting.error().what());
    return 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "data_parallel: %s\n", e.what());
    return 1;
  }
}
