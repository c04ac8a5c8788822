// Rows of variable_batch.jsonl: `batch` through the sampler seqlen, `scale_lr` through the rules none, linear and sqrt.
#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "../plugins/sampler/common/python_shuffle.hpp"
#include "parity/parity.hpp"
#include "parity/python.hpp"
#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/lr_rule.h"

namespace pliant::parity {

namespace {

/// Which statuses stand for an exception of the reference.
bool maps_to(const Json& error, Status status) {
  const auto type = error.at("type").get<std::string>();
  const auto message = error.value("message", std::string());
  if (type == "AssertionError" && message.rfind("not enough datapoints", 0) == 0) {
    return status == Status::kFailedPrecondition || status == Status::kOutOfRange;
  }
  if (type == "AssertionError" || type == "TypeError" || type == "ZeroDivisionError")
    return status == Status::kInvalidArgument;
  if (type == "ValueError") return status == Status::kInvalidArgument || status == Status::kNotFound;
  if (type == "IndexError") return status == Status::kOutOfRange;
  return false;
}

Outcome compare_refusal(const Json& out, const Error& error) {
  const std::string actual = "status " + std::to_string(static_cast<int>(error.status())) + ": " + error.message();
  if (!out.contains("error")) return Outcome::failed(out.dump(), actual);
  return maps_to(out.at("error"), error.status()) ? Outcome::passed() : Outcome::failed(out.at("error").dump(), actual);
}

// --- batch ---

/// What batch_by_seqlens is asked, in the terms of the sampler.
struct BatchCase {
  std::vector<int32_t> lengths;
  std::vector<int64_t> ids;
  bool has_ids = false;
  int64_t rows_per_batch = 1;
  uint64_t seed = 0;
  Json options;
};

/// The words of an integer that was read as its decimal digits.
std::vector<uint32_t> words_of(const std::vector<uint8_t>& digits) {
  std::vector<uint32_t> words{0};
  for (const uint8_t digit : digits) {
    if (digit < '0' || digit > '9') continue;  // the sign: Python seeds with the absolute value
    uint64_t carry = static_cast<uint64_t>(digit - '0');
    for (uint32_t& word : words) {
      carry += uint64_t{word} * 10;
      word = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) words.push_back(static_cast<uint32_t>(carry));
  }
  return words;
}

/// Random order that no 64-bit seed can ask the plugin for (no seed, or a larger one): the ids go in as permuted. A
/// seed that is there must give that permutation. Returns the difference when it does not.
std::optional<std::string> permute_by_hand(const Json& row, BatchCase& asked) {
  const auto permutation = row.at("permutation").get<std::vector<int64_t>>();
  const Json& seed = row.at("args").at("seed");
  if (!seed.is_null()) {
    std::vector<int64_t> shuffled(permutation.size());
    for (size_t i = 0; i < shuffled.size(); ++i) shuffled[i] = static_cast<int64_t>(i);
    const std::vector<uint32_t> key = words_of(seed.get_binary());
    sampler::python_shuffle(std::span(shuffled), std::span<const uint32_t>(key));
    if (shuffled != permutation) return "the shuffle of a seed above 64 bits differs";
  }
  std::vector<int64_t> permuted;
  for (const int64_t position : permutation) {
    permuted.push_back(asked.has_ids ? asked.ids.at(static_cast<size_t>(position)) : position);
  }
  asked.ids = std::move(permuted);
  asked.has_ids = true;
  asked.options["sequence_picking_order"] = "dataloader";
  return std::nullopt;
}

BatchCase batch_case(const Json& row) {
  const Json& args = row.at("args");
  BatchCase asked;
  asked.lengths = row.at("seqlens").get<std::vector<int32_t>>();
  asked.has_ids = !args.at("sequence_ids_per_mb").is_null();
  if (asked.has_ids) asked.ids = args.at("sequence_ids_per_mb").get<std::vector<int64_t>>();
  asked.rows_per_batch = args.at("effective_batch_size").get<int64_t>();
  asked.options = Json{{"over_long", "drop"}};
  for (const char* key : {"min_batch_size", "max_batch_size"}) {
    asked.options[key] = args.at(key).is_null() ? Json(0) : args.at(key);
  }
  for (const char* key : {"sequence_picking_order", "required_microbatches_of_same_size"})
    asked.options[key] = args.at(key);
  if (!row.at("max_tokens").is_null()) asked.options["max_tokens"] = row.at("max_tokens");
  return asked;
}

Result<Json> run_sampler(const BatchCase& asked, Plugins& plugins) {
  Result<plugin::Instance> made = plugins.make("sampler", "seqlen", asked.options);
  if (!made) return failed(std::move(made));
  const auto& slots = made->table<pliant_batch_sampler>();
  static constexpr int64_t kNone = 0;  // an empty list is not the same as no list
  pliant_epoch_request request{};
  request.struct_size = sizeof(request);
  request.seed = asked.seed;
  request.rows_per_batch = asked.rows_per_batch;
  request.sequence_count = asked.lengths.size();
  request.lengths = asked.lengths.data();
  request.id_count = asked.ids.size();
  request.ids = !asked.has_ids ? nullptr : asked.ids.empty() ? &kNone : asked.ids.data();
  pliant_epoch epoch{};
  epoch.struct_size = sizeof(epoch);
  pliant_error error = plugin::fresh_error();
  int32_t status = slots.begin_epoch(made->self(), &request, &epoch, &error);
  if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(made->plugin(), status, error));
  std::vector<uint64_t> offsets(epoch.row_count + 1);
  std::vector<int64_t> ids(epoch.sequence_count);
  status = slots.rows(made->self(), 0, epoch.row_count, offsets.data(), ids.data(), ids.size(), &error);
  if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(made->plugin(), status, error));

