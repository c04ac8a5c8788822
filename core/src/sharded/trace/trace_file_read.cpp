// TraceFile: reading. Events are taken one by one as they are parsed, so that no tree of all of them is made.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/json_depth.hpp"
#include "base/printable.hpp"
#include "data/input_file.hpp"
#include "pliant/error.hpp"
#include "sharded/shards/exchange.hpp"
#include "sharded/trace/trace_file.hpp"
#include "sharded/trace/trace_model.hpp"
#include "sharded/trace/trace_numbers.hpp"
#include "sharded/trace/trace_words.hpp"

namespace pliant::sharded {
namespace {

using nlohmann::json;

/// {"traceEvents": [{"args": {"actions": [{}]}}]}
constexpr int kDeepestTrace = 6;
constexpr std::string_view kSchemaStem = "pliant.trace/";

/// What is wrong with a file as a whole; any other Error is about a part of it.
class TraceRefusal : public Error {
 public:
  using Error::Error;
};

TraceRefusal no_trace(const std::filesystem::path& file, std::string_view why) {
  return {Status::kDataLoss, fmt::format("{} is not a trace of `pliant run --trace`: {}", file.string(), why),
          Origin::kInput};
}

template <size_t count>
size_t place_of_word(const std::array<std::string_view, count>& words, const json& word) {
  const auto& text = word.get_ref<const std::string&>();
  const auto found = std::find(words.begin(), words.end(), text);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  throw Error(Status::kDataLoss, fmt::format("\"{}\" is unknown", printable(text)));
}

/// What a parser has come across of a trace.
class TraceReading {
 public:
  explicit TraceReading(const std::filesystem::path& file) : file_(file) {}

  /// Of nlohmann's parser: false where nothing is to be kept. Throws Error and json::exception.
  bool hear(int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::key && depth == 1) key_ = parsed.get<std::string>();
    if (event == Event::key && depth == 2) model_key_ = parsed.get<std::string>();
    if (event == Event::value && depth == 1 && key_ == "schema") take_schema(parsed);
    if (event == Event::array_start && depth == 1 && key_ == "traceEvents") {
      require_schema();
      has_events_ = true;
    }
    if (event != Event::object_end) return true;
    if (depth == 1 && key_ == "model") {
      // Events before it would be of no model, and those of one before it of another.
      if (has_events_ || trace_.model) throw no_trace(file_, "its \"model\" comes after its events, or twice");
      for (auto& [name, rows] : rows_of_model_) parsed[name] = std::move(rows);
      trace_.model = model_from_json(parsed);
      number_parameters();
    }
    if (depth == 2 && key_ == "traceEvents") take_event(parsed);
    if (depth == 3 && key_ == "model") rows_of_model_[model_key_].push_back(std::move(parsed));
    return depth == 0 || depth > 3 || (depth == 3 && key_ != "model");
  }

  /// `root`: what was kept.
  TraceFile take(const json& root) {
    require_schema();
    if (!has_events_) throw no_trace(file_, "it has no \"traceEvents\"");
    trace_.run = root.at("run").get<std::string>();
    trace_.coordinator = root.at("coordinator").get<std::string>();
    trace_.budget = whole_number<uint64_t>(root.at("budget"));
    trace_.compute = type_of(root.at("compute_dtype"));
    trace_.reduce = type_of(root.at("reduce_dtype"));
    if (const json* const visible = find(root, "host_visible")) trace_.host_visible = visible->get<bool>();
    for (const TracedRank& rank : trace_.ranks) require_calls(rank);
    return std::move(trace_);
  }

  /// "event 17 of \"traceEvents\": "; empty before the first.
  [[nodiscard]] std::string place() const {
    return events_ == 0 ? std::string() : fmt::format("event {} of \"traceEvents\": ", events_);
  }

 private:
  void take_schema(const json& schema) {
    const auto text = schema.is_string() ? schema.get<std::string>() : std::string();
    has_schema_ = text == kTraceSchema;
    if (has_schema_) return;
    if (text.starts_with(kSchemaStem)) {
      throw TraceRefusal(
          Status::kUnimplemented,
          fmt::format(
              "{} is a trace of format {}, but this version of Pliant reads {}; read it with the version that wrote it",
              file_.string(), printable(text), kTraceSchema),
          Origin::kInput);
    }
    throw no_trace(file_, fmt::format("its \"schema\" is not {}", kTraceSchema));
  }
  void require_schema() const {
    if (!has_schema_) throw no_trace(file_, fmt::format("it does not begin with \"schema\": \"{}\"", kTraceSchema));
  }
  void number_parameters() {
    for (uint32_t number = 0; number < trace_.model->parameters().size(); ++number)
      numbers_.emplace(trace_.model->parameter(number).name, number);
  }
  static DType type_of(const json& word) {
    const auto& text = word.get_ref<const std::string&>();
    if (text != "f32" && text != "bf16") throw Error(Status::kDataLoss, "its types are neither \"f32\" nor \"bf16\"");
    return dtype_of(text);
  }

