// Whatever bytes a map of owners, a .safetensors file, a trace or the record of a worker holds, it is read or refused.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "fuzz/mutations.hpp"
#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "scratch_folder.hpp"
#include "sharded/files/safetensors_header.hpp"
#include "sharded/rehearsal.hpp"
#include "sharded/shards/ownership.hpp"
#include "sharded/trace/trace_log.hpp"
#include "sharded/trace/trace_report.hpp"
#include "sharded/trace/traced_program.hpp"
#include "unit/sharded/traces.hpp"

using namespace pliant;
using test::fuzz;

TEST_CASE("the header of a .safetensors file is refused, or says of every byte whose it is") {
  sharded::SafetensorsHeader header{{{"a", DType::kF32, {2, 3}}, {"b", DType::kBF16, {}}, {"c", DType::kU8, {0}}},
                                    {{"format", "pt"}}};
  const std::string whole = *sharded::encode_safetensors_header(header);
  const std::vector<std::string> words{
      "null",   "-1",      "1e9",        "18446744073709551615", "[",      "{", "\"I64\"",
      "[0,24]", "[24,26]", "\"shape\":", "\"__metadata__\":",    "\\u0000"};
  int read = 0;
  fuzz({whole.substr(8)}, words, [&](std::string_view text) {
    const auto found = sharded::decode_safetensors_header(text, 26);
    if (!found) {
      CHECK(found.error().message().size() > 5);
      return;
    }
    ++read;
    uint64_t end = 0;
    for (const sharded::Tensor& tensor : found->tensors) {
      CHECK(tensor.first_byte == end);
      CHECK(tensor.bytes == sharded::bytes_of(tensor).value_or(~uint64_t{0}));
      end += tensor.bytes;
    }
    CHECK(end == 26);
  });
  CHECK(read > 0);
}

TEST_CASE("a map of owners is refused, or read as it would be written") {
  const std::string whole = sharded::Ownership::deal(40, 2)->save();
  const std::vector<std::string> words{"-1", "1e400", " 1:0", " 1048576:1", "ranks 1"};
  int read = 0;
  fuzz({whole}, words, [&](std::string_view text) {
    const auto map = sharded::Ownership::load(text);
    if (!map) return;
    ++read;
    CHECK(map->save() == text);
  });
  CHECK(read > 0);
}

namespace {

/// What `pliant trace`, `pliant plan --memory` and `pliant coordinator simulate` make of it.
void report_and_play(const sharded::TraceFile& read) {
  static const Config kConfig = [] {
    ConfigOverrides overrides;
    overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
    overrides.read_environment = false;
    return Config::parse("config_version = 1\n[coordinator]\nuse = \"eager\"\n", {"coordinator"}, overrides);
  }();
  const sharded::TraceFile trace = sharded::in_turn(read);
  const sharded::TraceReport report = sharded::report_of(trace);
  for (const sharded::ReportedWait& one : report.waits) CHECK(sharded::sentence_of(trace, one.of, one.wait).size() > 5);
  for (const sharded::ReportedStep& one : report.steps) CHECK(one.of < trace.ranks.size());
  for (const sharded::TracedRank& rank : trace.ranks) {
    const std::vector<sharded::TracedStep> steps = sharded::whole_steps(rank);
    try {
      sharded::simulate(
          kConfig, *trace.model, 2, steps, [](int) {}, [](const sharded::RehearsedCall&) {});
    } catch (const Error& error) {
      CHECK(error.message().size() > 5);
    }
  }
}

}  // namespace

TEST_CASE("a trace is refused in words, or what is read of it belongs together") {
  const test::ScratchFolder folder;
  const auto file = folder / "trace.json";
  REQUIRE(sharded::write_trace(sharded::small_trace(), file).has_value());
  const std::string whole = test::read_all(file);
  const std::vector<std::string> words{"null",
                                       "-1",
                                       "1e400",
                                       "18446744073709551615",
                                       "[",
                                       "{}",
                                       "\"gather\"",
                                       "\"module\":0",
                                       "\"parameter\":",
                                       "\"cat\":\"call\"",
                                       "\"ph\":\"M\"",
                                       "\"end_step\"",
                                       "{\"do\":\"release\"}",
                                       "\"budget\":1",
                                       "\"other\":",
                                       "\"model\":{"};
  int read = 0;
  fuzz({whole}, words, [&](std::string_view text) {
    test::write_all(file, std::string(text));
    const auto found = sharded::read_trace(file);
    if (!found) {
      CHECK(found.error().message().size() > 5);
      return;
    }
    ++read;
    for (const sharded::TracedRank& rank : found->ranks) {
      for (const sharded::TracedCall& call : rank.calls) {
        if (call.module) CHECK(*call.module < found->model->modules().size());
      }
      for (const sharded::TracedTransfer& transfer : rank.transfers) CHECK(transfer.call < rank.calls.size());
      for (const sharded::TracedWait& wait : rank.waits) CHECK(wait.parameter < found->model->parameters().size());
    }
    if (found->model) report_and_play(*found);
  });
  CHECK(read > 0);
}

TEST_CASE("a report can be made of any trace that is read, and what its ranks did is played or refused") {
  const test::ScratchFolder folder;
  const auto file = folder / "trace.json";
  int read = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    REQUIRE(sharded::write_trace(sharded::random_trace(seed), file).has_value());
    const auto found = sharded::read_trace(file);
    REQUIRE(found.has_value());
    if (!found->model) continue;
    ++read;
    report_and_play(*found);
  }
  CHECK(read > 0);
}

TEST_CASE("the record of a worker is read up to where it is none") {
  const test::ScratchFolder folder;
  const auto file = folder / "log";
  {
    auto log = sharded::TraceLog::create(file);
    REQUIRE(log.has_value());
    const sharded::TraceFile trace = sharded::small_trace();
    log->begin({1, 0, 2, &*trace.model, "planned"});
    for (const sharded::TracedCall& call : trace.ranks[0].calls) log->add(call);
    for (const sharded::TracedTransfer& transfer : trace.ranks[0].transfers) log->add(transfer);
    for (const sharded::TracedWait& wait : trace.ranks[0].waits) log->add(wait);
  }
  const std::string whole = test::read_all(file).substr(0, 4096);
  int read = 0;
  fuzz({whole}, {}, [&](std::string_view text) {
    test::write_all(file, std::string(text));
    const auto found = sharded::read_trace_log(file, 0);
    if (found) ++read;
    for (const sharded::TracedRank& rank : found ? found->ranks : std::vector<sharded::TracedRank>()) {
      for (const sharded::TracedTransfer& transfer : rank.transfers) CHECK(transfer.call < rank.calls.size());
    }
  });
  CHECK(read > 0);
}
