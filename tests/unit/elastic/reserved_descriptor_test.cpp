// Descriptors that run out: what is reserved is enough for a snapshot, and nobody else's number changes hands.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <istream>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "base/reserved_descriptor.hpp"
#include "elastic/snapshot.hpp"
#include "scratch_folder.hpp"

#ifndef __SANITIZE_ADDRESS__  // UBSan needs descriptors to look at an object's type

namespace pliant::elastic {
namespace {

int any_file() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/// No descriptor is left while this lives.
class NoneLeft {
 public:
  NoneLeft() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = any_file();
    REQUIRE(next >= 0);
    taken_.push_back(next);
    const rlimit few{static_cast<rlim_t>(next) + 8, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (taken_.back() >= 0) taken_.push_back(any_file());
    CHECK(errno == EMFILE);
    taken_.pop_back();
  }
  NoneLeft(const NoneLeft&) = delete;
  NoneLeft& operator=(const NoneLeft&) = delete;
  ~NoneLeft() {
    for (const int one : taken_) ::close(one);
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

Result<> write(const std::filesystem::path& file) {
  return write_snapshot(file, {20, "00ff", "lr"}, [](std::ostream& out) { out << "state"; });
}

/// What a number stands for.
std::pair<dev_t, ino_t> file_of(int descriptor) {
  struct stat status {};
  REQUIRE(::fstat(descriptor, &status) == 0);
  return {status.st_dev, status.st_ino};
}

}  // namespace

TEST_CASE("where no descriptor is left a snapshot is written in the place that is reserved, again and again") {
  const test::ScratchFolder folder;
  ReservedDescriptor reserved;
  const auto input = file_of(STDIN_FILENO);
  {
    const NoneLeft none;
    const Result<> refused = write(folder / "refused");
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().status() == Status::kResourceExhausted);
    CHECK(refused.error().message().find("Too many open files") != std::string::npos);
    for (const char* const name : {"first", "second"}) {
      const auto room = reserved.room();
      CHECK(write(folder / name).has_value());
      CHECK(file_of(STDIN_FILENO) == input);
    }
    CHECK(any_file() == -1);  // it is held again
  }
  CHECK(folder.names() == std::vector<std::string>{"first", "second"});
  const auto header = read_snapshot(folder / "second", [](std::istream&, const SnapshotHeader&) {});
  REQUIRE(header.has_value());
  CHECK(header->step == 20);
}

TEST_CASE(
    "where another is quicker to take the reserved place the snapshot is refused, and the next one has it again") {
  const test::ScratchFolder folder;
  ReservedDescriptor reserved;
  const NoneLeft none;
  {
    const auto room = reserved.room();
    const int other = any_file();
    REQUIRE(other >= 0);
    const Result<> refused = write(folder / "refused");
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().status() == Status::kResourceExhausted);
    ::close(other);
  }
  const auto room = reserved.room();
  CHECK(write(folder / "written").has_value());
  CHECK(folder.names() == std::vector<std::string>{"written"});
}

TEST_CASE("one that found no place takes one as soon as there is") {
  const test::ScratchFolder folder;
  std::optional<ReservedDescriptor> reserved;
  {
    const NoneLeft none;
    reserved.emplace();
  }
  { const auto room = reserved->room(); }
  const NoneLeft none;
  const auto room = reserved->room();
  CHECK(write(folder / "written").has_value());
}

}  // namespace pliant::elastic

#endif
