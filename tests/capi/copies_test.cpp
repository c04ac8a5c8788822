// Several copies of core in one process: in the program itself, in libpliant, and in a libpliant that a module brought.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <optional>

#include "c_handles.hpp"
#include "pliant/batches.hpp"
#include "pliant/error.hpp"
#include "scratch_folder.hpp"

namespace fs = std::filesystem;
using namespace pliant::test;

namespace {

/// The functions of one copy that the tests call.
class Copy {
  void* library_;  // first: the others are found there

 public:
  explicit Copy(void* library) : library_(library) {}

#define PLIANT_OF_COPY(name) decltype(&pliant_##name) name = of<decltype(&pliant_##name)>("pliant_" #name)
  PLIANT_OF_COPY(config_parse);
  PLIANT_OF_COPY(config_free);
  PLIANT_OF_COPY(planner_make);
  PLIANT_OF_COPY(planner_plan);
  PLIANT_OF_COPY(planner_free);
  PLIANT_OF_COPY(plan_free);
  PLIANT_OF_COPY(dataset_make);
  PLIANT_OF_COPY(dataset_free);
  PLIANT_OF_COPY(batches_make);
  PLIANT_OF_COPY(batches_next);
  PLIANT_OF_COPY(batches_free);
  PLIANT_OF_COPY(batch_look);
  PLIANT_OF_COPY(batch_free);
  PLIANT_OF_COPY(last_message);
  PLIANT_OF_COPY(check_version);
#undef PLIANT_OF_COPY

 private:
  template <class Function>
  [[nodiscard]] Function of(const char* name) const {
    void* const found = ::dlsym(library_, name);
    REQUIRE(found != nullptr);
    return reinterpret_cast<Function>(found);
  }
};

pliant_config_options_t with_plugins(const char* const* dirs) {
  pliant_config_options_t options = PLIANT_INIT(pliant_config_options_t);
  options.needs = kJobNeeds;
  options.flags = PLIANT_CONFIG_NO_ENVIRONMENT;
  options.plugin_dirs = dirs;
  options.plugin_dir_count = 1;
  return options;
}

/// A job of one copy.
class Job {
 public:
  explicit Job(const Copy& of) : copy_(of) {
    const std::string toml = kJob;
    const char* const dirs[]{PLIANT_PLUGIN_DIR};
    const pliant_config_options_t options = with_plugins(dirs);
    pliant_config_t* config = nullptr;
    pliant_planner_t* planner = nullptr;
    pliant_plan_t* plan = nullptr;
    pliant_dataset_t* dataset = nullptr;
    const std::vector<int32_t> tokens = some_lengths();
    pliant_lengths_t lengths = PLIANT_INIT(pliant_lengths_t);
    lengths.count = tokens.size();
    lengths.lengths = tokens.data();
    must(of.config_parse(toml.data(), toml.size(), &options, &config, nullptr));
    must(of.planner_make(config, &planner, nullptr));
    must(of.planner_plan(planner, 0, &plan, nullptr));
    must(of.dataset_make(&lengths, &dataset, nullptr));
    must(of.batches_make(config, plan, dataset, &batches_, nullptr));
    must(of.dataset_free(dataset));
    must(of.plan_free(plan));
    must(of.planner_free(planner));
    must(of.config_free(config));
  }
  ~Job() { CHECK(copy_.batches_free(batches_) == PLIANT_OK); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Ids of the next batch; empty at the end.
  std::vector<int64_t> next() {
    pliant_batch_t* batch = nullptr;
    must(copy_.batches_next(batches_, &batch, nullptr));
    if (batch == nullptr) return {};
    pliant_batch_view_t view = PLIANT_INIT(pliant_batch_view_t);
    must(copy_.batch_look(batch, &view, nullptr));
    std::vector<int64_t> ids(view.ids, view.ids + view.entry_count);
    must(copy_.batch_free(batch));
    return ids;
  }

 private:
  void must(int32_t status) const {
    INFO(copy_.last_message(nullptr));
    REQUIRE(status == PLIANT_OK);
  }
  const Copy& copy_;
  pliant_batches_t* batches_ = nullptr;
};

/// A library of its own, as a module in another package brings it.
class BroughtAlong {
 public:
  BroughtAlong() {
    fs::copy_file(PLIANT_C_LIBRARY, folder_ / "libpliant-of-module.so");
    library_ = ::dlopen((folder_ / "libpliant-of-module.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library_ != nullptr);
  }
  ~BroughtAlong() { ::dlclose(library_); }
  BroughtAlong(const BroughtAlong&) = delete;
  BroughtAlong& operator=(const BroughtAlong&) = delete;
  [[nodiscard]] void* library() const { return library_; }

 private:
  ScratchFolder folder_;
  void* library_ = nullptr;
};

}  // namespace

TEST_CASE("two libraries and a core that is linked in give the same batches in one process, each beside the others") {
  const Copy own(RTLD_DEFAULT);
  const BroughtAlong module;
  const Copy other(module.library());
  const bool is_linked = own.config_parse == &pliant_config_parse;
  const bool is_another = own.config_parse != other.config_parse;
  CHECK(is_linked);
  REQUIRE(is_another);

  pliant::ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  const pliant::Config config = pliant::Config::parse(kJob, {"elasticity", "sampler", "balancer", "lr"}, overrides);
  const pliant::Plan plan = pliant::Planner(config).plan();
  pliant::Dataset dataset;
  dataset.lengths = some_lengths();
  pliant::Batches linked(config, plan, dataset);

  Job first(own);
  std::optional<Job> second(std::in_place, other);
  int steps = 0;
  while (const auto batch = linked.next()) {
    ++steps;
    CHECK(first.next() == batch->ids);
    if (second) CHECK(second->next() == batch->ids);
    if (steps == 3) second.reset();  // and the others go on
  }
  CHECK(first.next().empty());
  CHECK(steps > 5);
}

TEST_CASE("each copy of the library has its own last message") {
  const Copy own(RTLD_DEFAULT);
  const BroughtAlong module;
  const Copy other(module.library());
  REQUIRE(own.config_free(reinterpret_cast<pliant_config_t*>(std::vector<uint64_t>(8).data())) != PLIANT_OK);
  const std::string here = own.last_message(nullptr);
  CHECK(std::string(other.last_message(nullptr)).empty());
  CHECK(other.check_version(PLIANT_VERSION + 1000) == PLIANT_FAILED_PRECONDITION);
  CHECK(own.last_message(nullptr) == here);
  CHECK(std::string(other.last_message(nullptr)).find("pliant.h") != std::string::npos);
}
