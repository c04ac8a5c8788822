// What reading makes of parts that are missing, cut, changed, or of something else.
#include <doctest/doctest.h>

#include <sys/stat.h>

#include <stdexcept>

#include "../elastic/file_size_limit.hpp"
#include "says.hpp"
#include "sharded_snapshot.hpp"

namespace pliant::sharded {
namespace {

using test::ScratchFolder;

struct Refusal {
  Status status = Status::kOk;
  std::string message;
};

/// Opens the parts and reads all of both arrays.
Refusal read_whole(const std::filesystem::path& folder, const SnapshotIndex& index) {
  auto reader = PartsReader::open(folder, index);
  if (!reader) return {reader.error().status(), reader.error().message()};
  std::vector<float> elements(static_cast<size_t>(reader->layout().flat_elements()));
  for (const std::string& kind : index.content.kinds) {
    const auto read = reader->read(kind, {0, reader->layout().flat_elements()}, elements.data());
    if (!read) return {read.error().status(), read.error().message()};
  }
  return {};
}

TEST_CASE("a missing part is data loss that names its file") {
  const ScratchFolder folder;
  const SnapshotIndex index = write_all_ranks(folder.path(), small_content(3));
  std::filesystem::remove(folder / index.parts[1].file);
  const Refusal refusal = read_whole(folder.path(), index);
  CHECK(refusal.status == Status::kDataLoss);
  CHECK(says(refusal.message, index.parts[1].file + " cannot be used: it is missing"));
}

TEST_CASE("a part that is cut anywhere, or longer, is refused") {
  const ScratchFolder folder;
  const SnapshotIndex index = write_all_ranks(folder.path(), small_content(4));
  const auto file = folder / index.parts[2].file;
  const std::string whole = test::read_all(file);
  REQUIRE(whole.size() == index.parts[2].bytes);
  for (size_t size = 0; size < whole.size(); size += size < 64 ? 1 : 61) {
    CAPTURE(size);
    test::write_all(file, whole.substr(0, size));
    const Refusal refusal = read_whole(folder.path(), index);
    CHECK(refusal.status == Status::kDataLoss);
    CHECK(says(refusal.message, index.parts[2].file));
  }
  test::write_all(file, whole.substr(0, whole.size() - 1));
  CHECK(says(read_whole(folder.path(), index).message, "it is cut short"));
  test::write_all(file, whole + '\0');
  CHECK(read_whole(folder.path(), index).status == Status::kDataLoss);
}

TEST_CASE("a part with one changed byte is refused, whichever it is") {
  const ScratchFolder folder;
  const SnapshotIndex index = write_all_ranks(folder.path(), small_content(4));
  const auto file = folder / index.parts[2].file;
  const std::string whole = test::read_all(file);
  for (size_t offset = 0; offset < whole.size(); offset += offset < 500 || offset > whole.size() - 100 ? 1 : 11) {
    CAPTURE(offset);
    std::string changed = whole;
    changed[offset] = static_cast<char>(changed[offset] ^ (1 << (offset % 8)));
    test::write_all(file, changed);
    CHECK(read_whole(folder.path(), index).status == Status::kDataLoss);
  }
  test::write_all(file, whole);
  CHECK(read_whole(folder.path(), index).status == Status::kOk);
}

TEST_CASE("damage in one chunk leaves the others readable, and names chunk and array") {
  const ScratchFolder folder;
  const SnapshotIndex index = write_all_ranks(folder.path(), small_content(2));
  const auto file = folder / index.parts[1].file;
  std::string bytes = test::read_all(file);
  // The second of four chunks of the second array: 4096 bytes of head, then chunks of 4096.
  bytes[4096 * (1 + 4 + 1) + 5] ^= 1;
  test::write_all(file, bytes);
  auto reader = PartsReader::open(folder.path(), index);
  REQUIRE(reader.has_value());
  std::vector<float> chunk(1024);
  CHECK(reader->read("moment1", {3 * 1024, 1024}, chunk.data()).has_value());
  CHECK(reader->read("weight", {4 * 1024, 1024}, chunk.data()).has_value());
  const auto damaged = reader->read("moment1", {4 * 1024 + 1000, 3}, chunk.data());
  REQUIRE_FALSE(damaged.has_value());
  CHECK(damaged.error().message().find("chunk 4 of its array 'moment1' is damaged") != std::string::npos);
}

TEST_CASE("a part of another step, run, rank or model is named as such") {
  const ScratchFolder folder;
  const SnapshotIndex index = write_all_ranks(folder.path(), small_content(3));
  const auto file = folder / index.parts[1].file;
  const auto with = [&](const SnapshotContent& content, int32_t rank) {
    const ScratchFolder other;
    const auto part = write_rank(other.path(), content, rank);
    REQUIRE(part.has_value());
    test::write_all(file, test::read_all(other / part->file));
    return read_whole(folder.path(), index);
  };
  const Refusal step = with(small_content(3, 30), 1);
  CHECK(step.status == Status::kFailedPrecondition);
  CHECK(says(step.message, index.parts[1].file + " cannot be used: it is of the step 30, not of 20"));
  SnapshotContent content = small_content(3);
  content.run_id = "run-2";
  CHECK(says(with(content, 1).message, "it is of the run \"run-2\", not of \"run-1\""));
  CHECK(says(with(small_content(3), 2).message, "it is of the rank 2, not of 1"));
  CHECK(says(with(small_content(2), 1).message, "it is of the world size 2, not of 3"));
  content = small_content(3);
  content.params[3].shape = {7, 501};
  CHECK(says(with(content, 1).message, "it is of the layout of the model"));
  content = small_content(3);
  content.kinds[1] = "moment2";
  CHECK(says(with(content, 1).message, "it is of the list of arrays"));
  content = small_content(3);
  content.ownership = *Ownership::of_runs(std::vector<Ownership::Run>{{2, 1}, {3, 0}, {2, 2}}, 3, 0);
  CHECK(says(with(content, 1).message, "it holds other chunks than its rank owned"));
}

TEST_CASE("another writing of the same part is not the part that is listed") {
  const ScratchFolder folder;
  const SnapshotIndex index = write_all_ranks(folder.path(), small_content(2));
  const auto zeros = [](int64_t, int64_t count) {
    static const std::vector<float> kZeros(1 << 14, 0.0F);
    REQUIRE(count <= (1 << 14));
    return kZeros.data();
  };
  const auto late = write_part(folder.path(), index.content, 0, std::vector<ShardReader>{zeros, zeros});
  REQUIRE(late.has_value());
  CHECK(late->file != index.parts[0].file);
  CHECK(read_whole(folder.path(), index).status == Status::kOk);
  test::write_all(folder / index.parts[0].file, test::read_all(folder / late->file));
  CHECK(says(read_whole(folder.path(), index).message, "holds other numbers than the part that the snapshot lists"));
}

TEST_CASE("a pipe or a folder in the place of a part is refused at once") {
  const ScratchFolder folder;
  const SnapshotIndex index = write_all_ranks(folder.path(), small_content(2));
  const auto file = folder / index.parts[0].file;
  std::filesystem::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  CHECK(says(read_whole(folder.path(), index).message, "it is not a regular file"));
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  CHECK(says(read_whole(folder.path(), index).message, "it is not a regular file"));
}

TEST_CASE("a full disk leaves nothing of a part behind, and the older parts as they were") {
  const ScratchFolder folder;
  const SnapshotContent content = small_content(2);
  const SnapshotIndex index = write_all_ranks(folder.path(), content);
  for (const rlim_t bytes : {100, 5000, 20000}) {
    const test::FileSizeLimit limit(bytes);
    const auto part = write_rank(folder.path(), content, 0);
    REQUIRE_FALSE(part.has_value());
    CHECK(part.error().status() == Status::kResourceExhausted);
  }
  CHECK(folder.names().size() == 2);
  CHECK(read_whole(folder.path(), index).status == Status::kOk);
}

TEST_CASE("a part that cannot be written leaves nothing behind") {
  const ScratchFolder folder;
  const SnapshotContent content = small_content(2);
  CHECK(write_rank(folder.path(), content, 2).error().status() == Status::kInvalidArgument);
  CHECK(write_part(folder.path(), content, 0, {}).error().status() == Status::kInvalidArgument);
  SnapshotContent other = content;
  other.step = -1;
  CHECK(write_rank(folder.path(), other, 0).error().message().find("-1 is no step") != std::string::npos);
  const ShardReader throws = [](int64_t, int64_t) -> const float* { throw std::runtime_error("the device is gone"); };
  CHECK_THROWS_AS(static_cast<void>(write_part(folder.path(), content, 0, std::vector<ShardReader>{throws, throws})),
                  std::runtime_error);
  CHECK(folder.names().empty());
  test::write_all(folder / "taken", "");
  CHECK_FALSE(write_rank(folder / "taken", content, 0).has_value());
}

}  // namespace
}  // namespace pliant::sharded
