// `planned` over the models and visits of zero3_trace.jsonl: within what zero3 had whole at once it serves every visit,
// and gathers no more.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "parity/parity.hpp"
#include "parity/row_reader.hpp"
#include "parity/zero3_play.hpp"
#include "pliant/sdk/coordinator_rules.hpp"

namespace pliant::parity {
namespace {

/// What lies in an arena has a multiple of so many bytes: here an element of a row has as many.
constexpr uint64_t kUnit = 256;

/// What one coordinator did over a row.
struct Held {
  uint64_t most = 0;      ///< bytes whole at once
  uint64_t gathered = 0;  ///< bytes, for visits of the row
  uint64_t for_more = 0;  ///< bytes beside them that are whole at the end of the row, for visits that it has not
};

/// zero3's, from what the row says that happened; up to its error, where it has one.
Held held_by_zero3(const Json& row) {
  std::map<int64_t, uint64_t> bytes;
  for (const Json& one : row.at("params")) bytes[one.at("id").get<int64_t>()] = kUnit * one.at("numel").get<uint64_t>();
  Held made;
  uint64_t whole = 0;
  std::set<int64_t> unused;  // gathered, and not waited for
  for (const Json& entry : row.at("head")) {
    for (const Json& event : entry.is_null() ? Json::array() : entry.value("ev", Json::array())) {
      const bool gathers = event.at(0) == "fetch" || event.at(0) == "prefetch";
      if (!gathers && event.at(0) != "rel" && event.at(0) != "w") continue;
      for (const Json& id : event.at(1)) {
        const auto number = id.get<int64_t>();
        if (gathers) unused.insert(number);
        if (!gathers) unused.erase(number);
        if (event.at(0) == "w") continue;
        whole = gathers ? whole + bytes.at(number) : whole - bytes.at(number);
        made.gathered += gathers ? bytes.at(number) : 0;
      }
      made.most = std::max(made.most, whole);
    }
  }
  for (const int64_t number : unused) made.for_more += bytes.at(number);
  made.gathered -= made.for_more;
  return made;
}

/// A row's model with bytes and a budget.
class Tables {
 public:
  Tables(const Json& row, uint64_t budget) : model_(row), view_(model_.view()) {
    const auto* const rows = view_.parameters;
    rows_.assign(rows, rows + view_.parameter_count);
    for (pliant_parameter_row& one : rows_) one.bytes = kUnit * one.elements;
    view_.parameters = rows_.data();
    view_.budget = budget;
  }
  [[nodiscard]] const pliant_model& view() const { return view_; }
  [[nodiscard]] const Zero3Model& model() const { return model_; }

 private:
  Zero3Model model_;
  std::vector<pliant_parameter_row> rows_;
  pliant_model view_;
};

/// `planned` has said that the budget is too small.
struct TooSmall : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Plays a row as a host would: a pass begins between two passes, and all that was entered is left before it ends.
/// Throws std::runtime_error for an answer that breaks a rule, TooSmall where the budget is refused.
class Played {
 public:
  Played(Plugins& plugins, const Json& row, uint64_t budget)
      : instance_(or_throw(plugins.make("coordinator", "planned", Json::object()))),
        slots_(instance_.table<pliant_coordinator>()),
        tables_(row, budget),
        rules_(tables_.view()),
        room_(8 * tables_.view().parameter_count + 64) {
    held(slots_.set_model(instance_.self(), &tables_.view(), &error_));
    const Json& operations = row.at("ops");
    const size_t end = std::min(operations.size(), row.at("head").size());
    for (size_t i = 0; i < end; ++i) play(operations, i);
    close();
    for (const uint32_t parameter : unused_) did_.for_more += rules_.model().parameters[parameter].bytes;
    did_.gathered -= did_.for_more;
  }
  [[nodiscard]] const Held& did() const { return did_; }
  /// The most that modules which were entered used at once, with what has to stay: no coordinator has less whole.
  [[nodiscard]] uint64_t least() const { return least_; }
  [[nodiscard]] uint64_t lost_to_gaps() const { return lost_; }

