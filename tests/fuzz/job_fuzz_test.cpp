// Every function of sessions and sharded models in C, in any order and with any arguments, within jobs of `pliant run`.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "fuzz/job_calls.hpp"
#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

std::string job_toml(uint64_t seed, bool is_sharded, const std::string& answered) {
  return fmt::format(
      "config_version = 1\n[run]\nname = \"toy\"\nworkers = 1\nattach = \"required\"\ncommand = "
      "[\"{}/job_fuzz_worker\"]\n"
      "on_nonfinite = \"skip\"\nmax_restarts = {}\nsnapshot_every = 2\ndigest_every = {}\n[elasticity]\nuse = "
      "\"v0.1\"\n"
      "[elasticity.\"v0.1\"]\nmax_train_batch_size = 8\nmicro_batch_sizes = [2, 4]\n[lr]\nuse = \"sqrt\"\nbase_lr = "
      "0.01\n[lr.groups]\nhead = 0.02\n"
      "[accelerator]\nuse = \"host\"\n{}[app]\nseed = {}\nanswered = \"{}\"\n",
      PLIANT_TEST_BIN_DIR, is_sharded ? 1 : 0, 1 - seed % 2, is_sharded ? "[coordinator]\nuse = \"eager\"\n" : "", seed,
      answered);
}

/// First values of the worker's two parameters, as a .safetensors file.
void write_weights(const std::string& file) {
  const std::string header =
      R"({"w0":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"w1":{"dtype":"F32","shape":[4],"data_offsets":[16,32]}})";
  const uint64_t bytes = header.size();
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  out << header << std::string(32, '\0');
}

uint64_t jobs_from(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("calls of jobs in any order with any arguments harm no job, and each of them is answered in some") {
  const uint64_t first = jobs_from("PLIANT_FUZZ_FIRST", 0);
  const uint64_t count = jobs_from("PLIANT_FUZZ_ROUNDS", 4000) / 250;
  // A worker has joined before it plays; and of one rank no micro-batch is without rows.
  std::set<std::string> answered{"pliant_session_attach", "pliant_session_attach_at", "pliant_sharded_repeat_pass"};
  for (uint64_t seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    JobRunner job;
    const auto file = job.folder() / "answered";
    job.config(job_toml(seed, seed % 3 != 0, file.string()));
    write_weights(file.string() + ".safetensors");
    const Ended ended = job.run_json({"--show-logs"});
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(job.processes_left() == 0);
    std::istringstream names(read_all(file.string()));
    for (std::string name; std::getline(names, name);) answered.insert(name);
  }
  if (count < 16) return;
  for (const auto& call : job_calls()) {
    CAPTURE(call.first);
    CHECK(answered.count(call.first) == 1);
  }
}
