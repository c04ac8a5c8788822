#include "elastic/message.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/append_json.hpp"
#include "base/json_depth.hpp"

namespace pliant::elastic {
namespace {

using nlohmann::json;

// No field is longer: escaped, it still fits into a message.
constexpr size_t kLongestText = size_t{64} << 10;
// {"injections": [[0, 20, 0, false]]}
constexpr int kDeepestMessage = 3;

constexpr std::array<std::string_view, 11> kPoints{"forward", "reduce",  "vote",     "commit", "apply", "copy",
                                                   "gather",  "scatter", "snapshot", "finish", "bucket"};

// Every message lists its fields once; Encoder and Decoder walk that list.
class Encoder {
 public:
  explicit Encoder(std::string_view type) {
    text_ += "{\"type\":";
    append_json(text_, type);
  }
  template <class V>
  void operator()(const char* key, const V& value) {
    begin(key);
    append(value);
  }
  /// One that is of no use when it is cut.
  void whole(const char* key, const std::string& value) {
    begin(key);
    append_json(text_, value);
  }
  std::string take() {
    text_ += '}';
    return std::move(text_);
  }

 private:
  void begin(const char* key) {
    text_ += ',';
    append_json(text_, std::string_view(key));
    text_ += ':';
  }
  void append(int value) { append_json(text_, value); }
  void append(int64_t value) { append_json(text_, value); }
  void append(bool value) { append_json(text_, value); }
  void append(double value) { append_json(text_, value); }
  /// Readers of JSON may take a number for one of 53 bits.
  void append(uint64_t value) { append_json(text_, std::to_string(value)); }
  /// It may quote any bytes of a program: these must not end the conversation.
  void append(const std::string& value) { append_json(text_, std::string_view(value).substr(0, kLongestText)); }
  void append(BreakCause value) { append(static_cast<int>(value)); }
  void append(Origin value) { append(static_cast<int>(value)); }
  /// [id, step, point, whether it is a stop]
  void append(const Injection& one) { append_array(one.id, one.step, static_cast<int>(one.at), one.stop); }
  void append(const RowRange& one) { append_array(one.first, one.count); }
  /// [name, rule, parts of the sum, these parts, parts of the weight]
  void append(const MetricShare& one) {
    append_array(one.name, static_cast<int>(one.rule), static_cast<int64_t>(one.sum.size()));
    text_.pop_back();
    for (const auto* const parts : {&one.sum, &one.weight}) {
      for (const double part : *parts) {
        text_ += ',';
        append(part);
      }
    }
    text_ += ']';
  }
  template <class V>
  void append(const std::vector<V>& list) {
    text_ += '[';
    for (const V& one : list) {
      if (text_.back() != '[') text_ += ',';
      append(one);
    }
    text_ += ']';
  }
  void append(const std::map<std::string, double>& values) {
    text_ += '{';
    for (const auto& [name, value] : values) {
      if (text_.back() != '{') text_ += ',';
      append_json(text_, name);
      text_ += ':';
      append(value);
    }
    text_ += '}';
  }
  template <class... Values>
  void append_array(const Values&... values) {
    text_ += '[';
    ((append(values), text_ += ','), ...);
    text_.back() = ']';
  }

  std::string text_;
};

class Decoder {
 public:
  explicit Decoder(const json& object) : object_(object) {}
  template <class V>
  void operator()(const char* key, V& value) {
    value = object_.at(key).get<V>();
  }
  void whole(const char* key, std::string& value) { (*this)(key, value); }
  void operator()(const char* key, double& value) { value = number(object_.at(key)); }
  void operator()(const char* key, uint64_t& value) { value = whole_number(object_.at(key)); }
  void operator()(const char* key, std::vector<uint64_t>& list) {
    list.clear();
    for (const json& one : object_.at(key)) list.push_back(whole_number(one));
  }
  void operator()(const char* key, BreakCause& value) {
    const int cause = object_.at(key).get<int>();
    if (cause < 0 || cause > static_cast<int>(BreakCause::kRefused)) throw std::out_of_range(key);
    value = static_cast<BreakCause>(cause);
  }
  void operator()(const char* key, Origin& value) {
    const int origin = object_.at(key).get<int>();
    if (origin < 0 || origin > static_cast<int>(Origin::kWorldSize)) throw std::out_of_range(key);
    value = static_cast<Origin>(origin);
  }
  void operator()(const char* key, std::vector<Injection>& list) {
    list.clear();
    for (const json& one : object_.at(key)) {
      const int point = one.at(2).get<int>();
      if (point < 0 || point >= static_cast<int>(kPoints.size())) throw std::out_of_range(key);
      list.push_back({one.at(0).get<int64_t>(), one.at(1).get<int64_t>(), static_cast<InjectionPoint>(point),
                      one.at(3).get<bool>()});
    }
  }

