// Runs the pliant binary and keeps what it said.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "scratch_folder.hpp"

namespace pliant::test {

struct Outcome {
  int exit_code = -1;  ///< 128 + n for signal n
  std::string out;
  std::string err;
};

/// `pliant ARGS` in `folder`, with `environment` ("NAME=value") beside the present one. `meanwhile` gets the running
/// process, which is waited for afterwards. `program` runs in place of the one that was built.
inline Outcome run_pliant(const ScratchFolder& folder, const std::vector<std::string>& args,
                          const std::vector<std::string>& environment = {},
                          const std::function<void(pid_t)>& meanwhile = {},
                          const std::string& program = std::string(PLIANT_BIN_DIR) + "/pliant") {
  const std::filesystem::path out = folder.path() / ".stdout";
  const std::filesystem::path err = folder.path() / ".stderr";
  std::vector<std::string> words{program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables = environment;
  for (char** entry = ::environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);

  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    const int to_out = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int to_err = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (::dup2(to_out, 1) < 0 || ::dup2(to_err, 2) < 0 || ::chdir(folder.path().c_str()) != 0) ::_exit(126);
    ::execve(program.c_str(), argv.data(), envp.data());
    ::_exit(127);
  }
  if (meanwhile) meanwhile(child);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_all(out), read_all(err)};
}

}  // namespace pliant::test
