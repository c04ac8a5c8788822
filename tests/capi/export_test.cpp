// Snapshots that become .safetensors files, in C: what is written, which snapshot, and what is refused without a file.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "elastic/snapshot.hpp"
#include "recorded_job.hpp"
#include "sharded/files/safetensors.hpp"

using namespace pliant::test;

namespace {

/// A snapshot file after `step` steps whose one array is two bytes.
std::string snapshot_in(const ScratchFolder& folder, int64_t step = 7) {
  const std::string file = (folder / "one.snapshot").string();
  const pliant::elastic::SnapshotHeader header{step, "00ff", "lr", "run-1", "w u8[2]\n"};
  REQUIRE(pliant::elastic::write_snapshot(file, header, [](std::ostream& out) { out << "ab"; }).has_value());
  return file;
}

/// A run of a record with a snapshot, which has no arrays, after its second step; `with_snapshot` false: with none.
std::string recorded_run(const RecordedJob& job, bool with_snapshot = true) {
  const OwnedRecord record = job.begin();
  REQUIRE(pliant_record_start_generation(record.get(), 3, "start", nullptr) == PLIANT_OK);
  for (int64_t step = 0; step < 2; ++step) job.commit(record.get(), step);
  if (with_snapshot) {
    REQUIRE(pliant_record_keep_snapshot(record.get(), "w", 1, nullptr, 0, nullptr) == PLIANT_OK);
  }
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  REQUIRE(pliant_record_look(record.get(), &facts, nullptr) == PLIANT_OK);
  return facts.directory;
}

std::string bytes_of(const std::string& file, const char* name) {
  const auto reader = pliant::sharded::SafetensorsReader::open(file);
  REQUIRE(reader.has_value());
  const pliant::sharded::Tensor* const tensor = reader->find(name);
  REQUIRE(tensor != nullptr);
  std::string bytes(tensor->bytes, '\0');
  REQUIRE(reader->read(*tensor, 0, tensor->bytes, bytes.data()).has_value());
  return bytes;
}

struct Refused {
  int32_t status = PLIANT_OK;
  int32_t exit_code = 0;
  std::string message;  ///< all of it
  [[nodiscard]] bool says(const std::string& words) const { return message.find(words) != std::string::npos; }
};

Refused refused(const std::string& from, const std::string& file, uint32_t flags = 0, const int64_t* step = nullptr) {
  pliant_export_options_t options = PLIANT_INIT(pliant_export_options_t);
  options.flags = flags;
  options.step = step;
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  const int32_t status = pliant_export_snapshot(from.c_str(), &options, file.c_str(), nullptr, &error);
  REQUIRE(status != PLIANT_OK);
  CHECK(error.status == status);
  return {status, error.exit_code, last_message()};
}

}  // namespace

TEST_CASE("a snapshot file is exported in C, and the answer says of which step it is and how much was written") {
  const ScratchFolder folder;
  const std::string from = snapshot_in(folder);
  const std::string file = (folder / "m.safetensors").string();
  pliant_exported_t exported = PLIANT_INIT(pliant_exported_t);
  REQUIRE(pliant_export_snapshot(from.c_str(), nullptr, file.c_str(), &exported, nullptr) == PLIANT_OK);
  CHECK(exported.step == 7);
  CHECK(std::isnan(exported.value));
  CHECK(exported.tensors == 1);
  CHECK(exported.bytes == 2);
  CHECK(bytes_of(file, "w") == "ab");
  // Of a caller who knows fewer fields, and of one who asks for nothing.
  pliant_export_options_t options = PLIANT_INIT(pliant_export_options_t);
  options.flags = PLIANT_EXPORT_REPLACE;
  exported = PLIANT_INIT(pliant_exported_t);
  exported.struct_size = offsetof(pliant_exported_t, tensors);
  exported.tensors = -7;
  REQUIRE(pliant_export_snapshot(snapshot_in(folder, 9).c_str(), &options, file.c_str(), &exported, nullptr) ==
          PLIANT_OK);
  CHECK(exported.step == 9);
  CHECK(exported.tensors == -7);
  CHECK(pliant_export_snapshot(from.c_str(), &options, file.c_str(), nullptr, nullptr) == PLIANT_OK);
}

