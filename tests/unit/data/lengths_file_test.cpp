// Lengths files: round trip, writers at the same time, damage.
#include "data/lengths_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "data/input_file.hpp"
#include "scratch.hpp"

using namespace pliant;
using pliant::test::Scratch;

namespace {

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

Dataset some() {
  return {{5, 1, 2147483647, 9}, {4, 0, 7, 8}};
}

}  // namespace

TEST_CASE("a lengths file gives back what was written, with and without loss tokens, even empty") {
  for (const Dataset& dataset : {some(), Dataset{{1, 2}, {}}, Dataset{}}) {
    const Scratch scratch;
    REQUIRE(data::write_dataset_once(scratch.file("lengths"), dataset).has_value());
    const auto read = data::read_dataset(scratch.file("lengths"));
    REQUIRE(read.has_value());
    CHECK(read->lengths == dataset.lengths);
    CHECK(read->loss_tokens == dataset.loss_tokens);
    size_t files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch.file("."))) ++files;
    CHECK(files == 1);
  }
}

TEST_CASE("a lengths file has the rights that the umask leaves") {
  const Scratch scratch;
  for (const mode_t mask : {0077U, 0027U, 0022U}) {
    const std::filesystem::path file = scratch.file(std::to_string(mask));
    const mode_t before = ::umask(mask);
    const auto written = data::write_dataset_once(file, some());
    ::umask(before);
    REQUIRE(written.has_value());
    struct stat status {};
    REQUIRE(::stat(file.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777U) == (0644U & ~mask));
  }
}

TEST_CASE("lengths that were read stay, whatever becomes of their file") {
  const Scratch scratch;
  const Dataset large{std::vector<int32_t>(100000, 7), {}};
  REQUIRE(data::write_dataset_once(scratch.file("lengths"), large).has_value());
  const auto read = data::read_dataset(scratch.file("lengths"));
  REQUIRE(read.has_value());
  std::filesystem::resize_file(scratch.file("lengths"), 0);
  CHECK(read->lengths == large.lengths);
}

TEST_CASE("a file that is cut off or written to while it is read is an error") {
  const Scratch scratch;
  const std::filesystem::path file = scratch.file("lengths.txt");
  put(file, "1\n2\n3\n");
  const auto cut = data::InputFile::open(file);
  const auto grown = data::InputFile::open(file);
  REQUIRE(cut.has_value());
  std::filesystem::resize_file(file, 2);
  std::string bytes(6, ' ');
  CHECK(cut->read(bytes.data(), 6, 0).error().message().find("it shrank while being read, from 6 to 2 bytes") !=
        std::string::npos);
  CHECK(cut->check_unchanged().error().message().find("changed while being read") != std::string::npos);
  put(file, "1\n2\n3\n4\n");
  CHECK(grown->read(bytes.data(), 6, 0).has_value());
  CHECK_FALSE(grown->check_unchanged().has_value());
}

TEST_CASE("lines are read across pieces of the file") {
  const Scratch scratch;
  std::string text;
  std::vector<int32_t> wanted;
  for (int32_t i = 1; i <= 300000; ++i) {
    text += std::to_string(i) + (i % 3 == 0 ? "\r\n" : "\n");
    wanted.push_back(i);
  }
  text.pop_back();  // no newline behind the last
  put(scratch.file("lengths.txt"), text);
  CHECK(read_lengths(scratch.file("lengths.txt")) == Lengths(wanted));
}

TEST_CASE("writing the same again is fine, writing another set is refused and changes nothing") {
  const Scratch scratch;
  const auto file = scratch.file("lengths");
  REQUIRE(data::write_dataset_once(file, some()).has_value());
  CHECK(data::write_dataset_once(file, some()).has_value());
  Dataset other = {{5, 1, 2147483647, 10}, {4, 0, 7, 8}};
  const auto refused = data::write_dataset_once(file, other);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().status() == Status::kFailedPrecondition);
  CHECK(refused.error().message().find("the data set has changed: it has 4 sequences") != std::string::npos);
  CHECK(data::read_dataset(file)->lengths == some().lengths);
}

TEST_CASE("many writers of the same set at once all succeed, and readers see a whole file") {
  const Scratch scratch;
  const auto file = scratch.file("lengths");
  Dataset dataset;
  dataset.lengths = std::vector<int32_t>(20000, 7);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      if (!data::write_dataset_once(file, dataset)) ++failures;
      const auto read = data::read_dataset(file);
      if (!read || !(read->lengths == dataset.lengths)) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
}

TEST_CASE("a truncated lengths file is refused at every length") {
  const Scratch scratch;
  const auto file = scratch.file("lengths");
  REQUIRE(data::write_dataset_once(file, some()).has_value());
  const std::string whole = bytes_of(file);
  for (size_t size = 0; size < whole.size(); ++size) {
    put(file, whole.substr(0, size));
    const auto read = data::read_dataset(file);
    CAPTURE(size);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().status() == Status::kDataLoss);
  }
  put(file, whole + "x");
  CHECK(data::read_dataset(file).error().message().find("sequences need") != std::string::npos);
}

TEST_CASE("every flipped bit of a lengths file is noticed") {
  const Scratch scratch;
  const auto file = scratch.file("lengths");
  REQUIRE(data::write_dataset_once(file, some()).has_value());
  const std::string whole = bytes_of(file);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    put(file, damaged);
    CAPTURE(bit);
    CHECK_FALSE(data::read_dataset(file).has_value());
  }
}

TEST_CASE("a header that counts more than any file could hold is damage, not an allocation") {
  const Scratch scratch;
  const auto file = scratch.file("lengths");
  REQUIRE(data::write_dataset_once(file, some()).has_value());
  std::string bytes = bytes_of(file);
  for (size_t i = 16; i < 32; ++i) bytes[i] = static_cast<char>(0xff);
  put(file, bytes);
  CHECK(data::read_dataset(file).error().status() == Status::kDataLoss);
}

TEST_CASE("missing files, folders, foreign files and later versions have their own words") {
  const Scratch scratch;
  CHECK(data::read_dataset(scratch.file("none")).error().status() == Status::kNotFound);
  CHECK_FALSE(data::read_dataset(scratch.file(".")).has_value());
  put(scratch.file("text"), "not a lengths file at all, but long enough");
  CHECK(data::read_dataset(scratch.file("text")).error().message().find("is not a lengths file") != std::string::npos);
  REQUIRE(data::write_dataset_once(scratch.file("lengths"), some()).has_value());
  std::string bytes = bytes_of(scratch.file("lengths"));
  bytes[8] = 5;
  put(scratch.file("lengths"), bytes);
  CHECK(data::read_dataset(scratch.file("lengths")).error().status() == Status::kUnimplemented);
}

TEST_CASE("a folder that is not there is named") {
  const Scratch scratch;
  const auto written = data::write_dataset_once(scratch.file("no/such/lengths"), some());
  REQUIRE_FALSE(written.has_value());
  CHECK(written.error().status() == Status::kNotFound);
  CHECK(written.error().message().find("no/such/lengths") != std::string::npos);
}
