// Models that lie in several .safetensors files: what is read, and what is refused.
#include "sharded/files/safetensors_parts.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "says.hpp"
#include "scratch_folder.hpp"

namespace pliant::sharded {
namespace {

using test::ScratchFolder;

/// A file of tensors of one element each.
void write_part(const std::filesystem::path& file, const std::map<std::string, float>& values) {
  SafetensorsHeader header;
  for (const auto& [name, value] : values) header.tensors.push_back({name, DType::kF32, {1}});
  const auto written = write_safetensors(file, header, true, [&values](SafetensorsSink& sink) -> Result<> {
    for (const auto& [name, value] : values) {
      if (Result<> done = sink.write(&value, sizeof(value)); !done) return done;
    }
    return {};
  });
  REQUIRE(written.has_value());
}

std::string refusal(const std::filesystem::path& path, Status status) {
  const auto parts = SafetensorsParts::open(path);
  REQUIRE_FALSE(parts.has_value());
  CHECK(parts.error().status() == status);
  return parts.error().message();
}

TEST_CASE("a model in two files is read by its index, by the index's folder, and only what the index names") {
  const ScratchFolder folder;
  write_part(folder / "b.safetensors", {{"late", 3}});
  write_part(folder / "a.safetensors", {{"early", 1}, {"late", 9}, {"unused", 7}});
  test::write_all(folder / kSafetensorsIndex,
                  R"({"metadata":{"total_size":8},"weight_map":{"late":"b.safetensors","early":"a.safetensors"}})");
  for (const std::filesystem::path& path : {folder / kSafetensorsIndex, folder.path()}) {
    auto opened = SafetensorsParts::open(path);
    REQUIRE_MESSAGE(opened.has_value(), opened.error().message());
    const SafetensorsParts parts = std::move(*opened);
    REQUIRE(parts.places().size() == 2);
    CHECK(parts.places()[0].tensor->name == "early");
    CHECK(parts.find("unused") == nullptr);
    REQUIRE(parts.find("late") != nullptr);
    std::vector<float> value(1);
    REQUIRE(parts.read_floats(*parts.find("late"), value).has_value());
    CHECK(value.front() == 3);
  }
}

TEST_CASE("a folder without an index has its one file, and one without both says what it lacks") {
  const ScratchFolder folder;
  CHECK(says(refusal(folder.path(), Status::kNotFound),
             "contains neither model.safetensors.index.json nor model.safeten"));
  write_part(folder / "model.safetensors", {{"w", 5}});
  const auto parts = SafetensorsParts::open(folder.path());
  REQUIRE(parts.has_value());
  CHECK(parts->find("w") != nullptr);
  CHECK(SafetensorsParts::open(folder / "model.safetensors").has_value());
}

TEST_CASE("an index that is none, and parts that are not there or lack a tensor, are named") {
  const ScratchFolder folder;
  const std::filesystem::path index = folder / kSafetensorsIndex;
  const auto of = [&index](const std::string& text) {
    test::write_all(index, text);
    return refusal(index, Status::kDataLoss);
  };
  CHECK(says(of("{"), "is not an index of .safetensors files: it is not JSON"));
  CHECK(says(of("[]"), "has no \"weight_map\""));
  CHECK(says(of(R"({"weight_map":[]})"), "has no \"weight_map\""));
  CHECK(says(of(std::string(40, '[')), "nests too deeply"));
  for (const char* const name : {"\"../a.safetensors\"", "\"/a\"", "\"\"", "\"..\"", "1", R"("a\u0000")"}) {
    CAPTURE(name);
    CHECK(says(of(fmt::format(R"({{"weight_map":{{"w":{}}}}})", name)), "the part of 'w' is not the name of a file"));
  }
  write_part(folder / "a.safetensors", {{"v", 1}});
  CHECK(
      says(of(R"({"weight_map":{"v":"a.safetensors","w":"a.safetensors"}})"), "has 'w' in a.safetensors, which lacks"));
  test::write_all(index, R"({"weight_map":{"w":"gone.safetensors"}})");
  const std::string gone = refusal(index, Status::kNotFound);
  CHECK(says(gone, "gone.safetensors"));
  CHECK(says(gone, "a part of"));
  test::write_all(folder / "a.safetensors", "cut");
  CHECK(says(of(R"({"weight_map":{"w":"a.safetensors"}})"), "it is cut short"));
  CHECK(says(refusal(folder / "none.safetensors", Status::kNotFound), "none.safetensors"));
}

}  // namespace
}  // namespace pliant::sharded