TEST_CASE("arguments of an export that are none are refused before anything is written") {
  const ScratchFolder folder;
  const std::string from = snapshot_in(folder);
  const std::string file = (folder / "m.safetensors").string();
  CHECK(pliant_export_snapshot(nullptr, nullptr, file.c_str(), nullptr, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_export_snapshot(from.c_str(), nullptr, nullptr, nullptr, nullptr) == PLIANT_INVALID_ARGUMENT);
  pliant_exported_t exported = PLIANT_INIT(pliant_exported_t);
  exported.struct_size = 0;
  CHECK(pliant_export_snapshot(from.c_str(), nullptr, file.c_str(), &exported, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(refused(from, file, 64).status == PLIANT_UNIMPLEMENTED);
  CHECK(refused(from, "").says("the name of the file to write is empty"));
  CHECK(folder.names() == std::vector<std::string>{"one.snapshot"});
}

TEST_CASE("a run, a snapshot or a best one that is not there is refused in C with what there is and what to do") {
  const ScratchFolder folder;
  const std::string file = (folder / "m.safetensors").string();
  const Refused nowhere = refused((folder / "nowhere").string(), file);
  CHECK(nowhere.status == PLIANT_NOT_FOUND);
  CHECK(nowhere.exit_code == 2);
  CHECK(nowhere.says("nowhere does not exist; give the directory of a run"));

  const std::string plain = recorded_run(RecordedJob(folder));
  Refused said = refused(plain, file, PLIANT_EXPORT_BEST);
  CHECK(said.status == PLIANT_FAILED_PRECONDITION);
  CHECK(said.exit_code == 2);
  CHECK(said.says("its [run] keep_best is not set. Take the newest one, or set keep_best in the next run"));
  const int64_t seventh = 7;
  said = refused(plain, file, 0, &seventh);
  CHECK(said.status == PLIANT_NOT_FOUND);
  CHECK(said.says("has no snapshot of step 7; there are snapshots of step 2"));
  said = refused(plain, file, PLIANT_EXPORT_BEST, &seventh);
  CHECK(said.status == PLIANT_INVALID_ARGUMENT);
  CHECK(said.says("choose one"));
  said = refused(plain, file);
  CHECK(said.status == PLIANT_FAILED_PRECONDITION);
  CHECK(said.says("has no arrays: its program writes its state as one piece"));

  said = refused(recorded_run(RecordedJob(folder), false), file);
  CHECK(said.status == PLIANT_NOT_FOUND);
  CHECK(said.says("has no snapshot; [run] snapshot_every has a job write some"));
  said = refused(recorded_run(RecordedJob(folder, "keep_best = \"quality\"\n")), file, PLIANT_EXPORT_BEST);
  CHECK(said.status == PLIANT_NOT_FOUND);
  CHECK(said.says("has a finite value of quality, by which the best one is kept; there are snapshots of step 2"));
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("a file that cannot be written is refused in C by its name, and one that is there stays as it was") {
  const ScratchFolder folder;
  const std::string from = snapshot_in(folder);
  Refused said = refused(from, (folder / "none" / "m.safetensors").string());
  CHECK(said.status == PLIANT_NOT_FOUND);
  CHECK(said.exit_code == 2);
  CHECK(said.says("none/m.safetensors: folder "));
  CHECK(said.says("does not exist"));
  said = refused(from, folder.path().string(), PLIANT_EXPORT_REPLACE);
  CHECK(said.status == PLIANT_FAILED_PRECONDITION);
  CHECK(said.says("is a directory; name a file"));
  const std::string file = folder.write("m.safetensors", "old").string();
  said = refused(from, file);
  CHECK(said.status == PLIANT_FAILED_PRECONDITION);
  CHECK(said.exit_code == 2);
  CHECK(said.says("m.safetensors exists already; choose another name"));
  CHECK(read_all(file) == "old");
}
