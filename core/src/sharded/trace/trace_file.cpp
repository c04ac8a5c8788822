// TraceFile: writing. One event a line, in the order of ranks and calls.
#include "sharded/trace/trace_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/append_json.hpp"
#include "base/durable_file.hpp"
#include "base/whole_file.hpp"
#include "sharded/trace/trace_model.hpp"
#include "sharded/trace/trace_words.hpp"

namespace pliant::sharded {
namespace {

using CallKind = TracedCall::Kind;

/// What is written to a file in large pieces.
class TraceText {
 public:
  explicit TraceText(int fd) : fd_(fd) {}
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(fmt::appender(buffer_), format, std::forward<Args>(args)...);
  }
  void add_quoted(std::string_view text) {
    std::string quoted;
    append_json(quoted, text);
    buffer_.append(quoted);
  }
  void add_model(const ModelTables& model) { append_model(buffer_, model); }
  void next_event() {
    add("{}", is_first_ ? "\n" : ",\n");
    is_first_ = false;
    if (buffer_.size() >= kPiece) static_cast<void>(flush());
  }
  /// 0 or the first errno value.
  int flush() {
    if (error_ == 0) error_ = write_all_at(fd_, {buffer_.data(), buffer_.size()}, written_);
    written_ += buffer_.size();
    buffer_.clear();
    return error_;
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 20U;
  int fd_;
  int error_ = 0;
  uint64_t written_ = 0;
  bool is_first_ = true;
  fmt::memory_buffer buffer_;
};

/// Of microseconds, whole nanoseconds.
int64_t nanoseconds_of(double microseconds) {
  return std::llround(microseconds * 1000);
}

/// By call: the one that ends the pass or the visit that it begins, where no other reaches from within it beyond its
/// end; 0: none. Modules may be left in another order than they were entered in, and a pass may be given up.
class SpansOfCalls {
 public:
  explicit SpansOfCalls(const std::vector<TracedCall>& calls) : ends_(calls.size()) {
    for (size_t i = 0; i < calls.size(); ++i) hear(i, calls[i]);
  }
  [[nodiscard]] size_t end_of(size_t call) const { return ends_[call]; }

 private:
  void hear(size_t at, const TracedCall& call) {
    switch (call.kind) {
      case CallKind::kBeginPass:
      case CallKind::kBeginEvaluation:
        open_.assign(1, {at, true});
        visits_.clear();
        return;
      case CallKind::kEnter:
        visits_[key_of(call)].push_back(open_.size());
        open_.push_back({at, true});
        return;
      case CallKind::kLeave:
        return leave(at, visits_[key_of(call)]);
      case CallKind::kEndPass:
        if (open_.size() == 1) ends_[open_.front().call] = at;
        open_.clear();
        visits_.clear();
        return;
      default:
        return;
    }
  }
  void leave(size_t at, std::vector<size_t>& of_module) {
    if (of_module.empty()) return;
    const size_t place = of_module.back();
    of_module.pop_back();
    if (place + 1 == open_.size()) ends_[open_[place].call] = at;
    open_[place].is_open = false;
    while (open_.size() > 1 && !open_.back().is_open) open_.pop_back();
  }
  static uint64_t key_of(const TracedCall& call) {
    return uint64_t{call.module.value_or(0)} * kDirectionWords.size() + static_cast<uint64_t>(call.direction);
  }

  struct Open {
    size_t call;
    bool is_open;
  };
  std::vector<size_t> ends_;
  std::vector<Open> open_;                                    ///< the pass, then visits
  std::unordered_map<uint64_t, std::vector<size_t>> visits_;  ///< by module and direction, places in open_
};

/// The events of one rank after the other.
class TraceEvents {
 public:
  TraceEvents(TraceText& text, const std::optional<ModelTables>& model) : text_(text), model_(model) {}

