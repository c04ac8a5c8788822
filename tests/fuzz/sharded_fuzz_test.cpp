// Whatever bytes a file of shards, an index or a .safetensors file holds, it is read or refused.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "fuzz/mutations.hpp"
#include "scratch_folder.hpp"
#include "sharded/safetensors_header.hpp"
#include "sharded/snapshot_parts.hpp"

using namespace pliant;
using test::fuzz;
using test::ScratchFolder;

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

TEST_CASE("an index of parts and a map of owners are refused, or read as they would be written") {
  sharded::SnapshotIndex index;
  index.content.run_id = "run";
  index.content.step = 7;
  index.content.params = {{"a", {3, 1000}}, {"b", {}}};
  index.content.kinds = {"weight"};
  index.content.ownership = *sharded::Ownership::deal(index.content.layout()->chunks(), 2);
  index.parts = {{"rank-0-of-2.0123456789ab", 4096, 1}, {"rank-1-of-2.0123456789ac", 4096, 2}};
  const std::vector<std::string> words{"null", "-1", "1e400", " 1:0", " 1048576:1", "[[[[[", "\"", "ranks 1", "../"};
  int read = 0;
  fuzz({index.save(), index.content.ownership.save()}, words, [&](std::string_view text) {
    if (const auto map = sharded::Ownership::load(text)) {
      ++read;
      CHECK(map->save() == text);
    }
    if (const auto found = sharded::SnapshotIndex::load(text)) {
      ++read;
      CHECK(*sharded::SnapshotIndex::load(found->save()) == *found);
      CHECK(found->content.ownership.chunks() == found->content.layout()->chunks());
    }
  });
  CHECK(read > 0);
}

TEST_CASE("a damaged part of a snapshot is refused before anybody uses a number of it") {
  const ScratchFolder folder;
  sharded::SnapshotIndex index;
  index.content.run_id = "run";
  index.content.params = {{"a", {1024}}};
  index.content.kinds = {"weight"};
  index.content.ownership = *sharded::Ownership::deal(1, 1);
  const std::vector<float> weights(1024, 1.5F);
  const sharded::ShardReader shard = [&weights](int64_t first, int64_t) { return weights.data() + first; };
  const auto part = sharded::write_part(folder.path(), index.content, 0, std::vector<sharded::ShardReader>{shard});
  REQUIRE(part.has_value());
  index.parts = {*part};
  const std::string whole = test::read_all(folder / part->file);
  fuzz({whole}, {std::string(8, '\0'), std::string(4, '\xff')}, [&](std::string_view bytes) {
    test::write_all(folder / part->file, std::string(bytes));
    std::vector<float> got(1024);
    auto reader = sharded::PartsReader::open(folder.path(), index);
    const bool is_read = reader && reader->read("weight", {0, 1024}, got.data());
    CHECK(is_read == (bytes == whole));
    if (is_read) CHECK(got == weights);
  });
}
