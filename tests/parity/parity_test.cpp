// The runner itself: it reads what Python writes, sees a wrong number, and excuses nothing else than its rules say.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "parity/elasticity_rules.hpp"
#include "parity/parity.hpp"
#include "parity/python.hpp"
#include "parity/row_reader.hpp"
#include "parity/run.hpp"
#include "parity/sha256.hpp"
#include "parity/status_classes.hpp"
#include "scratch_folder.hpp"

namespace parity = pliant::parity;
using parity::Json;

namespace {

/// The report over one file.
std::string report(const std::filesystem::path& file, parity::RunOptions options = {}) {
  std::ostringstream out;
  parity::Run run(options, PLIANT_PLUGIN_DIR, out);
  run.file(file);
  run.summary();
  return out.str();
}

std::string last_line(const std::string& text) {
  const size_t end = text.size() - 1;
  return text.substr(text.rfind('\n', end - 1) + 1, end - text.rfind('\n', end - 1) - 1);
}

Json example() {
  return Json::parse(R"({"id": "1", "config": {"elasticity": {"enabled": true, "max_train_batch_size": 2000,
    "micro_batch_sizes": [2, 4, 6], "min_gpus": 1, "max_gpus": 10, "version": 0.1}}, "target_version": "0.19.6",
    "world_size": 4, "return_microbatch": false, "env": {},
    "out": {"final_batch_size": 1680, "valid_gpus": {"n": 9, "all": [1, 2, 3, 4, 5, 6, 7, 8, 10]}, "micro_batch_size": 6}})");
}

std::string result_of(const Json& row) {
  const pliant::test::ScratchFolder folder;
  return last_line(report(folder.write("rows.jsonl", row.dump() + "\n")));
}

constexpr const char* kPassed = "1 passed, 0 failed, 0 skipped";
constexpr const char* kFailed = "0 passed, 1 failed, 0 skipped";
constexpr const char* kSkipped = "0 passed, 0 failed, 1 skipped";

}  // namespace

TEST_CASE("a right row passes") {
  CHECK(result_of(example()) == kPassed);
}

TEST_CASE("every number of an answer is compared") {
  for (const char* pointer : {"/final_batch_size", "/micro_batch_size", "/valid_gpus/n", "/valid_gpus/all/8"}) {
    CAPTURE(pointer);
    Json row = example();
    Json& number = row["out"][Json::json_pointer(pointer)];
    number = number.get<int64_t>() + 1;
    CHECK(result_of(row) == kFailed);
  }
  Json without = example();
  without["out"].erase("micro_batch_size");
  CHECK(result_of(without) == kFailed);
  Json none = example();
  none["out"]["valid_gpus"] = nullptr;
  CHECK(result_of(none) == kFailed);
}

TEST_CASE("through import a right row passes, a wrong number fails, and no type is an excuse") {
  const auto imported = [](const Json& row) {
    const pliant::test::ScratchFolder folder;
    parity::RunOptions options;
    options.rows.through_import = true;
    return last_line(report(folder.write("rows.jsonl", row.dump() + "\n"), options));
  };
  CHECK(imported(example()) == kPassed);
  Json wrong = example();
  wrong["out"]["final_batch_size"] = 1681;
  CHECK(imported(wrong) == kFailed);
  Json truth = example();
  truth["config"]["elasticity"]["min_gpus"] = true;
  CHECK(result_of(truth) == kSkipped);
  CHECK(imported(truth) == kPassed);
  Json text = example();
  text["config"]["elasticity"]["min_gpus"] = "1";
  CHECK(result_of(text) == kSkipped);
  CHECK(imported(text) == kFailed);
}

TEST_CASE("a digest that differs is seen") {
  Json row = example();
  row["config"]["elasticity"]["max_gpus"] = 1500;
  row["config"]["elasticity"]["micro_batch_sizes"] = {1, 2};
  Json& list = row["out"]["valid_gpus"];
  row["out"]["final_batch_size"] = 1680;
  row["out"]["micro_batch_size"] = 2;
  list = {{"n", 40},
          {"first", {1, 2, 3, 4, 5, 6, 7, 8}},
          {"last", {168, 210, 240, 280, 336, 420, 560, 840}},
          {"sha256", parity::sha256(
                         "1,2,3,4,5,6,7,8,10,12,14,15,16,20,21,24,28,30,35,40,42,48,56,60,70,80,84,105,112,120,140,168,"
                         "210,240,280,336,420,560,840")}};
  list["n"] = 39;
  CHECK(result_of(row) == kPassed);
  list["sha256"] = parity::sha256("1");
  CHECK(result_of(row) == kFailed);
}