  void add(const TracedRank& rank) {
    const size_t place = process_++;
    const std::string name = fmt::format("rank {} (worker {}), generation {}", rank.rank, rank.worker, rank.generation);
    about_process("process_name", 0);
    text_.add(R"({{"name":"{}","rank":{},"worker":{},"generation":{},"world_size":{},"is_cut":{}}}}})", name, rank.rank,
              rank.worker, rank.generation, rank.world_size, rank.is_cut);
    about_process("process_sort_index", 0);
    text_.add(R"({{"sort_index":{}}}}})", place);
    for (const auto& [thread, words] : {std::pair{kProgramThread, "program"}, std::pair{kWaitThread, "waits"},
                                        std::pair{kExchangeThread, "exchange"}}) {
      about_process("thread_name", thread);
      text_.add(R"({{"name":"{}"}}}})", words);
      about_process("thread_sort_index", thread);
      text_.add(R"({{"sort_index":{}}}}})", thread);
    }
    const SpansOfCalls spans(rank.calls);
    for (size_t i = 0; i < rank.calls.size(); ++i) {
      if (spans.end_of(i) > 0) add_span(rank.calls[i], rank.calls[spans.end_of(i)].ended);
      add(rank.calls[i]);
    }
    for (const TracedTransfer& transfer : rank.transfers) add(transfer);
    for (const TracedWait& wait : rank.waits) add(wait);
  }

 private:
  void about_process(std::string_view name, uint64_t thread) {
    text_.next_event();
    text_.add(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":)", name, process_, id_of(thread));
  }
  /// With the begin of its args.
  void begin_event(std::string_view name, std::string_view category, double began, double ended, uint64_t thread) {
    const int64_t begin = nanoseconds_of(began);
    text_.next_event();
    text_.add(R"({{"name":"{}","cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{},"args":{{)", name,
              category, static_cast<double>(begin) / 1000, static_cast<double>(nanoseconds_of(ended) - begin) / 1000,
              process_, id_of(thread));
  }
  /// A pass, or a visit of a module.
  void add_span(const TracedCall& call, double ended) {
    if (call.kind == CallKind::kEnter) {
      const std::string name = fmt::format("{} {}", module_name(call), word_of(call.direction));
      begin_event(name, "visit", call.began, ended, kProgramThread);
    } else {
      begin_event(call.kind == CallKind::kBeginPass ? "pass" : "evaluation", "pass", call.began, ended, kProgramThread);
    }
    text_.add(R"("step":{}}}}})", call.step);
  }
  void add(const TracedCall& call) {
    const std::string_view word = kCallWords[index_of(call.kind)];
    begin_event(call.module ? fmt::format("{} {}", word, module_name(call)) : std::string(word), "call", call.began,
                call.ended, kProgramThread);
    text_.add(R"("call":"{}","step":{},"live_bytes":{},"most_bytes":{})", word, call.step, call.live_bytes,
              call.most_bytes);
    if (call.module) text_.add(R"(,"module":{})", *call.module);
    if (call.kind == CallKind::kBeginPass) text_.add(R"(,"micro_batches":{})", call.micro_batches);
    text_.add(R"(,"direction":"{}","actions":[)", word_of(call.direction));
    for (size_t i = 0; i < call.actions.size(); ++i) {
      if (i > 0) text_.add(",");
      add(call.actions[i]);
    }
    text_.add("]}}}}");
    for (const pliant_action& action : call.actions) {
      if (action.kind != PLIANT_ACTION_RELEASE) continue;
      text_.next_event();
      text_.add(R"({{"name":"release {}","cat":"release","ph":"i","s":"t","ts":{:.3f},"pid":{},"tid":{}}})",
                name_of(action.parameter), static_cast<double>(nanoseconds_of(call.ended)) / 1000, process_,
                id_of(kProgramThread));
    }
    text_.next_event();
    text_.add(R"({{"name":"live bytes","cat":"memory","ph":"C","ts":{:.3f},"pid":{},"args":{{"bytes":{}}}}})",
              static_cast<double>(nanoseconds_of(call.ended)) / 1000, process_, call.live_bytes);
  }
  void add(const pliant_action& action) {
    const bool has_word =
        action.kind >= PLIANT_ACTION_GATHER && action.kind - PLIANT_ACTION_GATHER < kActionWords.size();
    if (has_word) {
      text_.add(R"({{"do":"{}")", kActionWords[action.kind - PLIANT_ACTION_GATHER]);
    } else {
      text_.add(R"({{"do":{})", action.kind);
    }
    if (action.parameter != PLIANT_NO_PARAMETER) {
      text_.add(R"(,"parameter":)");
      add_parameter(action.parameter);
    }
    if (action.group != 0) text_.add(R"(,"group":{})", action.group);
    if (action.flags == PLIANT_ACTION_PREFETCH) {
      text_.add(R"(,"ahead":true)");
    } else if (action.flags != 0) {
      text_.add(R"(,"flags":{})", action.flags);
    }
    if (action.place != usual_place_of(action.kind)) text_.add(R"(,"place":{})", action.place);
    text_.add("}}");
  }
  void add(const TracedTransfer& transfer) {
    const std::string_view word = kTransferWords[index_of(transfer.kind)];
    const size_t count = transfer.parameters.size();
    const std::string first = count == 0 ? std::string("nothing") : name_of(transfer.parameters.front());
    const std::string more = count > 1 ? fmt::format(" and {} more", count - 1) : std::string();
    begin_event(fmt::format("{} {}{}", word, first, more), "transfer", transfer.began, transfer.ended, kExchangeThread);
    text_.add(R"("transfer":"{}","call":{},"bytes":{},"ahead":{},"parameters":[)", word, transfer.call, transfer.bytes,
              transfer.is_ahead);
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) text_.add(",");
      add_parameter(transfer.parameters[i]);
    }
    text_.add("]}}}}");
  }
  void add(const TracedWait& wait) {
    const std::string_view word = kTransferWords[index_of(wait.of)];
    begin_event(fmt::format("wait for {} {}", word, name_of(wait.parameter)), "wait", wait.began, wait.ended,
                kWaitThread);
    text_.add(R"("of":"{}","call":{},"parameter":)", word, wait.call);
    add_parameter(wait.parameter);
    text_.add("}}}}");
  }

