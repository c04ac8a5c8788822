// A worker with a small sharded model: quick to start, exact to check, and able to misbehave when [app] says so.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "integration/sharded_worker_misbehaviour.hpp"
#include "integration/sharded_worker_net.hpp"
#include "pliant/exit_code.hpp"
#include "pliant/log.hpp"
#include "pliant/session.hpp"
#include "pliant/sharded.hpp"

namespace {

using pliant::test::Misbehaviour, pliant::test::Net;

constexpr int64_t kSequences = 1000;

std::vector<int64_t> sequences_of(const pliant::Batch& batch, pliant::RowRange rows) {
  std::vector<int64_t> ids;
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    for (const int64_t id : batch.row(row)) ids.push_back(id);
  }
  return ids;
}

/// The rank that TEST_OTHER_BUDGET names finds another config in its run directory than the others do.
void read_other_options() {
  const char* const who = std::getenv("TEST_OTHER_BUDGET");
  const char* const own = std::getenv("RANK");
  const char* const incarnation = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (who == nullptr || own == nullptr || std::string(who) != fmt::format("{} {}", own, incarnation)) return;
  const std::filesystem::path there(std::getenv("PLIANT_RUN_DIR"));
  const std::filesystem::path here = there / "other";
  std::filesystem::create_directory(here);
  std::filesystem::copy_file(there / "job.json", here / "job.json");
  std::ifstream config(there / "config.toml");
  std::string text{std::istreambuf_iterator<char>(config), {}};
  text.replace(text.find("budget = 1000000"), 16, "budget = 2000000");
  std::ofstream(here / "config.toml") << text;
  ::setenv("PLIANT_RUN_DIR", here.c_str(), 1);
}

/// Where the page of this worker's visits is to lie there is something already.
void hide_page() {
  const std::filesystem::path logs = std::filesystem::path(std::getenv("PLIANT_RUN_DIR")) / "logs";
  std::filesystem::create_directories(logs / fmt::format(".visits-{}", std::getenv("RANK")) / "taken");
}

/// What a program that runs for days does beside its steps, where [app] long_lived is set.
class LongLived {
 public:
  explicit LongLived(pliant::Session& session)
      : session_(session), is_on_(session.config().app_bool("long_lived").value_or(false)) {
    if (!is_on_) return;
    session.on_snapshot({[](int64_t step) { fmt::print(stderr, "before the snapshot of step {}\n", step); },
                         [](int64_t step, const std::string&, const std::string& error) {
                           fmt::print(stderr, "after the snapshot of step {}: '{}'\n", step, error);
                         }});
  }
  void before_commit(pliant::Step& step, double loss) {
    if (!is_on_) return;
    step.metric("passes", 1, pliant::MetricRule::kSum);
    step.metric("loss", loss);
    const pliant::ComingStep* const coming = session_.coming(1);
    if (coming != nullptr) coming_ = *coming;
  }
  void check(const pliant::Step& step) {
    if (!coming_ || coming_->index != step.index()) return;
    std::vector<pliant::RowRange> rows = step.micro_batches();
    std::erase_if(rows, [](const pliant::RowRange& one) { return one.count == 0; });
    if (coming_->batch->digest != step.batch().digest) throw std::logic_error("another batch than was foretold");
    if (coming_->shares == step.shares() && coming_->micro_batches != rows)
      throw std::logic_error("other rows than were foretold");
  }
  void after_update(pliant::Step& step) {
    if (!is_on_) return;
    const pliant::Busy busy = session_.busy("evaluation", std::chrono::minutes(1));
    session_.evaluated("rank", static_cast<double>(step.rank()), pliant::MetricRule::kMax);
  }

 private:
  pliant::Session& session_;
  bool is_on_;
  std::optional<pliant::ComingStep> coming_;
};