TEST_CASE("an error of another class is seen") {
  Json row = example();
  row["world_size"] = 9;
  row["out"] = {{"error", {{"type", "ElasticityIncompatibleWorldSize"}}}};
  CHECK(result_of(row) == kPassed);
  row["out"]["error"]["type"] = "ElasticityConfigError";
  CHECK(result_of(row) == kFailed);
  row["out"]["error"]["type"] = "SomethingNew";
  CHECK(result_of(row) == kFailed);
}

TEST_CASE("an answer where an error is recorded fails, unless the target version explains it") {
  Json row = example();
  row["out"] = {{"error", {{"type", "ElasticityError"}}}};
  CHECK(result_of(row) == kFailed);
  row["target_version"] = "0.3.7";
  CHECK(result_of(row) == kSkipped);
}

TEST_CASE("a rule excuses a refusal and never a number") {
  Json row = example();
  row["config"]["elasticity"]["max_train_batch_size"] = 2000.0;
  CHECK(result_of(row) == kSkipped);
  row = example();
  row["world_size"] = true;
  CHECK(result_of(row) == kSkipped);
  row = example();
  row["target_version"] = "0.3.7";  // falls under a rule, and its numbers are still compared
  CHECK(result_of(row) == kPassed);
  row["out"]["final_batch_size"] = 1;
  CHECK(result_of(row) == kFailed);
}

TEST_CASE("a refusal of a number that only its double has past 63 bits is excused, and of a smaller one is not") {
  Json row = example();
  Json& block = row["config"]["elasticity"];
  block["version"] = 0.2;
  row["world_size"] = 0;
  row["out"] = {{"final_batch_size", 0}, {"valid_gpus", {{"n", 1}, {"all", Json::array({uint64_t{1} << 63U})}}}};
  row["env"]["WORLD_SIZE"] = "9223372036854775296";
  CHECK(result_of(row) == kSkipped);
  row["env"]["WORLD_SIZE"] = "9223372036854775295";
  CHECK(result_of(row) == kFailed);
}

TEST_CASE("a micro-batch above the batch passes where v0.2 picked it for devices without rows") {
  Json row = example();
  row["config"]["elasticity"] = {
      {"enabled", true}, {"max_train_batch_size", 17}, {"min_gpus", 28},         {"micro_batch_sizes", {1, 2, 8, 17}},
      {"max_gpus", 39},  {"model_parallel_size", 6},   {"num_gpus_per_node", 6}, {"version", 0.2}};
  row["world_size"] = 0;
  row["return_microbatch"] = true;
  row["env"]["WORLD_SIZE"] = "36";
  row["out"] = {{"final_batch_size", 12}, {"valid_gpus", {{"n", 2}, {"all", {4, 6}}}}, {"micro_batch_size", 17}};
  CHECK(result_of(row) == kPassed);
  row["out"]["micro_batch_size"] = 8;
  CHECK(result_of(row) == kFailed);
}

namespace {

Json immutable_row(const Json& runtime, const char* scheduler) {
  return {{"runtime", runtime}, {"env_DEEPSPEED_ELASTICITY_CONFIG", scheduler}, {"out", {{"ok", true}}}};
}

Json batch_row() {
  return Json::parse(R"({"kind": "batch", "seqlens": [5, 3, 4, 2], "max_tokens": 8,
    "args": {"sequence_ids_per_mb": null, "min_batch_size": 1, "max_batch_size": null, "effective_batch_size": 1,
             "sequence_picking_order": "dataloader", "required_microbatches_of_same_size": false, "seed": null},
    "out": {"microbatch_ids": [[0, [0, 1]], [1, [2]]], "batch_sizes": [2, 1], "batch_max_seqlens": [5, 4]}})");
}

Json lr_row(const Json& base_batch, const Json& batch, double lr) {
  return {{"kind", "scale_lr"},  {"base_batch_size", base_batch},
          {"batch_size", batch}, {"base_lr", 0.5},
          {"method", "linear"},  {"out", {{"lr", lr}}}};
}

}  // namespace

TEST_CASE("a scheduler's block with numbers of any size is read as Python reads it") {
  const std::string huge = R"({"min_time": 1000000000000000000000000000000})";
  CHECK(parity::python_json(*parity::parse_row(huge)) == huge);
  CHECK(parity::python_json(*parity::parse_row(R"([1, NaN, -Infinity, {"a": "x"}, []])")) ==
        R"([1, NaN, -Infinity, {"a": "x"}, []])");
  const pliant::test::ScratchFolder folder;
  const std::string row =
      R"({"runtime": )" + huge + R"(, "env_DEEPSPEED_ELASTICITY_CONFIG": "{}", "out": {"ok": true}})";
  CHECK(last_line(report(folder.write("rows.jsonl", row))) == kPassed);
}

