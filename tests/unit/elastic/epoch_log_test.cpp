// What a run says of its epochs that have begun, and how lines that are damaged are read.
#include <doctest/doctest.h>

#include "elastic/epoch_log.hpp"
#include "scratch_folder.hpp"

using namespace pliant;
using elastic::BegunEpoch;
using pliant::test::ScratchFolder;

namespace {

BegunEpoch third() {
  BegunEpoch made;
  made.epoch = 3;
  made.first_step = 78;
  made.position = "{\"step\": 79}\nabc\n";
  made.mean_batch = {8, 9, 100, 90, 1};
  made.epochs = 6;
  made.max_steps = 150;
  return made;
}

}  // namespace

TEST_CASE("an epoch that has begun is read as it was written, with and without the length of the job") {
  BegunEpoch written = third();
  for (const bool has_length : {false, true}) {
    if (has_length) written.length = JobLength{156, {1200, 1218, 20000, 19000, 0}};
    const std::string line = elastic::to_line(written);
    REQUIRE(line.back() == '\n');
    const auto read = elastic::begun_epoch_of(std::string_view(line).substr(0, line.size() - 1));
    REQUIRE(read.has_value());
    CHECK(read->epoch == 3);
    CHECK(read->first_step == 78);
    CHECK(read->position == written.position);
    CHECK(read->mean_batch == written.mean_batch);
    CHECK(read->epochs == 6);
    CHECK(read->max_steps == 150);
    REQUIRE(read->length.has_value() == has_length);
    if (has_length) CHECK(read->length->size == written.length->size);
  }
}

TEST_CASE("a line with any byte changed, and one that is cut off anywhere, is none") {
  const std::string line = elastic::to_line(third());
  const std::string whole = line.substr(0, line.size() - 1);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    CHECK(!elastic::begun_epoch_of(damaged).has_value());
    CHECK(!elastic::begun_epoch_of(whole.substr(0, at)).has_value());
  }
}

TEST_CASE("of a file with damaged lines the whole ones count, and of no file none") {
  const ScratchFolder folder;
  CHECK(elastic::read_epochs(folder.path()).empty());
  BegunEpoch epoch = third();
  REQUIRE(elastic::append_epoch(folder.path(), epoch).has_value());
  const std::string first = test::read_all(folder / elastic::kEpochsFile);
  epoch.epoch = 4;
  epoch.first_step = 104;
  folder.write(elastic::kEpochsFile, "not a line\n" + first + first.substr(0, 40) + "\n");
  REQUIRE(elastic::append_epoch(folder.path(), epoch).has_value());
  folder.write(elastic::kEpochsFile, test::read_all(folder / elastic::kEpochsFile) + first.substr(0, 30));
  auto read = elastic::read_epochs(folder.path());
  REQUIRE(read.size() == 2);
  CHECK(read[0].epoch == 3);
  CHECK(read[1].epoch == 4);
  CHECK(elastic::epoch_before(read, 77) == nullptr);
  CHECK(elastic::epoch_before(read, 103)->epoch == 3);
  CHECK(elastic::epoch_before(read, 104)->epoch == 4);
  CHECK(elastic::epoch_before(read, 1000)->epoch == 4);
  epoch.epoch = 5;
  REQUIRE(elastic::append_epoch(folder.path(), epoch).has_value());
  read = elastic::read_epochs(folder.path());
  REQUIRE(read.size() == 3);  // the one that was cut off takes none along
  CHECK(read[2].epoch == 5);
}

TEST_CASE("epochs that begin after the step that a run goes back to are left out, and no others") {
  const ScratchFolder folder;
  CHECK(elastic::drop_epochs_after(folder.path(), 0).has_value());
  CHECK(!std::filesystem::exists(folder / elastic::kEpochsFile));
  BegunEpoch epoch = third();
  REQUIRE(elastic::append_epoch(folder.path(), epoch).has_value());
  const std::string first = test::read_all(folder / elastic::kEpochsFile);
  epoch.epoch = 4;
  epoch.first_step = 104;
  REQUIRE(elastic::append_epoch(folder.path(), epoch).has_value());
  const std::string both = test::read_all(folder / elastic::kEpochsFile);
  CHECK(elastic::drop_epochs_after(folder.path(), 104).has_value());
  CHECK(test::read_all(folder / elastic::kEpochsFile) == both);
  CHECK(elastic::drop_epochs_after(folder.path(), 103).has_value());
  CHECK(test::read_all(folder / elastic::kEpochsFile) == first);
  CHECK(elastic::drop_epochs_after(folder.path(), 0).has_value());
  CHECK(elastic::read_epochs(folder.path()).empty());
}

TEST_CASE("where the file cannot be written the error says so") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / elastic::kEpochsFile);
  CHECK(!elastic::append_epoch(folder.path(), third()).has_value());
  CHECK(elastic::read_epochs(folder.path()).empty());
}