  const auto batch_size = static_cast<size_t>(asked.rows_per_batch);
  Json packs = Json::array();
  std::vector<int64_t> sizes((epoch.row_count + batch_size - 1) / batch_size, 0);
  std::vector<int64_t> longest(sizes.size(), 0);
  for (size_t i = 0; i < epoch.row_count; ++i) {
    const std::span<const int64_t> pack =
        std::span<const int64_t>(ids).subspan(offsets[i], offsets[i + 1] - offsets[i]);
    const size_t batch = i / batch_size;
    packs.push_back(Json::array({batch, std::vector<int64_t>(pack.begin(), pack.end())}));
    sizes[batch] += static_cast<int64_t>(pack.size());
    for (const int64_t id : pack)
      longest[batch] = std::max<int64_t>(longest[batch], asked.lengths[static_cast<size_t>(id)]);
  }
  return Json{{"microbatch_ids", packs}, {"batch_sizes", sizes}, {"batch_max_seqlens", longest}};
}

bool is_negative(const Json& n) {
  return n.is_number_integer() && !n.is_number_unsigned() && n.get<int64_t>() < 0;
}
bool any_of(const Json& list, bool (*is)(const Json&)) {
  return list.is_array() && std::any_of(list.begin(), list.end(), is);
}
bool is_no_integer(const Json& value) {
  return !is_integer(value);
}
bool is_wide_value(const Json& value) {
  return is_integer(value) && !fits(value);
}
bool is_wide_length(const Json& value) {
  return is_integer(value) && (!fits(value) || value.get<int64_t>() > std::numeric_limits<int32_t>::max());
}

/// The rule for a row that the request of the ABI cannot hold, or nullptr.
const char* cannot_be_asked(const Json& row) {
  const Json& args = row.at("args");
  const Json& ids = args.at("sequence_ids_per_mb");
  const Json& batch = args.at("effective_batch_size");
  const Json& seed = args.at("seed");
  if (any_of(row.at("seqlens"), [](const Json& n) { return n.is_number_float(); })) return "float-length";
  const bool typed_ids = ids.is_null() || (ids.is_array() && !any_of(ids, is_no_integer));
  if (!typed_ids || is_no_integer(batch) || any_of(row.at("seqlens"), is_no_integer)) return "typed-argument";
  if (!seed.is_null() && is_no_integer(seed)) return "typed-argument";
  if (any_of(row.at("seqlens"), is_wide_length) || any_of(ids, is_wide_value) || is_wide_value(batch)) return "int64";
  return nullptr;
}

/// The rule for a refusal that the input of `row` explains, or nullptr.
const char* excuse(const Json& row) {
  const Json& args = row.at("args");
  const Json& most = row.at("max_tokens");
  const Json& low = args.at("min_batch_size");
  const Json& high = args.at("max_batch_size");
  const bool typed_limits =
      is_integer(most) && (low.is_null() || is_integer(low)) && (high.is_null() || is_integer(high));
  if (!typed_limits || !args.at("required_microbatches_of_same_size").is_boolean()) return "typed-argument";
  if (is_wide_value(most) || is_wide_value(low) || is_wide_value(high)) return "int64";
  if (is_negative(most) || is_negative(low) || is_negative(high)) return "negative-limit";
  if (any_of(row.at("seqlens"), is_negative)) return "negative-length";
  if (any_of(args.at("sequence_ids_per_mb"), is_negative)) return "negative-id";
  if (args.at("effective_batch_size") < 1) return "batch-below-1";
  return nullptr;
}

