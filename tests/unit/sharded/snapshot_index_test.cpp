// The index of a sharded snapshot: what it refuses and how it names another model.
#include "sharded/snapshot_index.hpp"

#include <doctest/doctest.h>

#include "says.hpp"
#include "sharded_snapshot.hpp"

namespace pliant::sharded {
namespace {

SnapshotIndex some_index() {
  SnapshotIndex index{small_content(2), {}};
  index.parts = {{"rank-0-of-2.0123456789ab", 4096, 17}, {"rank-1-of-2.ba9876543210", 8192, ~uint64_t{0}}};
  return index;
}

/// The index with `from` replaced by `to`; both are text of the file.
std::string index_refusal(const std::string& from, const std::string& to) {
  std::string text = some_index().save();
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  const auto index = SnapshotIndex::load(text);
  if (index) return {};
  CHECK(index.error().status() == Status::kDataLoss);
  CHECK(index.error().message().find("the index of a snapshot is damaged: ") == 0);
  return index.error().message();
}

TEST_CASE("an index that is damaged is refused and says where") {
  CHECK(says(index_refusal("{", ""), "parse error"));
  CHECK(says(index_refusal("\"format\":1", "\"format\":2"), "its format is 2"));
  CHECK(says(index_refusal("\"format\":1", "\"format\":\"1\""), "type"));
  CHECK(says(index_refusal("\"step\":20", "\"step\":-1"), "-1 is no step"));
  CHECK(says(index_refusal("\"step\"", "\"stop\""), "step"));
  CHECK(says(index_refusal("\"moment1\"", "\"weight\""), "'weight' is the name of two"));
  CHECK(says(index_refusal("\"scale\"", "\"embed\""), "'embed' is the name of two"));
  CHECK(says(index_refusal("\"scale\"", "\"\""), "'' is no name"));
  CHECK(says(index_refusal("[30,100]", "[30,-100]"), "'embed' of shape [30,-100] has a shape that no memory holds"));
  CHECK(says(index_refusal("[30,100]", "[30,9999]"), "chunks, its owners 7"));
  CHECK(says(index_refusal("[30,100]", "[30,101]"), "do not lie where this release lays them"));
  CHECK(says(index_refusal("[30,100]", "[true,100]"), "type"));
  CHECK(says(index_refusal("[30,100]", "[[[[[30]]]],100]"), "nests deeper"));
  CHECK(says(index_refusal("ranks 2 chunks", "ranks 3 chunks"), "2 parts are of 3 ranks"));
  CHECK(says(index_refusal("pliant-ownership 1", "pliant-ownership 2"), "format is another"));
  CHECK(says(index_refusal("rank-1-of-2.ba9876543210", "rank-0-of-2.0123456789ab"), "is the part of two ranks"));
  for (const char* name : {"../rank-1-of-2.ba9876543210", "rank-/../../x", "part", "rank-", ""}) {
    CHECK(says(index_refusal("rank-1-of-2.ba9876543210", name), "is no part"));
  }
  CHECK(says(index_refusal(" 8192 ", " 08192 "), "is no part"));
  CHECK(says(index_refusal(" 8192 ", " "), "is no part"));
  CHECK(says(index_refusal("ffffffffffffffff", "fffffffffffffffff"), "is no part"));
}

TEST_CASE("content that does not hold together is refused") {
  SnapshotContent content = small_content(2);
  CHECK(content.checked_layout().has_value());
  content.kinds.push_back("weight");
  CHECK_FALSE(content.checked_layout().has_value());
  content = small_content(2);
  content.params.front().name = "\xff";
  CHECK_FALSE(content.checked_layout().has_value());
  content = small_content(2);
  content.ownership = *Ownership::deal(3, 2);
  CHECK(says(content.checked_layout().error().message(), "7 chunks, its owners 3"));
}

TEST_CASE("an index is read as it was written") {
  const SnapshotIndex index = some_index();
  const auto read = SnapshotIndex::load(index.save());
  REQUIRE(read.has_value());
  CHECK(*read == index);
  CHECK(read->save() == index.save());
  CHECK(*SnapshotPart::load(index.parts[1].save()) == index.parts[1]);
}

TEST_CASE("parameters of another model are named with both shapes") {
  const SnapshotIndex index = some_index();
  auto own = index.content.params;
  CHECK(index.require_params(own, "s").has_value());
  own[3].shape = {500, 7};
  const auto other = index.require_params(own, "snapshots/step-00000020.snapshot");
  REQUIRE_FALSE(other.has_value());
  CHECK(other.error().status() == Status::kFailedPrecondition);
  CHECK(other.error().exit_code() == ExitCode::kUsage);
  CHECK(says(other.error().message(),
             "the snapshot snapshots/step-00000020.snapshot is of another model: parameter 3 is 'layers.0.weight' of "
             "shape [500,7] in this program, 'layers.0.weight' of shape [7,500] in the snapshot"));
  own.pop_back();
  CHECK(says(index.require_params(own, "s").error().message(), "parameter 3 is none in this program"));
}

}  // namespace
}  // namespace pliant::sharded