void train() {
  pliant::log_to_stderr();
  pliant::leave_stop_signals_to_agent();
  read_other_options();
  pliant::Session session = pliant::Session::attach();
  const Misbehaviour wrong(session);
  wrong.spare_others();
  if (session.config().app_bool("hides_pages").value_or(false)) hide_page();
  Net net(session, wrong);
  std::optional<pliant::ShardedModel> reference;
  if (wrong.is("two_models")) reference.emplace(session, std::vector<std::string>{});
  const pliant::Config& config = session.config();
  const std::string first_weights = config.app_string("first_weights").value_or("");
  if (!first_weights.empty()) net.shards.import_safetensors(first_weights);
  std::vector<int32_t> lengths;
  for (int64_t id = 0; id < kSequences; ++id) lengths.push_back(pliant::test::length_of(id));
  session.start({std::move(lengths), {}, {}, 0}, net.shards, net);
  const bool evaluates = config.app_bool("evaluates").value_or(false);
  const bool generates = config.app_bool("generates").value_or(false);
  const bool averages = config.app_bool("averages").value_or(false);
  const bool looks_first = config.app_bool("looks_first").value_or(false);
  const bool drops_trace = config.app_bool("drops_trace").value_or(false);
  const bool repeats = config.app_bool("repeats").value_or(false);
  const int64_t says_after = config.app_int("says_after").value_or(-1);
  LongLived beside(session);
  while (pliant::Step* const step = session.next()) {
    beside.check(*step);
    wrong.import_late(*step, net.shards, config);
    if (drops_trace && wrong.is_step(*step)) {  // the module has what it had, and the order is thrown away
      net.shards.set_parameters(net.layers.front(), {net.weights.front()});
      wrong.at("dropped", *step);
    }
    if (wrong.is_now("set_parameters_alone", *step)) {
      net.shards.set_parameters(net.layers.front(), {net.weights.front()});
    }
    if (generates && !step->attempt([&] { net.generate(); })) continue;
    const auto passes = [&] {
      for (const pliant::RowRange rows : step->micro_batches()) {
        double loss = 0;
        if (repeats && rows.count == 0 && net.shards.can_repeat_pass()) {
          net.shards.repeat_pass(rows);
          step->metric("repeated", 1, pliant::MetricRule::kSum);
        } else {
          net.shards.begin_pass(rows);
          loss = net.pass(*step, sequences_of(step->batch(), rows));
          net.shards.end_pass();
        }
        wrong.at("passed", *step);
        wrong.flip("flip", *step, session, net.owned);
        step->add(rows, wrong.spoiled(*step, loss));
        if (rows.count > 0) beside.before_commit(*step, loss);
      }
    };
    bool computed = false;
    try {
      computed = step->attempt(passes);
    } catch (const pliant::Error& error) {
      if (!wrong.goes_on_after(error)) throw;
    } catch (const std::runtime_error& error) {
      if (!wrong.is("catch")) throw;
    }
    if (computed && !step->attempt([&] { net.act_alone(*step); })) continue;
    if (computed) wrong.at("computed", *step);
    if (!computed || !step->commit()) continue;
    if (wrong.leaves_out_update(*step)) continue;
    if (looks_first && !step->attempt([&] { net.evaluate(*step); })) continue;
    net.apply(*step);
    beside.after_update(*step);
    wrong.flip("flip_after_update", *step, session, net.owned);
    if (step->index() == says_after) static_cast<void>(step->attempt([&] { net.say_weights(*step); }));
    if (evaluates || wrong.is_now("evaluate_after", *step)) {
      try {
        static_cast<void>(step->attempt([&] { net.evaluate(*step); }));
      } catch (const std::runtime_error& error) {
        if (!wrong.is("catch")) throw;
      }
    }
    if (!averages || wrong.is_now("average_less", *step)) continue;
    try {
      static_cast<void>(step->attempt([&] { net.average(*step); }));
    } catch (const std::runtime_error& error) {
      fmt::print(stderr, "sharded_worker: {}\n", error.what());
    }
  }
}

}  // namespace

int main() {
  try {
    train();
    return 0;
  } catch (const pliant::Error& error) {
    fmt::print(stderr, "sharded_worker: {}\n", error.message());
    return static_cast<int>(pliant::exit_code_of(error));
  } catch (const std::exception& error) {
    fmt::print(stderr, "sharded_worker: {}\n", error.what());
    return 1;
  }
}
