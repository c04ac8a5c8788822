// Whatever bytes come in from outside, a config, a worker, a damaged disk, a command line, they are read or refused.
#include <doctest/doctest.h>

#include <istream>
#include <ostream>
#include <string>

#include "../plugins/sampler/common/stream_engines.hpp"
#include "config/values/parse.hpp"
#include "config/values/source.hpp"
#include "data/lengths_file.hpp"
#include "elastic/ledger.hpp"
#include "elastic/ledger_line.hpp"
#include "elastic/message.hpp"
#include "elastic/snapshot.hpp"
#include "fuzz/mutations.hpp"
#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "pliant/import.hpp"
#include "pliant/job.hpp"
#include "scratch_folder.hpp"

using namespace pliant;
using test::fuzz;
using test::read_all;
using test::ScratchFolder;
using test::write_all;

namespace {

elastic::CommitRecord a_commit(int64_t step) {
  elastic::CommitRecord commit;
  commit.step = step;
  commit.generation = 1;
  commit.size = {8, 9, 100, 91};
  commit.digest = 0x1234567890abcdefU;
  commit.shares = {{{0, 4}}, {{4, 4}}};
  commit.loss = 2.5;
  return commit;
}

}  // namespace

TEST_CASE("a config is opened or refused with findings, whatever is in it") {
  const ScratchFolder folder;
  const auto file = folder / "pliant.toml";
  const std::vector<std::string> seeds{read_all(std::string(PLIANT_SOURCE_DIR) + "/samples/tinylm/pliant.toml"),
                                       read_all(std::string(PLIANT_SOURCE_DIR) + "/samples/foreign/pliant.toml"),
                                       "config_version = 1\n[elasticity]\nuse = \"v0.2\"\n[elasticity.\"v0.2\"]\n"
                                       "micro_batch_sizes = [1, 2]\nmax_train_batch_size = 100\n"};
  const std::vector<std::string> words{"[[",         "]]",    "[run]", "{",       "}",         "\"\"\"",
                                       "'''",        "1e999", "0x",    "inf",     "nan",       "9223372036854775808",
                                       "1979-05-27", ".",     "= =",   "\\u0000", "[lr.sqrt]", "use"};
  ConfigOverrides overrides;
  overrides.read_environment = false;
  int opened = 0;
  fuzz(seeds, words, [&](std::string_view text) {
    write_all(file, std::string(text));
    try {
      const Config config = Config::open(file, {"elasticity"}, overrides);
      ++opened;
      const auto again = folder / "again.toml";
      write_all(again, config.resolved_toml());
      CHECK(Config::open(again, {"elasticity"}, overrides).resolved_toml() == config.resolved_toml());
    } catch (const Error& error) {
      CHECK((error.origin() == Origin::kInput || error.origin() == Origin::kPlugin));
      CHECK(error.message().size() > 10);
    }
  });
  CHECK(opened > 0);
}

TEST_CASE("a line of a worker or of the agent is a message or is refused, and a message reads as it was written") {
  const std::vector<std::string> seeds{
      to_line(elastic::FromWorker(elastic::Vote{3, 7, 99, 1.5, 12, 0.1})),
      to_line(elastic::FromWorker(elastic::Broken{3, "no room", elastic::BreakCause::kShortage})),
      to_line(elastic::FromWorker(elastic::SnapshotWritten{3, "snapshots/x", ""})),
      to_line(elastic::FromWorker(elastic::Refused{5, Origin::kInput, "budget"})),
      to_line(elastic::ToWorker(elastic::Commit{4, true, "snapshots/y"})),
      to_line(elastic::ToWorker(elastic::Save{4, "snapshots/y"})),
      to_line(elastic::ToWorker(elastic::Form{})),
  };
  const std::vector<std::string> words{"null", "-1", "1e400", "\"nan\"", "18446744073709551616",
                                       "[",    "{",  "true",  "\\u0000"};
  int read = 0;
  fuzz(seeds, words, [&](std::string_view text) {
    if (const auto message = elastic::parse_from_worker(text)) {
      ++read;
      CHECK(to_line(*elastic::parse_from_worker(to_line(*message))) == to_line(*message));
    }
    if (const auto message = elastic::parse_to_worker(text)) {
      ++read;
      CHECK(to_line(*elastic::parse_to_worker(to_line(*message))) == to_line(*message));
    }
  });
  CHECK(read > 0);
}

TEST_CASE("a damaged ledger is opened at a prefix of its commits or refused, never at other commits") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  {
    auto ledger = elastic::Ledger::create(file, "run", "0123456789abcdef");
    REQUIRE(ledger.has_value());
    REQUIRE(ledger->append(elastic::GenerationRecord{1, 2, 0, "start"}).has_value());
    for (int64_t step = 0; step < 4; ++step) REQUIRE(ledger->append(a_commit(step)).has_value());
  }
  const std::string whole = read_all(file);
  const std::vector<std::string> words{"\n", "{}", "\"crc\":\"00000000\"", "1e9"};
  fuzz({whole}, words, [&](std::string_view text) {
    write_all(file, std::string(text));
    const auto ledger = elastic::Ledger::open(file);
    if (!ledger) {
      CHECK(ledger.error().message().find("ledger.jsonl") != std::string::npos);
      CHECK(read_all(file) == text);
      return;
    }
    const auto& commits = ledger->lineage().commits;
    REQUIRE(commits.size() <= 4);
    for (size_t i = 0; i < commits.size(); ++i) {
      CHECK(commits[i].step == static_cast<int64_t>(i));
      CHECK(commits[i].digest == a_commit(0).digest);
    }
  });
}

