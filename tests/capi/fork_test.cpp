// Forks of a program in C while its other threads are in the midst of calls: the child calls what it likes.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "c_handles.hpp"
#include "thorough.hpp"

using namespace pliant::test;

// With sanitizers the memory of a child may be locked for good: theirs is not made for forks beside threads.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

constexpr unsigned kLongest = 60;  // seconds that a child may take; one that waits for good ends by SIGALRM

/// Whether a config is opened, planned, given batches and freed. Without doctest, which has locks of its own.
bool goes_from_config_to_batch(const pliant_dataset_t* dataset) {
  pliant_config_options_t options = PLIANT_INIT(pliant_config_options_t);
  options.needs = kJobNeeds;
  options.flags = PLIANT_CONFIG_NO_ENVIRONMENT;
  pliant_config_t* config = nullptr;
  pliant_plan_t* plan = nullptr;
  pliant_batches_t* batches = nullptr;
  pliant_batch_t* batch = nullptr;
  const bool is_made = pliant_config_parse(kJob, std::strlen(kJob), &options, &config, nullptr) == PLIANT_OK &&
                       pliant_plan_make(config, 0, &plan, nullptr) == PLIANT_OK &&
                       pliant_batches_make(config, plan, dataset, &batches, nullptr) == PLIANT_OK &&
                       pliant_batches_next(batches, &batch, nullptr) == PLIANT_OK && batch != nullptr;
  const bool is_freed = pliant_batch_free(batch) == PLIANT_OK && pliant_batches_free(batches) == PLIANT_OK &&
                        pliant_plan_free(plan) == PLIANT_OK && pliant_config_free(config) == PLIANT_OK;
  return is_made && is_freed;
}

/// Whether texts of the config that the parent has are read.
bool reads(const pliant_config_t* config) {
  const char* name = nullptr;
  const char* toml = nullptr;
  uint64_t bytes = 0;
  return pliant_config_app_text(config, "name", "", &name, nullptr) == PLIANT_OK && std::strlen(name) > 0 &&
         pliant_config_resolved(config, &toml, &bytes, nullptr) == PLIANT_OK && std::strlen(toml) == bytes;
}

/// Whether a call is refused, with words.
bool is_refused() {
  pliant_config_t* none = nullptr;
  return pliant_config_parse("oops", 4, nullptr, &none, nullptr) == PLIANT_INVALID_ARGUMENT &&
         std::strlen(pliant_last_message(nullptr)) > 0;
}

}  // namespace

TEST_CASE("children call what they like, however many are forked while other threads of a C program do") {
  const CJob job;
  std::atomic<bool> is_over{false};
  std::atomic<bool> is_right{true};
  std::vector<std::thread> threads;
  const auto repeat = [&](auto call) {
    threads.emplace_back([&is_over, &is_right, call] {
      while (!is_over) {
        if (!call()) is_right = false;
      }
    });
  };
  repeat([&] { return goes_from_config_to_batch(job.dataset.get()); });
  repeat([&] {
    const OwnedConfig fresh = config_of(kJob);
    return reads(fresh.get()) && reads(job.config.get());
  });
  repeat(is_refused);
  int wrong = 0;
  for (int i = 0; i < (is_thorough() ? 2000 : 100); ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::alarm(kLongest);
      ::_exit(goes_from_config_to_batch(job.dataset.get()) && reads(job.config.get()) && is_refused() ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    wrong += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(is_right);
}
#endif