  // Events.

  void take_event(const json& event) {
    ++events_;
    const json* const phase = find(event, "ph");
    if (phase == nullptr || !phase->is_string()) throw Error(Status::kDataLoss, "it has no \"ph\"");
    const bool is_about = *phase == "M";
    const std::string kind = event.value(is_about ? "name" : "cat", std::string());
    if (is_about && kind == "process_name") return take_process(event);
    if (is_about || *phase != "X") return;
    if (kind == "call") rank_of(event).calls.push_back(call_of(event));
    if (kind == "transfer") rank_of(event).transfers.push_back(transfer_of(event));
    if (kind == "wait") rank_of(event).waits.push_back(wait_of(event));
  }
  void take_process(const json& event) {
    const json& args = event.at("args");
    if (!args.contains("generation")) return;  // another tool's
    const auto process = whole_number<uint64_t>(event.at("pid"));
    if (!places_.emplace(process, trace_.ranks.size()).second)
      throw Error(Status::kDataLoss, fmt::format("process {} is named twice", process));
    TracedRank rank;
    rank.rank = whole_number<int32_t>(args.at("rank"));
    rank.worker = whole_number<int64_t>(args.at("worker"));
    rank.generation = whole_number<int64_t>(args.at("generation"));
    rank.world_size = whole_number<int32_t>(args.at("world_size"));
    rank.is_cut = args.at("is_cut").get<bool>();
    trace_.ranks.push_back(std::move(rank));
  }
  TracedRank& rank_of(const json& event) {
    const auto process = whole_number<uint64_t>(event.at("pid"));
    const auto found = places_.find(process);
    if (found == places_.end()) throw Error(Status::kDataLoss, fmt::format("process {} was not named", process));
    return trace_.ranks[found->second];
  }
  template <class Traced>
  static void take_times(const json& event, Traced& to) {
    const double began = event.at("ts").get<double>() * 1000;
    const double lasted = event.at("dur").get<double>() * 1000;
    constexpr double kMost = 9e15;  // nanoseconds that a double tells apart
    if (!(std::abs(began) < kMost && std::abs(lasted) < kMost))
      throw Error(Status::kDataLoss, "its times are not valid");
    const double begin = std::round(began);
    to.began = begin / 1000;
    to.ended = (begin + std::round(lasted)) / 1000;
  }
  TracedCall call_of(const json& event) {
    const json& args = event.at("args");
    TracedCall made;
    take_times(event, made);
    made.kind = static_cast<TracedCall::Kind>(place_of_word(kCallWords, args.at("call")));
    made.direction = static_cast<Direction>(place_of_word(kDirectionWords, args.at("direction")));
    made.step = whole_number<int64_t>(args.at("step"));
    made.live_bytes = whole_number<uint64_t>(args.at("live_bytes"));
    made.most_bytes = whole_number<uint64_t>(args.at("most_bytes"));
    if (const json* const module = find(args, "module")) made.module = whole_number<uint32_t>(*module);
    made.micro_batches = number_or<uint32_t>(args, "micro_batches", 1);
    if (made.micro_batches == 0 || made.micro_batches > kMostMicroBatches)
      throw Error(Status::kDataLoss, fmt::format("its pass is over {} micro-batches", made.micro_batches));
    const bool is_visit = made.kind == TracedCall::Kind::kEnter || made.kind == TracedCall::Kind::kLeave;
    const bool is_known = made.module && trace_.model && *made.module < trace_.model->modules().size();
    if ((is_visit || made.module) && !is_known)
      throw Error(Status::kDataLoss, "it does not name a module of the model");
    for (const json& action : args.at("actions")) made.actions.push_back(action_of(action));
    return made;
  }
  pliant_action action_of(const json& object) {
    const json& word = object.at("do");
    pliant_action made{};
    made.kind = word.is_number() ? whole_number<uint32_t>(word)
                                 : PLIANT_ACTION_GATHER + static_cast<uint32_t>(place_of_word(kActionWords, word));
    const json* const parameter = find(object, "parameter");
    made.parameter = parameter == nullptr ? PLIANT_NO_PARAMETER : parameter_of(*parameter);
    if (parameter == nullptr && moves_parameter(made.kind))
      throw Error(Status::kDataLoss, fmt::format("its action {} does not name a parameter", printable(word.dump())));
    made.group = number_or<uint32_t>(object, "group", 0);
    made.flags =
        object.value("ahead", false) ? uint32_t{PLIANT_ACTION_PREFETCH} : number_or<uint32_t>(object, "flags", 0);
    made.place = number_or<uint64_t>(object, "place", usual_place_of(made.kind));
    return made;
  }
  TracedTransfer transfer_of(const json& event) {
    const json& args = event.at("args");
    TracedTransfer made;
    take_times(event, made);
    made.kind = static_cast<TracedTransfer::Kind>(place_of_word(kTransferWords, args.at("transfer")));
    made.call = whole_number<size_t>(args.at("call"));
    made.bytes = whole_number<uint64_t>(args.at("bytes"));
    made.is_ahead = args.at("ahead").get<bool>();
    for (const json& parameter : args.at("parameters")) made.parameters.push_back(parameter_of(parameter));
    return made;
  }
  TracedWait wait_of(const json& event) {
    const json& args = event.at("args");
    TracedWait made;
    take_times(event, made);
    made.of = static_cast<TracedTransfer::Kind>(place_of_word(kTransferWords, args.at("of")));
    made.call = whole_number<size_t>(args.at("call"));
    made.parameter = parameter_of(args.at("parameter"));
    return made;
  }
  [[nodiscard]] uint32_t parameter_of(const json& name) const {
    if (name.is_string()) {
      const auto found = numbers_.find(name.get_ref<const std::string&>());
      if (found != numbers_.end()) return found->second;
    }
    throw Error(Status::kDataLoss, fmt::format("the model has no parameter {}", printable(name.dump(-1, ' ', true))));
  }
  static const json* find(const json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }
  template <class Number>
  static Number number_or(const json& object, const char* key, Number usual) {
    const json* const number = find(object, key);
    return number == nullptr ? usual : whole_number<Number>(*number);
  }
  void require_calls(const TracedRank& rank) const {
    const auto is_there = [&rank](const auto& one) { return one.call < rank.calls.size(); };
    if (std::all_of(rank.transfers.begin(), rank.transfers.end(), is_there) &&
        std::all_of(rank.waits.begin(), rank.waits.end(), is_there)) {
      return;
    }
    throw no_trace(file_, fmt::format("rank {} of generation {} has transfers or waits for calls that it did not make",
                                      rank.rank, rank.generation));
  }

