// Writes what the checks found: a table for people, one JSON object for programs.
#pragma once

#include <string>
#include <vector>

#include "testkit/runner.hpp"

namespace pliant::testkit {

struct Finding {
  Check check;
  Verdict verdict;
};

struct Counts {
  int pass = 0;
  int warn = 0;
  int skip = 0;
  int fail = 0;
  int crash = 0;
  void add(Result result);
};

/// What makes one check run again, and nothing else.
std::string reproduce_command(const Arguments& arguments, const Check& check);

std::string subject_of(const Check& check);
/// Lines of the table. A heading stands where the subject differs from the one before.
std::string heading(const Arguments& arguments, const Identity& identity);
/// Of the last of `findings`; a skip for the reason of the one before does not say it again.
std::string row(const Arguments& arguments, const std::vector<Finding>& findings, size_t id_width);
/// What failed once more, where it may have scrolled away, and the counts.
std::string closing(const Arguments& arguments, const Identity& identity, const std::vector<Finding>& findings,
                    const Counts& counts, size_t id_width);
/// `names` of checks, for --list.
std::string list_text(const std::vector<Check>& checks);

std::string report_json(const Arguments& arguments, const Identity& identity, const std::vector<Finding>& findings);
std::string list_json(const std::vector<Check>& checks);
std::string error_json(int exit_code, const std::string& message);

}  // namespace pliant::testkit
