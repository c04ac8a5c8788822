// The command line of pliant-check.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "testkit/check.hpp"

namespace pliant::testkit {

/// What a user got wrong; exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What the process is for.
enum class Role { kRun, kList, kProbe, kCheck, kRank };

struct Arguments {
  Role role = Role::kRun;
  Subject subject;
  std::string shown_file;  ///< as the user wrote it
  bool json = false;
  std::string only;
  std::string reproduce;  ///< id of the check, empty for none
  int32_t limit_s = 0;    ///< 0: each check's own
  std::string program = "pliant-check";
  std::string name;  ///< of the check or of the ranks' script
  int32_t rank = 0;
  int32_t world_size = 1;
  std::vector<int64_t> numbers;  ///< what the check hands to its ranks
};

/// Throws UsageError. `json` is set before anything can go wrong, for the form of the error.
void parse(const std::vector<std::string>& words, Arguments& arguments);

/// The words that make parse() see the same subject again in a started process.
std::vector<std::string> words_for(const Subject& subject);

}  // namespace pliant::testkit