TEST_CASE("a scheduler's block that only Python reads is excused, the same block without it is not") {
  CHECK(result_of(immutable_row(Json::object(), R"({"min_time": Infinity})")) == kSkipped);
  CHECK(result_of(immutable_row(Json::object(), R"({"x": "\ud800"})")) == kSkipped);
  CHECK(result_of(immutable_row(Json::object(), R"({"micro_batch_sizes": [1000000000000000000000]})")) == kSkipped);
  CHECK(result_of(immutable_row(Json::object(), R"({"min_time": -1})")) == kFailed);
  CHECK(result_of(immutable_row(Json::object(), "{}")) == kPassed);
}

TEST_CASE("each rule of batch rows excuses its input and no number") {
  CHECK(result_of(batch_row()) == kPassed);
  Json wrong = batch_row();
  wrong["out"]["batch_sizes"][1] = 2;
  CHECK(result_of(wrong) == kFailed);
  for (const char* patch :
       {R"({"max_tokens": 8.5})", R"({"max_tokens": 100000000000000000000000})", R"({"max_tokens": -1})",
        R"({"seqlens": [5.5, 3]})", R"({"seqlens": [5, -3]})", R"({"args": {"min_batch_size": -1}})",
        R"({"args": {"max_batch_size": 1.5}})", R"({"args": {"effective_batch_size": -1}})",
        R"({"args": {"effective_batch_size": 1.0}})", R"({"args": {"sequence_ids_per_mb": [-1]}})",
        R"({"args": {"sequence_ids_per_mb": [0.0]}})", R"({"args": {"seed": "text"}})",
        R"({"args": {"required_microbatches_of_same_size": 1}})"}) {
    CAPTURE(patch);
    Json row = batch_row();
    row.merge_patch(Json::parse(patch));
    CHECK(result_of(row) == kSkipped);
  }
  Json refused = batch_row();
  refused["args"]["max_batch_size"] = 1;
  refused["args"]["min_batch_size"] = 2;
  CHECK(result_of(refused) == kFailed);
}

TEST_CASE("rates compare to the bit, and what no double holds is skipped") {
  CHECK(result_of(lr_row(4, 8, 1.0)) == kPassed);
  CHECK(result_of(lr_row(4, 8, std::nextafter(1.0, 2.0))) == kFailed);
  CHECK(result_of(lr_row(0, 8, 1.0)) == kFailed);
  CHECK(result_of(lr_row("4", 8, 1.0)) == kSkipped);
  CHECK(result_of(lr_row(1, (int64_t{1} << 53U) + 1, 4503599627370496.5)) == kSkipped);
  CHECK(result_of(lr_row(1, int64_t{1} << 60U, std::ldexp(1.0, 59))) == kPassed);
  CHECK(result_of(lr_row(1, -(int64_t{1} << 60U), -std::ldexp(1.0, 59))) == kPassed);
  const pliant::test::ScratchFolder folder;
  const std::string infinite = R"({"kind": "scale_lr", "base_batch_size": 1e-320, "batch_size": 8, "base_lr": 1,)"
                               R"( "method": "sqrt", "out": {"lr": Infinity}})";
  CHECK(last_line(report(folder.write("rows.jsonl", infinite))) == kSkipped);
}

TEST_CASE("a refusal without a rule fails") {
  Json row = example();
  row["config"]["elasticity"]["min_gpus"] = 11;
  CHECK(result_of(row) == kFailed);
}

TEST_CASE("rows that are malformed or of no known kind fail") {
  CHECK(result_of(Json{{"kind", "unheard_of"}}) == kFailed);
  CHECK(result_of(Json::array()) == kFailed);
  Json row = example();
  row["out"] = Json{{"final_batch_size", "x"}, {"valid_gpus", 3}};
  CHECK(result_of(row) == kFailed);
  row = example();
  row["env"] = Json{{"WORLD_SIZE", 4}};
  CHECK(result_of(row) == kFailed);
}

TEST_CASE("files that cannot be read, have no rows or are damaged fail") {
  const pliant::test::ScratchFolder folder;
  CHECK(last_line(report(folder / "none.jsonl")) == kFailed);
  CHECK(last_line(report(folder.path())) == kFailed);
  CHECK(last_line(report(folder.write("empty.jsonl", ""))) == kFailed);
  CHECK(last_line(report(folder.write("text.jsonl", "not json\n"))) == kFailed);
  std::ifstream whole(std::string(PLIANT_SOURCE_DIR) + "/tests/parity/golden/elasticity.jsonl.gz", std::ios::binary);
  std::string bytes(2000, '\0');
  whole.read(bytes.data(), 2000);
  CHECK(last_line(report(folder.write("cut.jsonl.gz", bytes))).find(" 0 failed") == std::string::npos);
}

