// What a resumed job is told has changed.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "config/values/changes.hpp"

using pliant::config::changed_batch_options;
using Changes = std::vector<std::string>;

namespace {

const std::string kRun = R"(
[sampler]
use = "best_fit"
path = "/a/best_fit.so"
[sampler.best_fit]
max_tokens = 512
order = "random"
[data]
lengths = "a.npy"
[run]
seed = 1
workers = 2
)";

std::string with(std::string text, const std::string& old, const std::string& now) {
  text.replace(text.find(old), old.size(), now);
  return text;
}

}  // namespace

TEST_CASE("options that decide the batches are told when they differ, others and the plugin's place are not") {
  CHECK(changed_batch_options(kRun, kRun).empty());
  CHECK(changed_batch_options(kRun, with(with(kRun, "workers = 2", "workers = 4"), "/a/", "/b/")).empty());
  CHECK(changed_batch_options(kRun, with(with(kRun, "512", "256"), "seed = 1", "seed = 2")) ==
        Changes{"run.seed = 2 (was 1)", "sampler.best_fit.max_tokens = 256 (was 512)"});
  CHECK(changed_batch_options(kRun, with(kRun, "[run]", "loss_tokens = \"b.npy\"\n[run]")) ==
        Changes{"data.loss_tokens = \"b.npy\" (was not set)"});
  CHECK(changed_batch_options(kRun, with(kRun, "order = \"random\"\n", "")) ==
        Changes{"sampler.best_fit.order = not set (was \"random\")"});
}

TEST_CASE("of another sampler only the name is told, and a text that is no TOML tells nothing") {
  const std::string other =
      "[sampler]\nuse = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 9\n[data]\nlengths = "
      "\"a.npy\"\n[run]\nseed = 1\n";
  CHECK(changed_batch_options(kRun, other) == Changes{"sampler.use = \"next_fit\" (was \"best_fit\")"});
  CHECK(changed_batch_options("[", kRun).empty());
  CHECK(changed_batch_options(kRun, "").size() == 3);
}