  template <class Enum>
  static size_t index_of(Enum value) {
    return static_cast<size_t>(value);
  }
  [[nodiscard]] uint64_t id_of(uint64_t thread) const { return process_ * kThreadsOfProcess + thread; }
  [[nodiscard]] bool has_parameter(uint32_t number) const { return model_ && number < model_->parameters().size(); }
  [[nodiscard]] std::string name_of(uint32_t parameter) const {
    return has_parameter(parameter) ? model_->parameter(parameter).name : fmt::format("parameter {}", parameter);
  }
  [[nodiscard]] std::string module_name(const TracedCall& call) const {
    const bool is_known = model_ && call.module && *call.module < model_->modules().size();
    return is_known ? model_->modules()[*call.module].name : fmt::format("module {}", call.module.value_or(0));
  }
  /// By its name, which is its own; by its number where there is no model.
  void add_parameter(uint32_t number) {
    if (has_parameter(number)) return text_.add(R"("{}")", model_->parameter(number).name);
    text_.add("{}", number);
  }

  TraceText& text_;
  const std::optional<ModelTables>& model_;
  size_t process_ = 0;  ///< viewers count them from 1
};

std::string_view word_of_type(DType type) {
  return type == DType::kBF16 ? "bf16" : "f32";
}

}  // namespace

Result<> write_trace(const TraceFile& trace, const std::filesystem::path& file) {
  const auto fill = [&trace](int fd) {
    TraceText text(fd);
    text.add(R"({{"schema":"{}","run":)", kTraceSchema);
    text.add_quoted(trace.run);
    text.add(R"(,"coordinator":)");
    text.add_quoted(trace.coordinator);
    text.add(R"(,"budget":{},"compute_dtype":"{}","reduce_dtype":"{}")", trace.budget, word_of_type(trace.compute),
             word_of_type(trace.reduce));
    if (trace.host_visible) text.add(R"(,"host_visible":{})", *trace.host_visible);
    text.add(R"(,"displayTimeUnit":"ms","model":)");
    if (trace.model) {
      text.add_model(*trace.model);
    } else {
      text.add("null");
    }
    text.add(R"(,"traceEvents":[)");
    TraceEvents events(text, trace.model);
    for (const TracedRank& rank : trace.ranks) events.add(rank);
    text.add("\n]}}\n");
    return text.flush();
  };
  return write_whole(file, WholeFile{fill, {}, {}}, true);
}

}  // namespace pliant::sharded
