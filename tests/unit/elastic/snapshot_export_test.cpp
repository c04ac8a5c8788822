// Snapshots that become .safetensors files: which snapshot, which tensors, and what is refused without a file.
#include "pliant/snapshot.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "elastic/ledger.hpp"
#include "elastic/snapshot.hpp"
#include "ledger_samples.hpp"
#include "scratch_folder.hpp"
#include "sharded/files/safetensors.hpp"

namespace pliant::elastic {
namespace {

using pliant::test::ScratchFolder;

void write(const std::filesystem::path& file, int64_t step, const std::string& arrays, const std::string& state,
           const std::string& parameters = "") {
  SnapshotHeader header{step, "00ff", "lr", "run-1", arrays, parameters};
  REQUIRE(write_snapshot(file, header, [&](std::ostream& out) { out << state; }).has_value());
}

std::string bytes_of(const sharded::SafetensorsReader& reader, const std::string& name) {
  const sharded::Tensor* const tensor = reader.find(name);
  REQUIRE(tensor != nullptr);
  std::string bytes(tensor->bytes, '\0');
  REQUIRE(reader.read(*tensor, 0, tensor->bytes, bytes.data()).has_value());
  return bytes;
}

std::string refusal_of(Status status, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.status() == status);
    return error.message();
  }
  FAIL("nothing was refused");
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

/// Three steps with a snapshot after each, whose state is a letter; the second is the best.
struct Run : ScratchFolder {
  explicit Run(const std::string& config = "keep_best = \"valid\"") {
    Ledger ledger = test::filled_ledger(*this / "ledger.jsonl", 3);
    for (int64_t step = 1; step <= 3; ++step) {
      const std::filesystem::path file = snapshot_file(step);
      elastic::write(path() / file, step, "w u8[1]\n", std::string(1, static_cast<char>('a' + step)));
      SnapshotRecord record;
      record.step = step;
      record.file = file.string();
      REQUIRE(ledger.append(record).has_value());
      REQUIRE(ledger.append(Evaluation{step, 1, 0, {{"valid", step == 2 ? 0.25 : 0.5}}}).has_value());
    }
    ScratchFolder::write("config.toml", "config_version = 1\n[run]\n" + config + "\n");
  }
  [[nodiscard]] std::filesystem::path snapshot(int64_t step) const { return path() / snapshot_file(step); }
  /// The letter of the snapshot that was exported.
  [[nodiscard]] std::string exported(const SnapshotChoice& which = {}) const {
    const SnapshotExport made = export_snapshot(path(), which, *this / "out.safetensors", true);
    const auto reader = sharded::SafetensorsReader::open(*this / "out.safetensors");
    REQUIRE(reader.has_value());
    CHECK(made.run_id == "run-1");
    CHECK(made.snapshot == snapshot(made.step));
    CHECK(reader->header().metadata.at("step") == std::to_string(made.step));
    CHECK(reader->header().metadata.count("metric") == (which.best ? 1 : 0));
    return bytes_of(*reader, "w");
  }
};

}  // namespace

TEST_CASE("all arrays of a snapshot become tensors by name, and what the program wrote behind them does not") {
  const ScratchFolder folder;
  const std::string weights = "0123456789abcdef";
  write(folder / "s.snapshot", 7, "net/w f32[2,2]\nsteps i64[]\nnone bf16[0,3]\nhalf f16[1]\n",
        weights + "12345678" + "hh" + "the rest");
  const SnapshotExport made = export_snapshot(folder / "s.snapshot", {}, folder / "m.safetensors");
  CHECK(made.step == 7);
  CHECK(made.tensors == 4);
  CHECK(made.bytes == 26);
  CHECK_FALSE(made.best.has_value());
  const auto reader = sharded::SafetensorsReader::open(folder / "m.safetensors");
  REQUIRE(reader.has_value());
  CHECK(reader->header().metadata == sharded::Metadata{{"run_id", "run-1"}, {"step", "7"}});
  CHECK(reader->find("net/w")->shape == std::vector<int64_t>{2, 2});
  CHECK(reader->find("steps")->shape.empty());
  CHECK(reader->find("steps")->dtype == DType::kI64);
  CHECK(reader->find("none")->dtype == DType::kBF16);
  CHECK(bytes_of(*reader, "net/w") == weights);
  CHECK(bytes_of(*reader, "steps") == "12345678");
  CHECK(bytes_of(*reader, "half") == "hh");
}

TEST_CASE("of a sharded job the parameters are taken out of its weights, wherever these lie, and nothing else") {
  const ScratchFolder folder;
  const std::string momentum(20, 'm');
  const std::string parameters = "a.w f32[2] 0\nempty f32[0,4] 2\nb.w f32[1,3] 2\n";
  for (const bool first : {true, false}) {
    CAPTURE(first);
    write(folder / "s.snapshot", 4, first ? "weights f32[5]\nadam.m f32[5]\n" : "adam.m f32[5]\nweights f32[5]\n",
          first ? "aaaaaaaabbbbbbbbbbbb" + momentum : momentum + "aaaaaaaabbbbbbbbbbbb", parameters);
    CHECK(export_snapshot(folder / "s.snapshot", {}, folder / "m.safetensors", true).tensors == 3);
    const auto reader = sharded::SafetensorsReader::open(folder / "m.safetensors");
    REQUIRE(reader.has_value());
    CHECK(reader->header().tensors.size() == 3);
    CHECK(bytes_of(*reader, "a.w") == "aaaaaaaa");
    CHECK(bytes_of(*reader, "b.w") == "bbbbbbbbbbbb");
    CHECK(reader->find("b.w")->shape == std::vector<int64_t>{1, 3});
  }
}