TEST_CASE("the last row needs no newline and blank lines do not count") {
  const pliant::test::ScratchFolder folder;
  CHECK(last_line(report(folder.write("rows.jsonl", "\n" + example().dump() + "\n\n" + example().dump()))) ==
        "2 passed, 0 failed, 0 skipped");
}

TEST_CASE("a plugin that is missing fails the row") {
  const pliant::test::ScratchFolder folder;
  std::ostringstream out;
  parity::Run run({}, folder.path(), out);
  run.file(folder.write("rows.jsonl", example().dump()));
  run.summary();
  CHECK_FALSE(run.ok());
}

TEST_CASE("JSON is read as Python writes it") {
  CHECK(std::isnan((*parity::parse_row(R"({"a": NaN})"))["a"].get<double>()));
  CHECK((*parity::parse_row(R"([-Infinity])"))[0].get<double>() < 0);
  CHECK((*parity::parse_row(R"(["NaN"])"))[0] == "NaN");
  CHECK((*parity::parse_row(R"(["\"NaN", NaN])"))[0] == "\"NaN");
  CHECK((*parity::parse_row(R"(["\ud800x"])"))[0] == "\uFFFDx");
  CHECK((*parity::parse_row(R"(["\ud83d\ude00", NaN])"))[0] == "\U0001F600");
  CHECK((*parity::parse_row("[100000000000000000000]"))[0].is_binary());
  CHECK((*parity::parse_row("[18446744073709551615]"))[0].is_number_unsigned());
  CHECK_FALSE(parity::parse_row("[1").has_value());
  CHECK_FALSE(parity::parse_row("").has_value());
}

TEST_CASE("float() and truth are Python's") {
  CHECK(*parity::as_float("0.1") == 0.1);
  CHECK(*parity::as_float(" 1e-1\n") == 0.1);
  CHECK(*parity::as_float("1_0.5") == 10.5);
  CHECK(*parity::as_float(".5") == 0.5);
  CHECK(*parity::as_float("\u0660.\u0661") == 0.1);
  CHECK(*parity::as_float(true) == 1.0);
  CHECK(std::isnan(*parity::as_float("-nan")));
  for (const char* text : {"", ".", "1_", "0x1", "e5", "abc", "1 2"}) CHECK_FALSE(parity::as_float(text).has_value());
  CHECK_FALSE(parity::as_float(nullptr).has_value());
  CHECK_FALSE(parity::is_true(nullptr));
  CHECK_FALSE(parity::is_true(0.0));
  CHECK_FALSE(parity::is_true(Json::array()));
  CHECK(parity::is_true("false"));
}

TEST_CASE("versions compare by PEP 440") {
  for (const char* text : {"0.3.8", "0.3.8.0", "0.3.8.post1", "0.3.8-1", "0.3.8.post1.dev2", "0.3.8+g12", "0.3.9a0",
                           "v0.4.0", " 0.4 ", "1!0.1", "0.10", "2", "0.03.09", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(parity::knows_elasticity(text));
  }
  for (const char* text :
       {"0.3.7", "0.3", "0.3.8rc1", "0.3.8a", "0.3.8.dev0", "0.3.8a1.post2", "", "foo", "0.3.8+", "1..2"}) {
    CAPTURE(text);
    CHECK_FALSE(parity::knows_elasticity(text));
  }
  CHECK_FALSE(parity::knows_elasticity(nullptr));
  CHECK_FALSE(parity::knows_elasticity(0.4));
}

TEST_CASE("SHA-256 gives the digests of the standard") {
  CHECK(parity::sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(parity::sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(parity::sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(parity::sha256(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("the reference page has every class of errors with its statuses, and the rules of the blocks") {
  std::ifstream page(std::string(PLIANT_SOURCE_DIR) + "/docs/reference/parity.md");
  const std::string text((std::istreambuf_iterator<char>(page)), std::istreambuf_iterator<char>());
  for (const parity::ErrorClass& known : parity::error_classes()) {
    std::string row = "| `" + std::string(known.name) + "` | ";
    for (const pliant::Status status : known.statuses) {
      row += (row.back() == '`' ? ", `" : "`") + std::string(parity::name_of(status)) + "`";
    }
    CAPTURE(row);
    CHECK(text.find(row + " |") != std::string::npos);
  }
  for (const parity::RowKind& kind : parity::row_kinds()) {
    if (kind.id == "batch" || kind.id == "scale_lr") continue;  // the page sends the reader to --list-rules
    for (const parity::Rule& rule : kind.rules) {
      CAPTURE(rule.id);
      CHECK(text.find("| `" + kind.id + "` | `" + rule.id + "` |") != std::string::npos);
    }
  }
}
