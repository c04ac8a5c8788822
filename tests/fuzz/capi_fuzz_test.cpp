// Every function of pliant.h, in any order and with any arguments that a C program may bring: an answer or a refusal.
#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "fuzz/capi_player.hpp"
#include "scratch_folder.hpp"

using pliant::test::Player;

namespace {

using Calls = std::map<std::string, std::function<int32_t(Player&)>>;

const char* const kToml =
    "config_version = 1\n[run]\nepochs = 2\n[elasticity]\nuse = \"exact\"\n[elasticity.exact]\n"
    "max_train_batch_size = 24\nmicro_batch_sizes = [2, 4]\nmax_gpus = 8\n"
    "[sampler]\nuse = \"concat\"\n[sampler.concat]\norder = \"random\"\nmax_tokens = 40\n[balancer]\nuse = \"lpt\"\n"
    "[lr]\nuse = \"linear\"\nbase_batch = 10\nunit = \"sequences\"\n[app]\nwidth = 7\nname = \"a\"\n";

/// Where runs are begun; gone when the test ends.
const pliant::test::ScratchFolder& run_folder() {
  static const pliant::test::ScratchFolder one;
  return one;
}

std::string some_toml(Player& p) {
  const std::string run = "[run]\n";
  std::string toml = kToml;
  if (p.once_in(4)) toml[p.below(toml.size())] = static_cast<char>(p.below(256));
  if (toml.find(run) == std::string::npos) toml = kToml;  // runs are begun in the folder of the test alone
  toml.insert(toml.find(run) + run.size(), "log_dir = \"" + run_folder().path().string() + "\"\n");
  return toml;
}

const pliant_config_options_t* some_options(Player& p) {
  auto* const options = p.room<pliant_config_options_t>();
  if (options == nullptr) return nullptr;
  options->flags = p.once_in(9) ? 0xff : PLIANT_CONFIG_NO_ENVIRONMENT;
  options->needs = p.once_in(9) ? p.text() : "elasticity sampler balancer lr";
  static const std::vector<const char*> kSets{"run.seed=3", "run.epochs=oops", "=", "run.seed=4"};
  if (p.once_in(4)) {
    options->sets = kSets.data();
    options->set_count = p.below(kSets.size() + 1);
  }
  if (p.once_in(9)) options->plugin_dir_count = 2;  // of an array that is NULL
  if (p.once_in(4)) options->name = p.text();
  return options;
}

int32_t make_dataset(Player& p) {
  auto* const lengths = p.room<pliant_lengths_t>();
  std::vector<int32_t> tokens(200);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(3 + i * 7 % 29);
  if (p.once_in(8)) tokens[p.below(tokens.size())] = static_cast<int32_t>(p.number());
  if (lengths != nullptr) {
    lengths->count = p.once_in(9) ? 0 : tokens.size() - p.below(9);
    lengths->lengths = p.once_in(9) ? nullptr : tokens.data();
    lengths->loss_tokens = p.once_in(3) ? tokens.data() : nullptr;
    lengths->source = p.text();
    lengths->content = p.below(3);
  }
  return pliant_dataset_make(lengths, p.place<pliant_dataset_t>(), p.error());
}

int32_t parse(Player& p) {
  const std::string toml = some_toml(p);
  return pliant_config_parse(toml.data(), toml.size(), some_options(p), p.place<pliant_config_t>(), p.error());
}

int32_t open_file(Player& p) {
  return pliant_config_open(p.text(), some_options(p), p.place<pliant_config_t>(), p.error());
}

/// What one handle of the kind saves, whole, cut or changed.
template <class Handle>
std::string some_state(Player& p, int32_t (*save)(Handle*, char*, uint64_t, uint64_t*, pliant_error_t*)) {
  std::string saved(4096, '\0');
  uint64_t bytes = 0;
  if (save(p.handle<Handle>(), saved.data(), saved.size(), &bytes, nullptr) != PLIANT_OK) return "none";
  saved.resize(bytes);
  if (p.once_in(3)) saved.resize(p.below(saved.size() + 1));
  if (p.once_in(3) && !saved.empty()) saved[p.below(saved.size())] ^= static_cast<char>(p.below(256));
  return saved;
}

int32_t open_batches(Player& p) {
  const std::string saved = some_state<pliant_batches_t>(p, &pliant_batches_save);
  return pliant_batches_open(p.handle<pliant_config_t>(), p.handle<pliant_plan_t>(), p.handle<pliant_dataset_t>(),
                             saved.data(), saved.size(), p.place<pliant_batches_t>(), p.error());
}

template <class Handle>
int32_t load(Player& p, int32_t (*save)(Handle*, char*, uint64_t, uint64_t*, pliant_error_t*),
             int32_t (*to)(Handle*, const char*, uint64_t, pliant_error_t*)) {
  const std::string saved = some_state<Handle>(p, save);
  return to(p.handle<Handle>(), saved.data(), saved.size(), p.error());
}

int32_t make_micro_batches(Player& p) {
  std::vector<const pliant_batch_t*> batches(p.below(3));
  for (const auto*& batch : batches) batch = p.handle<pliant_batch_t>();
  auto* const layout = p.once_in(2) ? p.numbers<pliant_layout_t>() : p.room<pliant_layout_t>();
  return pliant_micro_batches_make(batches.data(), batches.size(), layout, p.once_in(2) ? p.number() : 0,
                                   p.place<pliant_micro_batches_t>(), p.error());
}

pliant_sharing_t* some_sharing(Player& p) {
  auto* const sharing = p.numbers<pliant_sharing_t>();
  // More ranks than there is memory for are no question of the border.
  if (sharing != nullptr && sharing->world_size > 4096) sharing->world_size = 4096;
  return sharing;
}

int32_t set_sink(Player& p) {
  const auto sink = [](void*, int32_t, const char*, const char*) {};
  return pliant_set_log_sink(p.once_in(2) ? nullptr : +sink, nullptr, static_cast<int32_t>(p.small()), p.error());
}

#define CALL(function, ...)                                                \
  {                                                                        \
#function, [](Player & p) { return function(__VA_ARGS__, p.error()); } \
  }
#define FREE(function)                                      \
  {                                                         \
#function, [](Player & p) { return p.free(&function); } \
  }

const Calls& calls() {
  static const Calls all{
      {"pliant_check_version", [](Player& p) { return pliant_check_version(static_cast<uint32_t>(p.number())); }},
      {"pliant_version", [](Player&) { return *pliant_version() != '\0' ? PLIANT_OK : PLIANT_INTERNAL; }},
      {"pliant_last_message",
       [](Player& p) { return pliant_last_message(p.value<uint64_t>()) != nullptr ? PLIANT_OK : PLIANT_INTERNAL; }},
      {"pliant_set_log_sink", &set_sink},
      {"pliant_config_open", &open_file},
      {"pliant_config_parse", &parse},
      FREE(pliant_config_free),
      CALL(pliant_config_run, p.handle<pliant_config_t>(), p.room<pliant_run_options_t>()),
      CALL(pliant_config_app_int, p.handle<pliant_config_t>(), p.text(), p.number(), p.value<int64_t>()),
      CALL(pliant_config_app_float, p.handle<pliant_config_t>(), p.text(), p.real(), p.value<double>()),
      CALL(pliant_config_app_bool, p.handle<pliant_config_t>(), p.text(), 1, p.value<int32_t>()),
      CALL(pliant_config_app_text, p.handle<pliant_config_t>(), p.text(), p.text(), p.value<const char*>()),
      {"pliant_config_check_app",
       [](Player& p) {
         const std::vector<const char*> keys{p.text(), p.text()};
         return pliant_config_check_app(p.handle<pliant_config_t>(), keys.data(), p.below(3), p.error());
       }},
      CALL(pliant_config_resolved, p.handle<pliant_config_t>(), p.value<const char*>(), p.value<uint64_t>()),
      CALL(pliant_planner_make, p.handle<pliant_config_t>(), p.place<pliant_planner_t>()),
      FREE(pliant_planner_free),
      CALL(pliant_planner_look, p.handle<pliant_planner_t>(), p.room<pliant_planner_facts_t>()),
      CALL(pliant_planner_plan, p.handle<pliant_planner_t>(), p.once_in(4) ? p.number() : 0, p.place<pliant_plan_t>()),
      FREE(pliant_plan_free),
      CALL(pliant_plan_look, p.handle<pliant_plan_t>(), p.room<pliant_plan_facts_t>()),
      CALL(pliant_plan_nearest, p.handle<pliant_plan_t>(), p.number(), p.value<int64_t>(), p.value<int64_t>()),
      CALL(pliant_share_of, p.number(), p.number(), p.number(), p.number(), p.value<int64_t>(), p.value<int64_t>()),
      {"pliant_dataset_make", &make_dataset},
      CALL(pliant_dataset_load, p.handle<pliant_config_t>(), p.place<pliant_dataset_t>()),
      FREE(pliant_dataset_free),
      CALL(pliant_dataset_look, p.handle<pliant_dataset_t>(), p.room<pliant_lengths_t>()),
      CALL(pliant_batches_make, p.handle<pliant_config_t>(), p.handle<pliant_plan_t>(), p.handle<pliant_dataset_t>(),
           p.place<pliant_batches_t>()),
      {"pliant_batches_open", &open_batches},
      FREE(pliant_batches_free),
      CALL(pliant_batches_next, p.handle<pliant_batches_t>(), p.place<pliant_batch_t>()),
      CALL(pliant_batches_at_step, p.handle<pliant_batches_t>(), p.number(), p.place<pliant_batch_t>()),
      CALL(pliant_batches_batch, p.handle<pliant_batches_t>(), p.number(), p.number(), p.place<pliant_batch_t>()),
      CALL(pliant_batches_epoch, p.handle<pliant_batches_t>(), p.number(), p.room<pliant_epoch_summary_t>()),
      CALL(pliant_batches_dropped, p.handle<pliant_batches_t>(), p.number(), p.integers(), Player::kIntegers,
           p.value<uint64_t>()),
      CALL(pliant_batches_look, p.handle<pliant_batches_t>(), p.room<pliant_job_facts_t>()),
      CALL(pliant_batches_job_length, p.handle<pliant_batches_t>(), p.value<int64_t>(), p.room<pliant_batch_size_t>()),
      CALL(pliant_batches_save, p.handle<pliant_batches_t>(), nullptr, p.below(900), p.value<uint64_t>()),
      {"pliant_batches_load",
       [](Player& p) { return load<pliant_batches_t>(p, &pliant_batches_save, &pliant_batches_load); }},
      CALL(pliant_batch_look, p.handle<pliant_batch_t>(), p.room<pliant_batch_view_t>()),
      CALL(pliant_batch_size, p.handle<pliant_batch_t>(), p.room<pliant_batch_size_t>()),
      FREE(pliant_batch_free),
      {"pliant_micro_batches_make", &make_micro_batches},
      CALL(pliant_micro_batches_of_rows, p.handle<pliant_batch_t>(), p.number(), p.number(),
           p.numbers<pliant_layout_t>(), p.place<pliant_micro_batches_t>()),
      FREE(pliant_micro_batches_free),
      CALL(pliant_micro_batches_look, p.handle<pliant_micro_batches_t>(), p.room<pliant_micro_batches_view_t>()),
      CALL(pliant_balancer_make, p.handle<pliant_config_t>(), p.place<pliant_balancer_t>()),
      FREE(pliant_balancer_free),
      CALL(pliant_balancer_look, p.handle<pliant_balancer_t>(), p.room<pliant_balancer_facts_t>()),
      CALL(pliant_row_costs, p.handle<pliant_batch_t>(), p.number(), p.number(), p.integers(), p.count(),
           p.value<uint64_t>()),
      CALL(pliant_balancer_assign, p.handle<pliant_balancer_t>(), p.integers(), p.count(), some_sharing(p),
           p.place<pliant_assignment_t>()),
      CALL(pliant_share_out, p.small(), some_sharing(p), p.place<pliant_assignment_t>()),
      FREE(pliant_assignment_free),
      CALL(pliant_assignment_look, p.handle<pliant_assignment_t>(), p.room<pliant_assignment_view_t>()),
      CALL(pliant_assignment_waiting, p.handle<pliant_assignment_t>(), p.integers(), p.count(),
           p.room<pliant_waiting_t>()),
      CALL(pliant_learning_rate_make, p.handle<pliant_config_t>(), p.numbers<pliant_batch_size_t>(),
           p.place<pliant_learning_rate_t>()),
      FREE(pliant_learning_rate_free),
      CALL(pliant_learning_rate_needs, p.handle<pliant_learning_rate_t>(), p.value<uint32_t>()),
      CALL(pliant_learning_rate_set_job_length, p.handle<pliant_learning_rate_t>(), p.number(),
           p.numbers<pliant_batch_size_t>()),
      CALL(pliant_learning_rate_scaling, p.handle<pliant_learning_rate_t>(), p.number(),
           p.numbers<pliant_batch_size_t>(), p.real(), p.room<pliant_scaling_t>()),
      CALL(pliant_learning_rate_commit, p.handle<pliant_learning_rate_t>(), p.number(),
           p.numbers<pliant_batch_size_t>(), p.numbers<pliant_gradient_norms_t>(), p.real()),
      CALL(pliant_learning_rate_save, p.handle<pliant_learning_rate_t>(), nullptr, p.below(900), p.value<uint64_t>()),
      {"pliant_learning_rate_load",
       [](Player& p) {
         return load<pliant_learning_rate_t>(p, &pliant_learning_rate_save, &pliant_learning_rate_load);
       }},
      CALL(pliant_record_begin, p.handle<pliant_config_t>(), p.handle<pliant_plan_t>(), p.handle<pliant_batches_t>(),
           p.place<pliant_record_t>()),
      CALL(pliant_record_open, p.text(), p.handle<pliant_config_t>(), p.handle<pliant_plan_t>(),
           p.handle<pliant_batches_t>(), p.place<pliant_record_t>()),
      FREE(pliant_record_free),
      CALL(pliant_record_look, p.handle<pliant_record_t>(), p.room<pliant_record_facts_t>()),
      CALL(pliant_record_start_generation, p.handle<pliant_record_t>(), p.small(), p.text()),
      CALL(pliant_record_commit, p.handle<pliant_record_t>(), p.handle<pliant_batch_t>(),
           p.handle<pliant_assignment_t>(), p.real(), p.real()),
      CALL(pliant_record_keep_snapshot, p.handle<pliant_record_t>(), p.integers(), p.count(), nullptr, p.below(2)),
      CALL(pliant_record_restore, p.handle<pliant_record_t>(), p.room<pliant_restored_t>()),
      CALL(pliant_audit_run, p.text(), p.room<pliant_audit_t>()),
      // Outside of a job there is no session to be had.
      {"pliant_leave_stop_signals_to_agent", [](Player&) { return pliant_leave_stop_signals_to_agent(); }},
      CALL(pliant_log_to_stderr, static_cast<int32_t>(p.small()) | 8),
      CALL(pliant_session_attach, p.place<pliant_session_t>()),
      FREE(pliant_session_free),
      CALL(pliant_session_config, p.handle<pliant_session_t>(), p.place<pliant_config_t>()),
      CALL(pliant_session_start, p.handle<pliant_session_t>(), p.handle<pliant_dataset_t>(),
           p.numbers<pliant_state_t>()),
      CALL(pliant_session_next, p.handle<pliant_session_t>(), p.room<pliant_step_t>()),
      CALL(pliant_session_scaling, p.handle<pliant_session_t>(), p.room<pliant_scaling_t>()),
      CALL(pliant_session_add, p.handle<pliant_session_t>(), p.count(), p.real(), nullptr, p.count()),
      CALL(pliant_session_add_piece, p.handle<pliant_session_t>(), p.count(), p.count(), p.count(), p.integers(), 1),
      CALL(pliant_session_commit, p.handle<pliant_session_t>(), p.room<pliant_committed_t>()),
  };
  return all;
}

uint64_t rounds(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("every function of the C header is played") {
  const std::string text = pliant::test::read_all(std::string(PLIANT_SOURCE_DIR) + "/tests/capi/signatures.h");
  const std::regex function(R"((pliant_\w+)\((?!\*))");
  for (std::sregex_iterator at(text.begin(), text.end(), function), end; at != end; ++at) {
    CAPTURE((*at)[1].str());
    CHECK(calls().count((*at)[1]) == 1);
  }
}

TEST_CASE("calls of the C header in any order with any arguments are answered or refused") {
  const uint64_t first = rounds("PLIANT_FUZZ_FIRST", 0);
  const uint64_t count = rounds("PLIANT_FUZZ_ROUNDS", 3000) / 10;
  std::map<std::string, int> answered;
  for (uint64_t round = first; round < first + count; ++round) {
    INFO("round " << round);
    Player player(round);
    // What most calls begin with comes first, so that there is something to call.
    std::vector<std::string> names;
    for (const char* name : {"pliant_config_parse", "pliant_planner_make", "pliant_planner_plan", "pliant_dataset_make",
                             "pliant_batches_make", "pliant_batches_next", "pliant_balancer_make",
                             "pliant_micro_batches_make", "pliant_learning_rate_make"}) {
      names.insert(names.end(), 3, name);
    }
    for (int i = 0; i < 60; ++i) {
      auto at = calls().begin();
      std::advance(at, static_cast<long>(player.below(calls().size())));
      names.push_back(at->first);
    }
    for (const std::string& name : names) {
      INFO("call " << name);
      const int32_t status = calls().at(name)(player);
      player.keep();
      CHECK(status >= PLIANT_OK);
      CHECK(status <= PLIANT_DEADLINE_EXCEEDED);
      // A rule that makes no finite rate of no finite numbers breaks its contract.
      CHECK((status != PLIANT_INTERNAL || name.find("learning_rate") != std::string::npos));
      if (status == PLIANT_OK) ++answered[name];
    }
  }
  pliant_set_log_sink(nullptr, nullptr, 0, nullptr);
  for (const auto& call : calls()) {
    const bool needs_files = call.first == "pliant_config_open" || call.first == "pliant_dataset_load" ||
                             call.first == "pliant_record_open" || call.first == "pliant_audit_run" ||
                             call.first == "pliant_record_commit";  // nor a batch that was shared out whole
    const bool needs_job = call.first.rfind("pliant_session_", 0) == 0 && call.first != "pliant_session_free";
    if (needs_files || needs_job || call.first == "pliant_log_to_stderr") continue;  // which would print
    INFO(call.first << " was never answered");
    CHECK((answered[call.first] > 0 || count < 300));
  }
}
