// SPDX-License-Identifier: Apache-2.0
// argument: join; environment; miss (rank 2 never comes); headless (rank 0 never comes)
#include <collectx/rendezvous/environment.hpp>
#include <collectx/rendezvous/pmix.hpp>

#include <string>

#include "rank.hpp"

int main(int, char** arguments) {
  namespace cx = collectx;
  ::alarm(100);
  std::string const what = arguments[1];
  char const* const text = std::getenv("PMIX_RANK");
  int const rank = text == nullptr ? -1 : std::atoi(text);
  auto const create = [](std::chrono::nanoseconds timeout) { return cx::pmix_rendezvous::create(timeout); };
  auto const from_environment = [](std::chrono::nanoseconds timeout) {
    cx::environment_options options;
    options.timeout = timeout;
    return cx::environment_rendezvous::create<cx::pmix_rendezvous>(options);
  };
  // A launcher ends a job of which one process never calls PMIx and leaves.
  if (rank >= 0 && !cx::detail::pmix_session::get()) return 1;
  if (what == "join") return launchers::leave(rank, launchers::join(rank, 4, create));
  if (what == "environment") return launchers::leave(rank, launchers::join(rank, 4, from_environment));
  if (what == "miss") return launchers::leave(rank, launchers::miss(rank, 2, "rank 2 of 4 never came to ", create));
  if (what == "headless") return launchers::leave(rank, launchers::miss(rank, 0, "rank 0 never came: it has not told PMIx", create));
  // Alone: one clear error, also the second time.
  for (int i = 0; i < 2; ++i) {
    cx::status const s = create(std::chrono::seconds(1)).error();
    if (std::strstr(s.what(), "no PMIx launcher (mpirun, prterun, srun --mpi=pmix) has started this process") == nullptr) return 1;
  }
  return launchers::leave(0, {});
}