  void operator()(const char* key, std::vector<RowRange>& list) {
    list.clear();
    for (const json& one : object_.at(key)) list.push_back({one.at(0).get<int64_t>(), one.at(1).get<int64_t>()});
  }

  void operator()(const char* key, std::vector<MetricShare>& list) {
    list.clear();
    const json& array = object_.at(key);
    if (array.size() > kMostMetrics) throw std::out_of_range(key);
    for (const json& one : array) {
      MetricShare share;
      share.name = one.at(0).get<std::string>();
      const int rule = one.at(1).get<int>();
      const size_t parts = one.at(2).get<size_t>();
      const bool fits = is_metric_name(share.name) && rule >= 0 && rule <= static_cast<int>(MetricRule::kMin);
      if (!fits || parts > one.size() - 3) throw std::out_of_range(key);
      share.rule = static_cast<MetricRule>(rule);
      for (size_t i = 3; i < one.size(); ++i) (i < 3 + parts ? share.sum : share.weight).push_back(number(one[i]));
      list.push_back(std::move(share));
    }
  }

  void operator()(const char* key, std::map<std::string, double>& values) {
    values.clear();
    for (const auto& [name, value] : object_.at(key).items()) values[name] = number(value);
  }

 private:
  static double number(const json& field) {
    return field.is_string() ? std::strtod(field.get_ref<const std::string&>().c_str(), nullptr) : field.get<double>();
  }
  static uint64_t whole_number(const json& field) {
    const auto& text = field.get_ref<const std::string&>();
    uint64_t value = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end.ec != std::errc{} || end.ptr != text.data() + text.size()) throw std::out_of_range(text);
    return value;
  }
  const json& object_;
};

template <class Rates, class Coder>
void rates_fields(Rates& rates, Coder& f) {
  f("cost_per_token", rates.per_token), f("cost_per_square", rates.per_square);
}

template <class Of, class Coder>
void evaluation_fields(Of& evaluation, Coder& f) {
  f("evaluated_step", evaluation.step), f("evaluated_ranks", evaluation.ranks);
  f("evaluated_lost", evaluation.lost), f("evaluated", evaluation.values);
}

template <class Message, class Coder>
void fields(Message& m, Coder& f) {
  using M = std::remove_const_t<Message>;
  if constexpr (std::is_same_v<M, Hello>) {
    f("pid", m.pid);
  } else if constexpr (std::is_same_v<M, Ready>) {
    f("fingerprint", m.fingerprint), f("options", m.options), f("device", m.device), f("device_name", m.device_name);
    f("host_visible", m.host_visible), f("sharded", m.sharded), f("model", m.model);
    f("arrays", m.arrays), f("gradient", m.gradient), f("policies", m.policies), f("plugins", m.plugins);
  } else if constexpr (std::is_same_v<M, DataWritten>) {
    f("error", m.error), f("status", m.status), f("origin", m.origin);
  } else if constexpr (std::is_same_v<M, Refused>) {
    f("status", m.status), f("origin", m.origin), f("options", m.options);
  } else if constexpr (std::is_same_v<M, CommIdMade> || std::is_same_v<M, CommIdShared>) {
    f("generation", m.generation), f("id", m.id);
  } else if constexpr (std::is_same_v<M, Joining> || std::is_same_v<M, Abort>) {
    f("generation", m.generation);
  } else if constexpr (std::is_same_v<M, Formed>) {
    f("generation", m.generation), f("bytes_moved", m.bytes_moved);
    f.whole("owners", m.owners);
  } else if constexpr (std::is_same_v<M, Copying>) {
    f("generation", m.generation), f("in_place", m.in_place), f("given_up", m.given_up);
  } else if constexpr (std::is_same_v<M, Holds>) {
    f("step", m.step), f("compared", m.compared), f("state", m.state);
  } else if constexpr (std::is_same_v<M, Reducing>) {
    f("generation", m.generation), f("step", m.step), f("assignment", m.assignment), f("rows", m.rows);
  } else if constexpr (std::is_same_v<M, Vote>) {
    f("generation", m.generation), f("step", m.step), f("digest", m.digest), f("loss_sum", m.loss_sum);
    f("loss_tokens", m.loss_tokens), f("learning_rate", m.learning_rate);
    f("tokens", m.share.tokens), f("squares", m.share.squares), f("microseconds", m.share.microseconds);
    f("finite", m.finite), f("not_finite", m.not_finite), f("not_finite_more", m.not_finite_more);
    f("sum_finite", m.sum_finite), f("sum_overflows", m.sum_overflows);
    f("compared", m.compared), f("state", m.state), f("digest_microseconds", m.digest_microseconds);
    f("visits", m.visits.count), f("visits_digest", m.visits.digest), f("scaling", m.scaling), f("metrics", m.metrics);
    f("end", m.end);
  } else if constexpr (std::is_same_v<M, Evaluated>) {
    f("step", m.step), f("metrics", m.metrics), f("attempt", m.attempt);
  } else if constexpr (std::is_same_v<M, Broken>) {
    f("generation", m.generation), f("reason", m.reason), f("cause", m.cause);
  } else if constexpr (std::is_same_v<M, SnapshotWritten>) {
    f("step", m.step), f("file", m.file), f("error", m.error), f("compared", m.compared), f("state", m.state);
  } else if constexpr (std::is_same_v<M, PartWritten>) {
    f("step", m.step), f("file", m.file), f("error", m.error);
    f("generation", m.generation), f("cut", m.cut), f("beside", m.beside), f("digests", m.digests);
  } else if constexpr (std::is_same_v<M, Finished>) {
    f("weights", m.memory.weights), f("state", m.memory.state), f("sums", m.memory.sums);
    f("gathered_most", m.memory.gathered_most), f("passes", m.passes.all), f("passes_followed", m.passes.followed);
    f("gathered", m.passes.gathered), f("gathered_bytes", m.passes.gathered_bytes);
  } else if constexpr (std::is_same_v<M, BusyWith>) {
    f("what", m.what), f("at_most_s", m.at_most_s);
  } else if constexpr (std::is_same_v<M, Injected>) {
    f("id", m.id);
  } else if constexpr (std::is_same_v<M, Form>) {
    f("generation", m.generation), f("rank", m.rank), f("world_size", m.world_size), f("next_step", m.next_step);
    f("micro_batch", m.micro_batch), f("donor", m.donor), f("copy_state", m.copy_state),
        f("wants_state", m.wants_state), f("compare", m.compare);
    f("restore", m.restore), rates_fields(m.rates, f);
    f("injections", m.injections), f("was", m.was), f("stay", m.stay), f("trace", m.trace), f("visits", m.visits);
    f.whole("owners", m.owners);
    evaluation_fields(m.evaluation, f);
  } else if constexpr (std::is_same_v<M, Commit>) {
    f("step", m.step), f("skip", m.skip), f("wait", m.wait), f("snapshot", m.snapshot), f("compare", m.compare);
    rates_fields(m.rates, f);
    evaluation_fields(m.evaluation, f);
  } else if constexpr (std::is_same_v<M, Tell>) {
    f("compare", m.compare);
  } else if constexpr (std::is_same_v<M, Save>) {
    f("step", m.step), f("file", m.file);
  } else if constexpr (std::is_same_v<M, Assemble>) {
    f("step", m.step), f("file", m.file), f("digests", m.digests);
  }
}

template <class Message>
constexpr std::string_view type_name() {
  if constexpr (std::is_same_v<Message, Hello>) return "hello";
  if constexpr (std::is_same_v<Message, Ready>) return "ready";
  if constexpr (std::is_same_v<Message, DataWritten>) return "data_written";
  if constexpr (std::is_same_v<Message, Refused>) return "refused";
  if constexpr (std::is_same_v<Message, WriteData>) return "write_data";
  if constexpr (std::is_same_v<Message, CommIdMade>) return "comm_id_made";
  if constexpr (std::is_same_v<Message, CommIdShared>) return "comm_id";
  if constexpr (std::is_same_v<Message, Joining>) return "joining";
  if constexpr (std::is_same_v<Message, Copying>) return "copying";
  if constexpr (std::is_same_v<Message, Formed>) return "formed";
  if constexpr (std::is_same_v<Message, Abort>) return "abort";
  if constexpr (std::is_same_v<Message, Reducing>) return "reducing";
  if constexpr (std::is_same_v<Message, Vote>) return "vote";
  if constexpr (std::is_same_v<Message, Evaluated>) return "evaluated";
  if constexpr (std::is_same_v<Message, Broken>) return "broken";
  if constexpr (std::is_same_v<Message, SnapshotWritten>) return "snapshot_written";
  if constexpr (std::is_same_v<Message, PartWritten>) return "part_written";
  if constexpr (std::is_same_v<Message, Assemble>) return "assemble";
  if constexpr (std::is_same_v<Message, BusyWith>) return "busy_with";
  if constexpr (std::is_same_v<Message, Injected>) return "injected";
  if constexpr (std::is_same_v<Message, Finished>) return "finished";
  if constexpr (std::is_same_v<Message, Form>) return "form";
  if constexpr (std::is_same_v<Message, Commit>) return "commit";
  if constexpr (std::is_same_v<Message, Holds>) return "holds";
  if constexpr (std::is_same_v<Message, Tell>) return "tell";
  if constexpr (std::is_same_v<Message, Save>) return "save";
  if constexpr (std::is_same_v<Message, Stop>) return "stop";
}

template <class Variant>
std::string encode(const Variant& message) {
  return std::visit(
      [](const auto& m) {
        Encoder encoder(type_name<std::decay_t<decltype(m)>>());
        fields(m, encoder);
        return encoder.take();
      },
      message);
}

template <class Variant, size_t I = 0>
bool decode(const json& object, std::string_view type, Variant& out) {
  if constexpr (I < std::variant_size_v<Variant>) {
    using Message = std::variant_alternative_t<I, Variant>;
    if (type != type_name<Message>()) return decode<Variant, I + 1>(object, type, out);
    Message message;
    Decoder decoder(object);
    fields(message, decoder);
    out = std::move(message);
    return true;
  }
  return false;
}

template <class Variant>
Result<Variant> parse(std::string_view line) {
  try {
    if (nests_deeper(line, kDeepestMessage)) return failed(Status::kDataLoss, "not a message of this protocol: nested");
    const json object = json::parse(line);
    Variant out;
    if (decode(object, object.at("type").get_ref<const std::string&>(), out)) return out;
  } catch (const std::exception&) {  // falls through: every cause gets the same answer
  }
  return failed(Status::kDataLoss, "not a message of this protocol: " + std::string(line.substr(0, 200)));
}

}  // namespace

std::string to_line(const FromWorker& message) {
  return encode(message);
}
std::string to_line(const ToWorker& message) {
  return encode(message);
}
Result<FromWorker> parse_from_worker(std::string_view line) {
  return parse<FromWorker>(line);
}
Result<ToWorker> parse_to_worker(std::string_view line) {
  return parse<ToWorker>(line);
}

Result<InjectionPoint> parse_injection_point(std::string_view word) {
  for (size_t i = 0; i < kPoints.size(); ++i) {
    if (kPoints[i] == word) return static_cast<InjectionPoint>(i);
  }
  return failed(Status::kInvalidArgument,
                "'" + std::string(word) +
                    "' is not a point of a step; allowed: forward, bucket, reduce, vote, commit, apply, copy, gather, "
                    "scatter, snapshot, finish",
                Origin::kInput);
}

}  // namespace pliant::elastic
