// SPDX-License-Identifier: Apache-2.0
/// What is said about measurements: the table on the terminal, CSV, JSON, and a picture.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include "measure.hpp"

namespace perf {

/// What the numbers were measured on.
struct surroundings {
  std::string processor;
  unsigned cores = 0;
  int slots = 0;
  std::size_t slot_bytes = 0;
  int lanes = 0;
};

struct finished_job {
  job what;
  std::vector<row> rows;
};

surroundings look_around(collectx::transport_options const& chosen);

void print_header(settings const& all, surroundings const& here);
void print_titles(job const& what);
void print_row(job const& what, row const& r);
void print_summary(std::vector<finished_job> const& jobs);
std::int64_t count_wrong(std::vector<finished_job> const& jobs);

void write_csv(std::FILE* file, int ranks, std::vector<finished_job> const& jobs);
nlohmann::json to_json(settings const& all, surroundings const& here, std::vector<finished_job> const& jobs);

/// Whether the interpreter can draw at all: asked before anything is measured. Empty, or what is missing.
std::string cannot_draw(std::string const& python);
/// False where the script failed; it has said why.
bool draw(std::string const& python, nlohmann::json const& rows, std::string const& picture);

}  // namespace perf