  const std::filesystem::path& file_;
  TraceFile trace_;
  std::string key_;        ///< of the root, the last
  std::string model_key_;  ///< of "model", the last
  /// Of "model". The parser goes through all that an array has kept whenever an object of it ends, so it keeps none.
  std::map<std::string, json::array_t> rows_of_model_;
  bool has_schema_ = false;
  bool has_events_ = false;
  uint64_t events_ = 0;
  std::unordered_map<std::string, uint32_t> numbers_;  ///< of parameters, by name
  std::unordered_map<uint64_t, size_t> places_;        ///< of ranks, by process
};

/// Where a parser stopped, and why.
TraceRefusal not_json(const std::filesystem::path& file, std::string_view text, const json::parse_error& error) {
  if (error.byte >= text.size()) {
    return {Status::kDataLoss,
            fmt::format("the trace {} is cut off after {} bytes; copy it again, or run the job again", file.string(),
                        text.size())};
  }
  const auto at = text.begin() + static_cast<std::ptrdiff_t>(error.byte);
  return no_trace(file,
                  fmt::format("line {} (byte {}) is not JSON", std::count(text.begin(), at, '\n') + 1, error.byte));
}

}  // namespace

Result<TraceFile> read_trace(const std::filesystem::path& file) {
  auto read = data::read_whole(file);
  if (!read) return failed(std::move(read));
  const std::string_view text = (*read)->bytes();
  if (text.empty()) return tl::unexpected<Error>(no_trace(file, "it is empty"));
  if (nests_deeper(text, kDeepestTrace)) return tl::unexpected<Error>(no_trace(file, "it nests too deeply"));
  TraceReading reading(file);
  try {
    const json root = json::parse(text, [&reading](int depth, json::parse_event_t event, json& parsed) {
      return reading.hear(depth, event, parsed);
    });
    return reading.take(root);
  } catch (const json::parse_error& error) {
    return tl::unexpected<Error>(not_json(file, text, error));
  } catch (const json::exception& error) {
    return tl::unexpected<Error>(no_trace(file, fmt::format("{}{}", reading.place(), printable(error.what()))));
  } catch (const TraceRefusal& error) {
    return tl::unexpected<Error>(error);
  } catch (const Error& error) {
    return tl::unexpected<Error>(no_trace(file, reading.place() + error.message()));
  } catch (const std::bad_alloc&) {
    return failed(Status::kResourceExhausted, fmt::format("no memory for the trace {}", file.string()));
  }
}

}  // namespace pliant::sharded