 private:
  void play(const Json& operations, size_t at) {
    const Json& operation = operations[at];
    const auto name = operation.at(0).get<std::string>();
    if (name == "reset" || name == "reset_head") return begin(operations, at + 1);
    if (name == "leftovers_head") return close();
    if (name == "release_all") return end_step();
    if (name == "invalidate_head") {
      close();
      return answered(slots_.drop_trace(instance_.self(), &list(), &error_),
                      [&](auto actions) { return rules_.drop_trace(actions); });
    }
    const uint32_t module = tables_.model().module(operation.at(1).get<int64_t>());
    if (name == "setparams") {
      close();
      const std::vector<uint32_t> own = tables_.model().parameters(operation.at(2));
      const std::vector<uint32_t> external = tables_.model().parameters(operation.at(3));
      held(slots_.set_module_parameters(instance_.self(), module, own.data(), static_cast<uint32_t>(own.size()),
                                        external.data(), static_cast<uint32_t>(external.size()), &error_));
      return rules_.set_module_parameters(module, own, external);
    }
    if (!in_pass_) begin(operations, at);
    const bool recomputes = operation.size() > 3 && operation.at(3).get<int>() != 0;
    const sdk::Visit visit{module, operation.at(2).get<int>() == 0, recomputes, {}};
    if (name == "pre") return enter(visit);
    const auto same = [&](const sdk::Visit& one) {
      return one.module == module && one.backward == visit.backward && one.recompute == visit.recompute;
    };
    const auto open = std::find_if(open_.rbegin(), open_.rend(), same);
    if (open != open_.rend()) leave(static_cast<size_t>(open_.rend() - open) - 1);
  }

  void begin(const Json& operations, size_t from) {
    close();
    bool has_backward = false;
    for (size_t i = from; i < operations.size(); ++i) {
      const auto name = operations[i].at(0).get<std::string>();
      if (name != "pre" && name != "post") break;
      has_backward = has_backward || operations[i].at(2).get<int>() == 0;
    }
    in_pass_ = true;
    answered(
        slots_.begin_pass(instance_.self(), has_backward ? 0 : uint32_t{PLIANT_PASS_NO_GRADIENT}, &list(), &error_),
        [&](auto actions) { return rules_.begin_pass(has_backward, actions); });
  }
  void enter(const sdk::Visit& visit) {
    open_.push_back(visit);
    count_least();
    const pliant_visit given = view_of(visit);
    answered(slots_.enter(instance_.self(), &given, &list(), &error_),
             [&](auto actions) { return rules_.enter(visit, actions); });
    for (const uint32_t parameter : rules_.used_by(visit.module)) unused_.erase(parameter);
  }
  void leave(size_t at) {
    const sdk::Visit visit = open_[at];
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(at));
    const pliant_visit given = view_of(visit);
    answered(slots_.leave(instance_.self(), &given, &list(), &error_),
             [&](auto actions) { return rules_.leave(visit, actions); });
  }
  void close() {
    if (!in_pass_) return;
    while (!open_.empty()) leave(open_.size() - 1);
    answered(slots_.end_pass(instance_.self(), &list(), &error_),
             [&](auto actions) { return rules_.end_pass(actions); });
    in_pass_ = false;
    const auto* const counters =
        or_throw(instance_.extension<pliant_coordinator_counters>(PLIANT_COORDINATOR_COUNTERS));
    pliant_coordinator_counts counts{};
    counts.struct_size = sizeof(counts);
    held(counters->read(instance_.self(), &counts, &error_));
    lost_ = std::max(lost_, counts.lost_to_gaps);
  }
  void end_step() {
    close();
    stays_.clear();
    answered(slots_.end_step(instance_.self(), &list(), &error_),
             [&](auto actions) { return rules_.end_step(actions); });
  }

  [[nodiscard]] static pliant_visit view_of(const sdk::Visit& visit) {
    pliant_visit made{};
    made.struct_size = sizeof(made);
    made.module = visit.module;
    made.direction = visit.backward ? PLIANT_BACKWARD : PLIANT_FORWARD;
    made.flags = visit.recompute ? uint32_t{PLIANT_VISIT_RECOMPUTE} : 0;
    return made;
  }
  pliant_action_list& list() {
    list_ = {sizeof(list_), 0, room_.size(), 0, room_.data()};
    return list_;
  }
  void held(int32_t status) {
    if (status == PLIANT_OK) return;
    const Error error = plugin::to_error(instance_.plugin(), status, error_);
    if (status == PLIANT_RESOURCE_EXHAUSTED) throw TooSmall(error.message());
    throw std::runtime_error(error.message());
  }
  template <class Judge>
  void answered(int32_t status, const Judge& judge) {
    held(status);
    const std::span<const pliant_action> actions(room_.data(), list_.count);
    if (const auto wrong = judge(actions)) throw std::runtime_error(*wrong);
    for (const pliant_action& one : actions) {
      if (one.kind == PLIANT_ACTION_RELEASE) unused_.erase(one.parameter);  // in vain
      if (one.kind != PLIANT_ACTION_GATHER) continue;
      did_.gathered += rules_.model().parameters[one.parameter].bytes;
      unused_.insert(one.parameter);
    }
    did_.most = std::max(did_.most, rules_.whole_bytes());
  }
  void count_least() {
    std::set<uint32_t> used = stays_;
    for (const sdk::Visit& one : open_) {
      for (const uint32_t parameter : rules_.used_by(one.module)) {
        used.insert(parameter);
        if (rules_.model().parameters[parameter].external) stays_.insert(parameter);
      }
    }
    uint64_t bytes = 0;
    for (const uint32_t parameter : used) bytes += rules_.model().parameters[parameter].bytes;
    least_ = std::max(least_, bytes);
  }

