// Snapshots that are read by a program that is no job.
#include <doctest/doctest.h>

#include <array>
#include <istream>
#include <iterator>
#include <ostream>
#include <string>

#include "elastic/snapshot.hpp"
#include "pliant/error.hpp"
#include "pliant/snapshot.hpp"
#include "scratch_folder.hpp"

namespace pliant {
namespace {

using test::ScratchFolder;

constexpr const char* kLayout = "model.weight f32[2,3]\nmodel.mask u8[5]\nmodel.step i64[]\nempty f32[0,4]\n";

/// Arrays of the bytes 0, 1, 2..., and "rest".
void write(const std::filesystem::path& file, const elastic::SnapshotHeader& header, size_t bytes = 24 + 5 + 8) {
  const auto written = elastic::write_snapshot(file, header, [&](std::ostream& out) {
    for (size_t i = 0; i < bytes; ++i) out.put(static_cast<char>(i));
    out << "rest";
  });
  REQUIRE(written.has_value());
}

elastic::SnapshotHeader header_of(const std::string& layout) {
  elastic::SnapshotHeader header{7, "00ff", "lr", "run-1"};
  header.arrays = layout;
  return header;
}

std::string what_is_thrown(const std::filesystem::path& file, Status status) {
  try {
    load_snapshot(file, [](SnapshotContent&) {});
  } catch (const Error& error) {
    CHECK(error.status() == status);
    return error.message();
  }
  return "nothing";
}

TEST_CASE("arrays of a snapshot go to where they are wanted, and what the program wrote to who reads it") {
  const ScratchFolder folder;
  write(folder / "s", header_of(kLayout));
  std::array<unsigned char, 5> mask{};
  int64_t number = 0;
  std::string rest;
  const SnapshotContent content = load_snapshot(
      folder / "s",
      [&](SnapshotContent& found) {
        REQUIRE(found.arrays.size() == 4);
        CHECK(found.arrays[0].name == "model.weight");
        CHECK(found.arrays[0].dtype == DType::kF32);
        CHECK(found.arrays[0].shape == std::vector<int64_t>{2, 3});
        CHECK(found.arrays[2].shape.empty());
        found.arrays[1].data = mask.data();
        found.arrays[2].data = &number;
      },
      [&](std::istream& in) { rest.assign(std::istreambuf_iterator<char>(in), {}); });
  CHECK(content.step == 7);
  CHECK(content.run_id == "run-1");
  CHECK(mask == std::array<unsigned char, 5>{24, 25, 26, 27, 28});
  CHECK(number == 0x24232221201f1e1d);
  CHECK(rest == "rest");
}

TEST_CASE("a snapshot without arrays has only what the program wrote") {
  const ScratchFolder folder;
  write(folder / "s", header_of(""), 0);
  std::string rest;
  const SnapshotContent content = load_snapshot(
      folder / "s", [](SnapshotContent&) {}, [&](std::istream& in) { in >> rest; });
  CHECK(content.arrays.empty());
  CHECK(rest == "rest");
}

TEST_CASE("of a sharded job what it keeps of each parameter is an array") {
  const ScratchFolder folder;
  elastic::SnapshotHeader header = header_of("weights f32[5]\nexp_avg f32[5]\n");
  header.parameters = "a f32[2,2] 0\nb f32[] 4\n";
  write(folder / "s", header, 40);
  std::array<unsigned char, 4> b{};
  std::array<unsigned char, 16> average{};
  std::string rest;
  const SnapshotContent content = load_snapshot(
      folder / "s",
      [&](SnapshotContent& found) {
        REQUIRE(found.arrays.size() == 4);
        found.arrays[1].data = b.data();
        found.arrays[2].data = average.data();
      },
      [&](std::istream& in) { in >> rest; });
  CHECK(content.is_sharded);
  std::vector<std::string> names;
  for (const StateArray& one : content.arrays) names.push_back(one.name);
  CHECK(names == std::vector<std::string>{"weights/a", "weights/b", "exp_avg/a", "exp_avg/b"});
  CHECK(content.arrays[0].shape == std::vector<int64_t>{2, 2});
  CHECK(content.arrays[1].shape.empty());
  CHECK(b == std::array<unsigned char, 4>{16, 17, 18, 19});
  CHECK(average[0] == 20);
  CHECK(average[15] == 35);
  CHECK(rest == "rest");
}

TEST_CASE("parameters of a sharded job that do not fit its arrays, or have no names, are errors") {
  const ScratchFolder folder;
  const auto said_of = [&](const char* layout, const char* parameters, const char* model, Status status) {
    elastic::SnapshotHeader header = header_of(layout);
    header.parameters = parameters;
    header.model = model;
    write(folder / "s", header, 40);
    return what_is_thrown(folder / "s", status);
  };
  const std::string no_fit = "its arrays are damaged: its parameters do not fit its arrays";
  for (const char* layout : {"weights f32[4]", "weights f64[5]", "exp_avg f32[5]", "weights f32[5]\nexp_avg f32[6]"}) {
    const std::string said = said_of(layout, "a f32[2,2] 0\nb f32[] 4\n", "", Status::kDataLoss);
    CHECK_MESSAGE(said.find(no_fit) != std::string::npos, layout << ": " << said);
  }
  CHECK(said_of("weights f32[5]", "anything", "", Status::kDataLoss).find("its arrays are damaged") !=
        std::string::npos);
}

TEST_CASE("a file that is not there, arrays that cannot be read and a state that ends within one are errors") {
  const ScratchFolder folder;
  CHECK(what_is_thrown(folder / "none", Status::kNotFound).find("none") != std::string::npos);
  write(folder / "short", header_of(kLayout), 20);
  CHECK(what_is_thrown(folder / "short", Status::kDataLoss).find("it ends within array 'model.mask'") !=
        std::string::npos);
  for (const char* layout : {"w", "w f32", "w f32[", "w x[1]", "w f32[1,]", "w f32[-1]", "w f32[a]", "w f32[1]\n\n"}) {
    write(folder / "damaged", header_of(layout));
    const std::string said = what_is_thrown(folder / "damaged", Status::kDataLoss);
    CHECK_MESSAGE(said.find("its arrays are damaged") != std::string::npos, layout << ": " << said);
  }
}

TEST_CASE("what the program throws comes with the name of the file") {
  const ScratchFolder folder;
  write(folder / "s", header_of(kLayout));
  CHECK_THROWS_WITH_AS(load_snapshot(folder / "s", [](SnapshotContent&) { throw Error(Status::kAborted, "no place"); }),
                       doctest::Contains("no place"), Error);
}

}  // namespace
}  // namespace pliant