Outcome check_batch(const Json& row, Plugins& plugins, const Options&) {
  const Json& out = row.at("out");
  if (const char* rule = cannot_be_asked(row)) return Outcome::skipped(rule);
  BatchCase asked = batch_case(row);
  if (asked.options.at("sequence_picking_order") == "random") {
    const Json& seed = row.at("args").at("seed");
    if (seed.is_number_unsigned()) {
      asked.seed = seed.get<uint64_t>();
    } else if (seed.is_number_integer()) {
      asked.seed = uint64_t{0} - static_cast<uint64_t>(seed.get<int64_t>());
    } else if (const auto difference = permute_by_hand(row, asked)) {
      return Outcome::failed(*difference);
    }
  }
  const Result<Json> actual = run_sampler(asked, plugins);
  if (!actual) {
    const Outcome outcome = compare_refusal(out, actual.error());
    const char* rule = outcome.verdict == Outcome::Verdict::kFailed ? excuse(row) : nullptr;
    return rule != nullptr ? Outcome::skipped(rule) : outcome;
  }
  return *actual == out ? Outcome::passed() : Outcome::failed(out.dump(), actual->dump());
}

// --- scale_lr ---

Result<double> scaled_lr(const Json& row, const std::string& rule, Plugins& plugins) {
  Result<plugin::Instance> made = plugins.make("lr", rule, Json::object());
  if (!made) return failed(std::move(made));
  pliant_lr_input input{};
  input.struct_size = sizeof(input);
  input.base_lr = row.at("base_lr").get<double>();
  input.base_batch = row.at("base_batch_size").get<double>();
  input.batch = row.at("batch_size").get<double>();
  pliant_lr_output output{};
  output.struct_size = sizeof(output);
  pliant_error error = plugin::fresh_error();
  const pliant_lr_output before{sizeof(before), 0, input.base_lr, input.base_lr, 1, 1, 1, 1, 1, 1, 1, 1, 0};
  input.previous = &before;
  const int32_t status = made->table<pliant_lr_rule>().scale(made->self(), &input, &output, &error);
  if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(made->plugin(), status, error));
  return output.lr;
}

/// An integer that no double equals.
bool is_past_doubles(const Json& n) {
  if (!is_integer(n)) return false;
  if (!n.is_number_integer()) return true;
  const uint64_t size = is_negative(n) ? uint64_t{0} - static_cast<uint64_t>(n.get<int64_t>()) : n.get<uint64_t>();
  return size != 0 && (size >> static_cast<unsigned>(std::countr_zero(size))) >> 53U != 0;
}

Outcome check_scale_lr(const Json& row, Plugins& plugins, const Options&) {
  const Json& method = row.at("method");
  const Json& out = row.at("out");
  if (!method.is_null() && !method.is_string()) return Outcome::skipped("untyped-method");
  for (const char* key : {"base_lr", "base_batch_size", "batch_size"}) {
    const Json& value = row.at(key);
    if (is_past_doubles(value)) return Outcome::skipped("wide-integer");
    if (!value.is_number() && !value.is_boolean()) return Outcome::skipped("untyped-number");
  }
  std::string rule = method.is_null() ? "none" : method.get<std::string>();
  std::string lowered = rule;
  for (char& c : lowered) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lowered == "none") rule = lowered;  // the reference takes this word, and only this, in any case
  const Result<double> actual = scaled_lr(row, rule, plugins);
  if (!actual) {
    const bool finite = !out.contains("lr") || std::isfinite(out.at("lr").get<double>());
    return finite ? compare_refusal(out, actual.error()) : Outcome::skipped("not-finite");
  }
  if (!out.contains("lr")) return Outcome::failed(out.dump(), Json(*actual).dump());
  const auto expected = out.at("lr").get<double>();
  const bool same = expected == *actual && std::signbit(expected) == std::signbit(*actual);
  return same ? Outcome::passed() : Outcome::failed(Json(expected).dump(), Json(*actual).dump());
}

}  // namespace

std::vector<RowKind> variable_batch_rows() {
  const auto of_kind = [](const char* kind) {
    return [kind](const Json& row) { return row.contains("kind") && row.at("kind") == kind; };
  };
  return {
      {"batch",
       of_kind("batch"),
       {{"float-length", "A length counts tokens: the ABI takes integers, so lengths with a fraction cannot be asked."},
        {"typed-argument",
         "An argument of another type than the sampler takes: options of TOML and numbers of the ABI are typed."},
        {"int64", "A length past 31 bits, an id, a batch or a limit past 63: the ABI takes an int32_t and an int64_t."},
        {"negative-limit", "max_tokens, min_batch_size or max_batch_size below 0: the options refuse it."},
        {"negative-length", "A length counts tokens: negative ones are refused."},
        {"negative-id", "Python's indices from the end: ids of the sampler count from 0 and others are refused."},
        {"batch-below-1",
         "A global batch below 1 row is refused before all else; the reference returns an empty epoch below 0 and may "
         "name another fault at 0."}},
       check_batch},
      {"scale_lr",
       of_kind("scale_lr"),
       {{"untyped-method", "[lr] use is a string; another type is refused when the config is read."},
        {"untyped-number", "A rate or a batch that is no number: the ABI takes doubles."},
        {"wide-integer", "A rate or a batch in an integer that no double equals: the ABI takes doubles."},
        {"not-finite", "A rate that comes out as NaN or infinity: Pliant refuses to train with it."}},
       check_scale_lr},
  };
}

}  // namespace pliant::parity