TEST_CASE("a damaged snapshot or lengths file is refused before anybody uses a byte of it") {
  const ScratchFolder folder;
  const auto snapshot = folder / "s.snapshot";
  const std::string state = "weights and moments";
  REQUIRE(elastic::write_snapshot(snapshot, {7, "0123456789abcdef", "rate"}, [&](std::ostream& out) {
            out << state;
          }).has_value());
  const std::string whole_snapshot = read_all(snapshot);
  const auto lengths = folder / "dataset.bin";
  Dataset dataset;
  dataset.lengths = {3, 1, 4, 1, 5};
  dataset.loss_tokens = {2, 0, 3, 0, 4};
  REQUIRE(data::write_dataset_once(lengths, dataset).has_value());
  const std::string whole_lengths = read_all(lengths);
  std::filesystem::remove(lengths);
  dataset.rows = {{0, 2, 5}, {4, 0, 2, 1, 3}};
  dataset.costs = {2, 7, 1, 8, 2};
  REQUIRE(data::write_dataset_once(lengths, dataset).has_value());
  const std::string whole_rows = read_all(lengths);
  fuzz({whole_snapshot, whole_lengths, whole_rows}, {}, [&](std::string_view text) {
    write_all(snapshot, std::string(text));
    std::string seen;
    const auto header = elastic::read_snapshot(
        snapshot, [&](std::istream& in, const elastic::SnapshotHeader&) { std::getline(in, seen, '\0'); });
    CHECK(header.has_value() == (text == whole_snapshot));
    CHECK(seen == (header ? state : ""));
    write_all(lengths, std::string(text));
    CHECK(data::read_dataset(lengths).has_value() == (text == whole_lengths || text == whole_rows));
  });
}

TEST_CASE("a damaged position of a row stream is refused, or goes on without leaving its sequences") {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 60; ++i) lengths.push_back(1 + i * 7 % 25);
  sdk::EpochRequest request;
  request.lengths = lengths;
  using Engine = sampler::WindowEngine<sampler::BitmapIndex>;
  const sampler::FeedRule rule{10, sampler::Cost(), "split"};
  const sampler::WindowRule windows{10, 0, 4, 32, 8};
  sampler::RowStream<Engine> stream(rule, Engine(windows));
  stream.open(request);
  for (int row = 0; row < 12; ++row) {
    REQUIRE(stream.peek() != nullptr);
    stream.take();
  }
  int went_on = 0;
  fuzz({stream.save()}, {std::string(8, '\0'), std::string(8, '\xff'), std::string("\1\0\0\0\0\0\0\0", 8)},
       [&](std::string_view bytes) {
         try {
           auto resumed = sampler::RowStream<Engine>::load(rule, Engine(windows), std::string(bytes));
           resumed.open(request);
           ++went_on;
           while (const sampler::Row* row = resumed.peek()) {
             for (const sdk::Entry& entry : *row) {
               CHECK(entry.piece.first + entry.piece.count <= lengths[static_cast<size_t>(entry.id)]);
             }
             resumed.take();
           }
         } catch (const sdk::Failure& refused) {
           CHECK((refused.status() == PLIANT_DATA_LOSS || refused.status() == PLIANT_FAILED_PRECONDITION));
         }
       });
  CHECK(went_on > 0);
}

TEST_CASE("a DeepSpeed config is refused, or becomes a document that opens") {
  const ScratchFolder folder;
  const auto file = folder / "imported.toml";
  const std::vector<std::string> seeds{
      R"({"elasticity": {"enabled": true, "version": 0.1, "max_train_batch_size": 100, "micro_batch_sizes": [1, 2]}})",
      R"({"elasticity": {"enabled": true, "max_train_batch_size": 64, "micro_batch_sizes": [4], "num_gpus_per_node": 2},
          "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7, "offload_param": {"device": "cpu"}},
          "bf16": {"enabled": true}, "communication_data_type": "fp32"})",
      R"({"train_batch_size": 8, "optimizer": {"params": {"lr": 1e-3}}, "data_efficiency": {"seed": 3, "data_sampling":
          {"dynamic_batching": {"enabled": true, "max_tokens": 100, "lr_scaling_method": "sqrt"}}}})"};
  const std::vector<std::string> words{"NaN",
                                       "-Infinity",
                                       "null",
                                       "true",
                                       "[[",
                                       "{}",
                                       "\"auto\"",
                                       "\\ud800",
                                       "1e999",
                                       "\"\\n[x]\\n\":1,",
                                       "9223372036854775808",
                                       "-1",
                                       "\xEF\xBB\xBF",
                                       ",",
                                       "0.5"};
  ConfigOverrides overrides;
  overrides.read_environment = false;
  int imported = 0;
  fuzz(seeds, words, [&](std::string_view text) {
    std::string toml;
    try {
      toml = import_deepspeed(text).toml;
      ++imported;
    } catch (const Error& error) {
      CHECK(error.origin() == Origin::kInput);
      return;
    }
    write_all(file, toml);
    ConfigNeeds needs{"lr"};
    if (toml.find("\n[elasticity]") != std::string::npos) needs.insert("elasticity");
    CHECK_NOTHROW(static_cast<void>(Config::open(file, needs, overrides)));
  });
  CHECK(imported > 0);
}

TEST_CASE("an injection on the command line is understood or refused with the grammar") {
  fuzz({"kill:rank=2,step=20", "kill:rank=0,step=3,at=commit", "kill:agent,step=7,at=vote",
        "stop:rank=1,step=4,at=gather"},
       {"=", ",", "rank=", "step", "-1", "9223372036854775808", "at=", "agent"}, [](std::string_view text) {
         try {
           const InjectedKill kill = parse_injection(text);
           CHECK(kill.step >= 0);
           CHECK((kill.agent || kill.rank >= 0));
         } catch (const Error& error) {
           CHECK(error.origin() == Origin::kInput);
         }
       });
}
