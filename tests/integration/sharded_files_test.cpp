// What sharded jobs read: snapshots that are cut short, lack a part or are gone, and weights of other files.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "integration/sharded_misbehaviour.hpp"

using namespace pliant::test;
namespace fs = std::filesystem;

namespace {

const char* const kNewest = "snapshots/step-00000008.snapshot";
const char* const kOlder = "snapshots/step-00000004.snapshot";

Ended resume_from(JobRunner& job, const fs::path& run, int64_t steps) {
  std::vector<std::string> words = sharded_job(3, joined(kTightSample, {fmt::format("run.max_steps={}", steps)}));
  words.insert(words.end(), {"--resume", run.string()});
  return job.run(words);
}

/// One tensor of a .safetensors file.
struct Tensor {
  std::string name;
  std::string type;
  std::string shape;  ///< "3000", "2,3"
  uint64_t bytes = 0;
};

std::string safetensors(const std::vector<Tensor>& tensors) {
  std::string header = "{";
  uint64_t end = 0;
  for (const Tensor& one : tensors) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", end == 0 ? "" : ",",
                          one.name, one.type, one.shape, end, end + one.bytes);
    end += one.bytes;
  }
  header += "}";
  std::string size(8, '\0');
  for (size_t i = 0; i < size.size(); ++i) size[i] = static_cast<char>(header.size() >> (8 * i) & 0xFFU);
  return size + header + std::string(end, '\0');
}

/// Of the worker's model.
std::vector<Tensor> right_tensors() {
  std::vector<Tensor> made{{"frozen", "F32", "7", 28}};
  for (int i = 0; i < 3; ++i) made.push_back({fmt::format("layer.{}.weights", i), "F32", "3000", 12000});
  return made;
}

}  // namespace

TEST_CASE("a snapshot that is cut short, lacks a part or is gone is named, and the one before is taken") {
  JobRunner job;
  leave_half(job, kTightSample);
  const std::string whole = read_all(job.latest() / kNewest);
  const size_t middle = whole.size() / 2;
  struct Damage {
    std::string left;
    const char* said;
  };
  int number = 0;
  for (const Damage& damage : {Damage{"", "is damaged: it is cut short"},
                               Damage{whole.substr(0, middle), "is damaged: it is cut short or its sizes are damaged"},
                               Damage{whole.substr(0, whole.size() - 1), "is damaged: "},
                               Damage{whole.substr(0, middle - 4096) + whole.substr(middle), "is damaged: "}}) {
    CAPTURE(number);
    const fs::path copy = job.folder() / fmt::format("copy-{}", number++);
    fs::copy(job.latest(), copy, fs::copy_options::recursive);
    write_all(copy / kNewest, damage.left);
    const Ended ended = resume_from(job, copy, 6);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary.at("resumed_from") == 4);
    CHECK(has(ended.err, std::string(kNewest) + " " + damage.said));
    CHECK(has(ended.err, "restore it from a copy, or remove it to resume from an older snapshot; going back"));
  }
  fs::remove(job.latest() / kNewest);
  const Ended ended = resume(job, kTightSample);
  check_undisturbed(job, ended);
  CHECK(ended.summary.at("resumed_from") == 4);
}

TEST_CASE("where no snapshot is whole the job is not resumed, nothing is thrown away, and what to do is said") {
  JobRunner job;
  leave_half(job, kTightSample);
  const fs::path run = job.latest();
  const std::string newest = read_all(run / kNewest);
  const std::string older = read_all(run / kOlder);
  const std::string ledger = read_all(run / "ledger.jsonl");
  write_all(run / kNewest, newest.substr(0, newest.size() / 2));
  write_all(run / kOlder, older.substr(0, 100));
  const Ended refused = resume(job, kTightSample);
  INFO(refused.err);
  CHECK(refused.exit_code == 2);
  for (const char* const one : {kNewest, kOlder}) CHECK(has(refused.err, std::string(one) + " is damaged: it is cut"));
  CHECK(has(refused.err,
            "all its snapshots are damaged. Restore one from a copy, or remove them all to start from the beginning"));
  CHECK(read_all(run / kNewest).size() == newest.size() / 2);
  CHECK(read_all(run / kOlder).size() == 100);
  CHECK(read_all(run / "ledger.jsonl") == ledger);
  write_all(run / kOlder, older);  // the copy
  const Ended resumed = resume(job, kTightSample);
  check_undisturbed(job, resumed);
  CHECK(resumed.summary.at("resumed_from") == 4);
}

TEST_CASE("weights of a file that is not there, lacks a tensor, is damaged or of another type are refused in words") {
  JobRunner job;
  const fs::path file = job.folder() / "first.safetensors";
  const auto refusal_of = [&](const std::string& bytes) {
    if (!bytes.empty()) write_all(file, bytes);
    const Ended ended = job.run(job_that("", "", 2, {fmt::format("app.first_weights=\"{}\"", file.string())}));
    INFO(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(ended.summary.at("restarts") == 0);
    return ended.err;
  };
  const auto with = [](const std::string& type, const std::string& shape, uint64_t bytes) {
    std::vector<Tensor> tensors = right_tensors();
    tensors[2] = {"layer.1.weights", type, shape, bytes};
    return safetensors(tensors);
  };
  std::vector<Tensor> fewer = right_tensors();
  fewer.pop_back();
  struct Case {
    std::string bytes;
    std::string said;
  };
  const std::string whole = safetensors(right_tensors());
  for (const Case& one :
       {Case{"", "cannot read " + file.string() + ": No such file or directory; check the path"},
        Case{safetensors(fewer),
             file.string() +
                 " has no tensor layer.2.weights; it needs one per parameter of the model, with the same name"},
        Case{whole.substr(0, whole.size() - 5), file.string() + " as a .safetensors file: it is cut"},
        Case{with("I64", "2,3", 48),
             "layer.1.weights is i64[2,3], the model has f32[3000]; supported are f32, bf16 and f16: convert it"},
        Case{with("F8_E4M3", "3000", 3000),
             "layer.1.weights is F8_E4M3[3000], the model has f32[3000]; supported are f32, bf16 and f16: convert it"},
        Case{with("BF16", "2,3", 12), "layer.1.weights is bf16[2,3], the model has f32[3000]\n"}}) {
    CAPTURE(one.said);
    const std::string said = refusal_of(one.bytes);
    INFO(said);
    CHECK(has(said, one.said));
  }
}

TEST_CASE("what a file of weights holds beside the model's, of types that are not known, is left alone") {
  JobRunner job;
  const fs::path file = job.folder() / "first.safetensors";
  std::vector<Tensor> tensors = right_tensors();
  tensors.insert(tensors.begin() + 1, {"layer.0.scale", "F8_E4M3", "17", 17});
  tensors.push_back({"mask", "BOOL", "2,3", 6});
  tensors.push_back({"positions", "I64", "3", 24});
  write_all(file, safetensors(tensors));
  const Ended ended = job.run(job_that("", "", 2, {fmt::format("app.first_weights=\"{}\"", file.string())}));
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
}