  plugin::Instance instance_;
  const pliant_coordinator& slots_;
  Tables tables_;
  sdk::CoordinatorRules rules_;
  std::vector<pliant_action> room_;
  pliant_action_list list_{};
  pliant_error error_ = plugin::fresh_error();
  std::vector<sdk::Visit> open_;  ///< entered and not left
  std::set<uint32_t> stays_;      ///< external, used in this step
  std::set<uint32_t> unused_;     ///< gathered, and not used since
  bool in_pass_ = false;
  Held did_;
  uint64_t least_ = 0;
  uint64_t lost_ = 0;
};

template <class Each>
void for_each_row(const Each& each) {
  LineReader lines = or_throw(LineReader::open(PLIANT_ZERO3_ROWS));
  while (const auto line = or_throw(lines.next())) {
    if (const auto row = parse_row(*line)) each(*row);
  }
}

}  // namespace

TEST_CASE("within what zero3 has whole at once, planned serves every visit of its rows, and gathers no more in any") {
  Plugins plugins(PLIANT_PLUGIN_DIR);
  int rows = 0;
  std::vector<std::string> more;        // rows in which planned gathers more
  std::vector<std::string> more_ahead;  // the same with what a row ends before
  std::vector<std::string> refused;     // and in which it finds no room
  std::vector<double> lost;
  uint64_t gathered = 0;
  uint64_t by_zero3 = 0;
  uint64_t for_more = 0;
  for_each_row([&](const Json& row) {
    const auto id = row.at("id").get<std::string>();
    CAPTURE(id);
    ++rows;
    const Held zero3 = held_by_zero3(row);
    try {
      const Played planned(plugins, row, zero3.most);
      CHECK(planned.did().most <= zero3.most);
      CHECK(planned.least() <= zero3.most);
      gathered += planned.did().gathered;
      for_more += planned.did().for_more;
      by_zero3 += zero3.gathered;
      // What lies there for a pass that would come is that pass's: most rows end where the next one begins.
      if (planned.did().gathered > zero3.gathered) {
        more.push_back(fmt::format("{}: {} for {}", id, planned.did().gathered / kUnit, zero3.gathered / kUnit));
      }
      if (planned.did().gathered + planned.did().for_more > zero3.gathered + zero3.for_more) more_ahead.push_back(id);
      if (zero3.most > 0) lost.push_back(static_cast<double>(planned.lost_to_gaps()) / static_cast<double>(zero3.most));
    } catch (const TooSmall& refusal) {
      refused.push_back(fmt::format("{}: {}", id, refusal.what()));
    }
  });
  std::sort(lost.begin(), lost.end());
  MESSAGE(rows, " rows: ", gathered, " bytes gathered, by zero3 ", by_zero3, ", and ", for_more,
          " ahead of what the rows end before; of the budget the median of ", lost[lost.size() / 2],
          " is lost to gaps, nine tenths below ", lost[lost.size() * 9 / 10], ", worst ", lost.back(), "; more: ",
          fmt::format("{}; refused: {}; more with what is ahead: {}", fmt::join(more, ", "), fmt::join(refused, ", "),
                      fmt::join(more_ahead, ", ")));
  CHECK(rows == 360);
  CHECK(2 * gathered < by_zero3);
  CHECK(refused == std::vector<std::string>());
  CHECK(more == std::vector<std::string>());
  CHECK(lost[lost.size() / 2] < 0.05);
}

}  // namespace pliant::parity