TEST_CASE("of a run the newest snapshot is taken, that of a step, or the best one with its value") {
  const Run run;
  CHECK(run.exported() == "d");
  CHECK(run.exported({false, 1}) == "b");
  CHECK(run.exported({true, {}}) == "c");
  const SnapshotExport made = export_snapshot(run.path(), {true, {}}, run / "best.safetensors");
  REQUIRE(made.best.has_value());
  CHECK(made.best->metric == "valid");
  CHECK(made.best->value == 0.25);
  const auto reader = sharded::SafetensorsReader::open(run / "best.safetensors");
  REQUIRE(reader.has_value());
  CHECK(reader->header().metadata.at("metric") == "valid");
  CHECK(reader->header().metadata.at("value") == "0.25");
  std::filesystem::remove(run.snapshot(3));  // as pruning leaves it
  CHECK(run.exported() == "c");
}

TEST_CASE("a run or snapshot that is not there, or cannot be chosen, is refused with those that can") {
  const Run run;
  const auto refused = [&](Status status, const std::filesystem::path& from, const SnapshotChoice& which) {
    return refusal_of(status, [&] { export_snapshot(from, which, run / "m.safetensors"); });
  };
  CHECK(
      contains(refused(Status::kNotFound, run / "nowhere", {}), "nowhere does not exist; give the directory of a run"));
  CHECK(
      contains(refused(Status::kNotFound, run / "snapshots", {}), "has no ledger.jsonl; give the directory of a run"));
  CHECK(contains(refused(Status::kNotFound, run.path(), {false, 7}),
                 "has no snapshot of step 7; there are snapshots of step 1, 2, 3"));
  CHECK(contains(refused(Status::kInvalidArgument, run.path(), {true, 1}), "choose one"));
  CHECK(contains(refused(Status::kInvalidArgument, run.snapshot(1), {true, {}}), "is a file; only of the directory"));
  std::filesystem::remove(run.snapshot(2));
  CHECK(contains(refused(Status::kNotFound, run.path(), {false, 2}), "there are snapshots of step 1, 3"));
  for (int64_t step : {1, 3}) std::filesystem::remove(run.snapshot(step));
  CHECK(contains(refused(Status::kNotFound, run.path(), {}), "has no snapshot; [run] snapshot_every has a job write"));
  CHECK(contains(refused(Status::kNotFound, run.path(), {true, {}}), "has a finite value of valid"));
  CHECK(contains(refusal_of(Status::kInvalidArgument, [&] { export_snapshot(run.path(), {}, ""); }), "is empty"));
  const Run other("seed = 2");
  CHECK(contains(refused(Status::kFailedPrecondition, other.path(), {true, {}}), "its [run] keep_best is not set"));
  CHECK(run.names() == std::vector<std::string>{"config.toml", "ledger.jsonl", "snapshots"});
}

TEST_CASE("a snapshot that is damaged, of another run or without arrays leaves no file, and an old one as it was") {
  const Run run;
  const std::filesystem::path file = run.snapshot(3);
  const std::string whole = test::read_all(file);
  const auto refused = [&](Status status) {
    const std::string said = refusal_of(status, [&] { export_snapshot(run.path(), {}, run / "m.safetensors", true); });
    CHECK(test::read_all(run / "m.safetensors") == "old");
    return said;
  };
  run.ScratchFolder::write("m.safetensors", "old");
  test::write_all(file, whole.substr(0, whole.size() / 2));
  CHECK(contains(refused(Status::kDataLoss), "is damaged: "));
  for (const char* const arrays :
       {"w u8[2]\n", "w u7[1]\n", "w u8[-1]\n", "w u8[1\n", "w\n", "w u8[1,x]\n", "w f32[9223372036854775807,4]\n"}) {
    CAPTURE(arrays);
    write(file, 3, arrays, "x");
    refused(Status::kDataLoss);
  }
  write(file, 3, "weights f32[2]\n", "01234567", "a f32[1] 0\n");
  CHECK(contains(refused(Status::kDataLoss), "its parameters do not fit its arrays"));
  write(file, 3, "weights f32[1]\n", "0123", "a f32[1] 5\n");
  CHECK(contains(refused(Status::kDataLoss), "a begins at element 5"));
  write(file, 3, "", "all of it");
  CHECK(contains(refused(Status::kFailedPrecondition), "has no arrays: its program writes its state as one piece"));
  const SnapshotHeader other{3, "00ff", "lr", "run-2", "w u8[1]\n"};
  REQUIRE(write_snapshot(file, other, [](std::ostream& out) { out << "x"; }).has_value());
  CHECK(contains(refused(Status::kFailedPrecondition), "is that of run run-2, not of run-1"));
  test::write_all(file, whole);
  CHECK(
      contains(refusal_of(Status::kFailedPrecondition, [&] { export_snapshot(run.path(), {}, run / "m.safetensors"); }),
               "m.safetensors"));
  CHECK(test::read_all(run / "m.safetensors") == "old");
  CHECK(run.exported() == "d");
}

}  // namespace pliant::elastic
