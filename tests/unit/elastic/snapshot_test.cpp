// Snapshots that are written and read whole, and writers that fail.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <rapidcheck.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <istream>
#include <iterator>
#include <ostream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "elastic/checked_stream.hpp"
#include "elastic/snapshot.hpp"
#include "elastic/snapshot_draft.hpp"
#include "file_size_limit.hpp"
#include "scratch_folder.hpp"
#include "spool_of.hpp"

namespace pliant::elastic {
namespace {

using test::ScratchFolder;

Result<> write(const std::filesystem::path& file, const std::string& state, int64_t step = 20) {
  return write_snapshot(file, {step, "00ff", std::string("lr\0state", 8)}, [&](std::ostream& out) {
    out.write(state.data(), static_cast<std::streamsize>(state.size()));
  });
}

/// The state in `file`, which must be whole.
std::string state_of(const std::filesystem::path& file) {
  std::ostringstream state;
  const auto header = read_snapshot(file, [&](std::istream& in, const SnapshotHeader&) { state << in.rdbuf(); });
  REQUIRE_MESSAGE(header.has_value(), (header ? "" : header.error().message()));
  return state.str();
}

std::string pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 2654435761U) >> 13);
  return bytes;
}

TEST_CASE("a snapshot is named after its step") {
  CHECK(snapshot_file(20) == "snapshots/step-00000020.snapshot");
  CHECK(snapshot_file(123456789012) == "snapshots/step-123456789012.snapshot");
}

TEST_CASE("a snapshot is given to its owner and to nobody else") {
  const ScratchFolder folder;
  const auto file = folder / "s";
  REQUIRE(write_snapshot(file, {1, "00ff", "lr", "run-1"}, [](std::ostream& out) { out << "state"; }).has_value());
  const auto read = [&file](const SnapshotOwner& owner, bool& seen) {
    return read_snapshot(
        file, [&seen](std::istream&, const SnapshotHeader&) { seen = true; }, owner);
  };
  bool seen = false;
  const auto own = read({"run-1", "00ff"}, seen);
  REQUIRE(own.has_value());
  CHECK(own->run_id == "run-1");
  CHECK(seen);
  seen = false;
  const auto other_run = read({"run-2", "00ff"}, seen);
  const auto other_data = read({"run-1", "0100"}, seen);
  REQUIRE_FALSE(other_run.has_value());
  REQUIRE_FALSE(other_data.has_value());
  CHECK(other_run.error().origin() == Origin::kInput);
  CHECK(other_run.error().message().find("is that of run run-1, not of run-2") != std::string::npos);
  CHECK(other_data.error().message().find("fingerprint 00ff instead of 0100") != std::string::npos);
  CHECK_FALSE(seen);
}

/// A snapshot as another release wrote it.
std::string of_format(char version) {
  const auto number = [](char value) { return std::string(1, value) + std::string(7, '\0'); };
  const auto text = [&](const std::string& words) { return number(static_cast<char>(words.size())) + words; };
  std::string header = number(7) + text("00ff") + text("lr");
  if (version >= 2) header += text("run-1");
  if (version >= 3) header += text("");
  if (version >= 4) header += text("0123");
  std::string bytes("\x89PLIANT\n");
  bytes += std::string{version, '\0', '\0', '\0', static_cast<char>(header.size()), '\0', '\0', '\0'};
  bytes += header + "state" + number(5);
  Crc64 crc;
  crc.process_bytes(bytes.data(), bytes.size());
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(crc.checksum() >> (8 * i));
  return bytes;
}

TEST_CASE("snapshots of older formats are still read, and what they say of their owner is compared") {
  const ScratchFolder folder;
  for (const char version : {'\x01', '\x02', '\x03', '\x04'}) {
    INFO("format " << static_cast<int>(version));
    const auto file = folder.write("s", of_format(version));
    const auto owned_by = [&](const std::string& run, const std::string& fingerprint) {
      return read_snapshot(
          file, [](std::istream&, const SnapshotHeader&) {}, SnapshotOwner{run, fingerprint});
    };
    const auto read = owned_by("run-1", "00ff");
    REQUIRE_MESSAGE(read.has_value(), (read ? "" : read.error().message()));
    CHECK(read->step == 7);
    CHECK(read->lr_state == "lr");
    CHECK(read->run_id == (version == 1 ? "" : "run-1"));
    CHECK(read->arrays.empty());
    CHECK(read->model == (version == 4 ? "0123" : ""));
    CHECK(read->parameters.empty());
    CHECK(read->coordinator.empty());
    CHECK(state_of(file) == "state");
    CHECK_FALSE(owned_by("run-1", "0100").has_value());
    CHECK(owned_by("run-2", "00ff").has_value() == (version == 1));
  }
}

TEST_CASE("a snapshot of a newer release is called that, not damaged, and what is damaged is not called newer") {
  const ScratchFolder folder;
  std::string bytes = of_format('\x06');
  const auto newer = read_snapshot(folder.write("s", bytes), [](std::istream&, const SnapshotHeader&) {});
  REQUIRE_FALSE(newer.has_value());
  CHECK(newer.error().origin() == Origin::kInput);
  CHECK(newer.error().message().find("its format version is 6, this release reads 1 to 5; "
                                     "resume with that release, or remove it to resume from an older snapshot") !=
        std::string::npos);
  bytes = of_format('\x05');
  bytes[8] = '\x06';
  const auto damaged = read_snapshot(folder.write("s", bytes), [](std::istream&, const SnapshotHeader&) {});
  REQUIRE_FALSE(damaged.has_value());
  CHECK(damaged.error().status() == Status::kDataLoss);
}

TEST_CASE("a snapshot keeps the layout of its arrays, which parameters they are, and what a coordinator has learnt") {
  const ScratchFolder folder;
  const std::string layout = "w f32[4,2]\nsteps i64[]\n";
  for (const std::string& learnt : {std::string(), std::string("trace\0of 3", 10), pattern(1 << 20)}) {
    CAPTURE(learnt.size());
    SnapshotHeader header{1, "00ff", "lr", "run-1", layout};
    header.parameters = "a f32[8] 0\n";
    header.coordinator = learnt;
    REQUIRE(write_snapshot(folder / "s", header, [](std::ostream& out) { out << "state"; }).has_value());
    std::string seen;
    const auto read = read_snapshot(folder / "s", [&](std::istream& in, const SnapshotHeader& written) {
      seen = written.arrays + written.parameters + written.coordinator + "/" +
             std::string(std::istreambuf_iterator<char>(in), {});
    });
    REQUIRE(read.has_value());
    CHECK(seen == layout + "a f32[8] 0\n" + learnt + "/state");
    CHECK(read->coordinator == learnt);
  }
}

TEST_CASE("a snapshot gives back its header and its state, also when the state is empty") {
  const ScratchFolder folder;
  for (const size_t size : {size_t{0}, size_t{1}, (size_t{256} << 10) - 1, size_t{256} << 10, size_t{1000003}}) {
    CAPTURE(size);
    REQUIRE(write(folder / "a/b.snapshot", pattern(size), 7).has_value());
    std::string state(size, 'x');
    const auto header = read_snapshot(folder / "a/b.snapshot", [&](std::istream& in, const SnapshotHeader&) {
      in.read(state.data(), static_cast<std::streamsize>(size));
      CHECK(in.gcount() == static_cast<std::streamsize>(size));
      CHECK(in.peek() == std::istream::traits_type::eof());
    });
    REQUIRE(header.has_value());
    CHECK(header->step == 7);
    CHECK(header->fingerprint == "00ff");
    CHECK(header->lr_state == std::string("lr\0state", 8));
    CHECK(state == pattern(size));
    CHECK(folder.names("a") == std::vector<std::string>{"b.snapshot"});
  }
}

TEST_CASE("a state written and read in pieces of any size is the same") {
  const ScratchFolder folder;
  const bool held = rc::check([&] {
    const auto sizes =
        *rc::gen::container<std::vector<int>>(*rc::gen::inRange<size_t>(0, 12), rc::gen::inRange(0, 300000));
    size_t total = 0;
    for (const int size : sizes) total += static_cast<size_t>(size);
    const std::string state = pattern(total);
    const auto written = write_snapshot(folder / "s", {1, "f", ""}, [&](std::ostream& out) {
      size_t at = 0;
      for (const int size : sizes) {
        out.write(state.data() + at, size);
        at += static_cast<size_t>(size);
        RC_ASSERT(out.tellp() >= static_cast<std::streamoff>(at));
      }
    });
    RC_ASSERT(written.has_value());
    const auto read_sizes =
        *rc::gen::container<std::vector<int>>(*rc::gen::inRange<size_t>(0, 12), rc::gen::inRange(1, 300000));
    std::string got;
    const auto read = read_snapshot(folder / "s", [&](std::istream& in, const SnapshotHeader&) {
      for (const int size : read_sizes) {
        std::string piece(static_cast<size_t>(size), '\0');
        in.read(piece.data(), size);
        got.append(piece, 0, static_cast<size_t>(in.gcount()));
        if (!in) break;
        got += static_cast<char>(in.get());
        if (!in) got.pop_back();
      }
    });
    RC_ASSERT(read.has_value());
    RC_ASSERT(got == state.substr(0, got.size()));
  });
  CHECK(held);
}

TEST_CASE("a reader may seek in the state and cannot leave it") {
  const ScratchFolder folder;
  const std::string state = pattern(700000);
  REQUIRE(write(folder / "s", state).has_value());
  const auto read = read_snapshot(folder / "s", [&](std::istream& in, const SnapshotHeader&) {
    in.seekg(0, std::ios::end);
    CHECK(in.tellg() == std::streampos(700000));
    for (const int at : {0, 699999, 300000, 262143, 262144, 5}) {
      in.seekg(at);
      CHECK(in.get() == static_cast<unsigned char>(state[static_cast<size_t>(at)]));
      CHECK(in.tellg() == std::streampos(at + 1));
    }
    in.seekg(-6, std::ios::cur);
    CHECK(in.tellg() == std::streampos(0));
    in.seekg(700001);
    CHECK(in.fail());
    in.clear();
    in.seekg(-1, std::ios::beg);
    CHECK(in.fail());
  });
  CHECK(read.has_value());
}

TEST_CASE("a draft that is finished takes along those of its step and earlier ones, and none that is under way") {
  const ScratchFolder folder;
  const std::string state(5000, 'x');
  const auto begin_of = [&](int64_t step, int64_t generation) {
    const SnapshotHeader header{step, "00ff", "lr", "run", "weights f32[1250]\n"};
    auto draft = SnapshotDraft::open(draft_of(folder.path() / snapshot_file(step), generation, "07af"));
    REQUIRE(draft.has_value());
    REQUIRE(draft->write(head_of_snapshot(header).size(), state.data(), state.size()).has_value());
    return header;
  };
  begin_of(48, 2);
  begin_of(44, 3);
  const SnapshotHeader header = begin_of(48, 3);
  begin_of(49, 3);
  begin_of(100'000'000, 3);  // its name is longer
  const std::filesystem::path file = folder.path() / snapshot_file(48);
  REQUIRE(finish_draft(draft_of(file, 3, "07af"), file, header, state.size(), test::spool_of(folder.path(), "rest"))
              .has_value());
  CHECK(state_of(file) == state + "rest");
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(file.parent_path()))
    left.insert(entry.path().filename());
  CHECK(left == std::set<std::string>{"step-00000048.snapshot", "step-00000049.snapshot.generation-3-of-07af.draft",
                                      "step-100000000.snapshot.generation-3-of-07af.draft"});
}

TEST_CASE("what is spooled comes back, has no name, and differs by its checksum") {
  const ScratchFolder folder;
  const std::string bytes(3'000'001, 'y');
  const Spool spool = test::spool_of(folder / "snapshots", bytes);
  CHECK(std::filesystem::is_empty(folder / "snapshots"));
  CHECK(spool.bytes() == bytes.size());
  CHECK(spool.checksum() != test::spool_of(folder / "snapshots", bytes + "y").checksum());
  for (int again = 0; again < 2; ++again) {
    std::ostringstream read;
    REQUIRE(spool.read([&read](std::istream& in) { read << in.rdbuf(); }).has_value());
    CHECK(read.str() == bytes);
  }
  const Spool none = test::spool_of(folder / "snapshots", "");
  CHECK(none.bytes() == 0);
  CHECK(none.read([](std::istream& in) { CHECK(in.peek() == std::istream::traits_type::eof()); }).has_value());
  const auto failed = Spool::of(folder / "snapshots", [](std::ostream& out) { out.setstate(std::ios_base::failbit); });
  REQUIRE_FALSE(failed.has_value());
  CHECK(failed.error().status() == Status::kInternal);
}

TEST_CASE("the digest of a cut tells what a rank owns, and neither its number nor what others own") {
  using pliant::sharded::Ownership;
  const auto of = [](std::vector<Ownership::Run> runs, int32_t ranks, int64_t epoch, int32_t rank) {
    return digest_of_cut(Ownership::of_runs(runs, ranks, epoch)->runs_of(rank));
  };
  const uint64_t cut = of({{5, 0}, {6, 1}}, 2, 0, 1);
  CHECK(of({{5, 0}, {6, 1}}, 2, 7, 1) == cut);
  CHECK(of({{5, 1}, {6, 0}}, 2, 0, 0) == cut);
  CHECK(of({{5, 0}, {6, 1}}, 3, 0, 1) == cut);
  CHECK(of({{4, 0}, {1, 2}, {6, 1}}, 3, 0, 1) == cut);
  CHECK(of({{5, 0}, {6, 1}}, 2, 0, 0) != cut);
  CHECK(of({{6, 0}, {5, 1}}, 2, 0, 1) != cut);
  CHECK(of({{5, 0}, {5, 1}, {1, 2}}, 3, 0, 1) != cut);
  CHECK(of({{5, 0}, {6, 1}}, 3, 0, 2) != cut);
}

TEST_CASE("a snapshot that is missing is not found") {
  const ScratchFolder folder;
  const auto read =
      read_snapshot(folder / "none.snapshot", [](std::istream&, const SnapshotHeader&) { FAIL("nothing to read"); });
  REQUIRE_FALSE(read.has_value());
  CHECK(read.error().status() == Status::kNotFound);
  CHECK(read.error().message().find("none.snapshot") != std::string::npos);
}

TEST_CASE("a program that fails to save keeps the old snapshot and leaves nothing behind") {
  const ScratchFolder folder;
  REQUIRE(write(folder / "s", "old").has_value());
  const auto thrown = write_snapshot(folder / "s", {2, "", ""}, [](std::ostream& out) {
    out << "half";
    throw std::runtime_error("out of ideas");
  });
  REQUIRE_FALSE(thrown.has_value());
  CHECK(thrown.error().message().find("out of ideas") != std::string::npos);
  const auto typed = write_snapshot(folder / "s", {2, "", ""},
                                    [](std::ostream&) { throw Error(Status::kAborted, "stopped", Origin::kInput); });
  REQUIRE_FALSE(typed.has_value());
  CHECK(typed.error().status() == Status::kAborted);
  CHECK(typed.error().origin() == Origin::kInput);
  const auto odd = write_snapshot(folder / "s", {2, "", ""}, [](std::ostream&) { throw 3; });
  CHECK_FALSE(odd.has_value());
  const auto marked =
      write_snapshot(folder / "s", {2, "", ""}, [](std::ostream& out) { out.setstate(std::ios::failbit); });
  CHECK_FALSE(marked.has_value());
  CHECK(state_of(folder / "s") == "old");
  CHECK(folder.names() == std::vector<std::string>{"s"});
}

TEST_CASE("a full disk keeps the old snapshot and leaves nothing behind, however the program takes it") {
  const ScratchFolder folder;
  REQUIRE(write(folder / "s", "old").has_value());
  const std::string state = pattern(2000000);
  for (const auto room : std::initializer_list<rlim_t>{0, 10, 100000, 1000000, 1999990, 2000056}) {
    for (const bool throwing : {false, true}) {
      CAPTURE(room);
      Result<> full;
      {
        const test::FileSizeLimit limit(room);
        full = write_snapshot(folder / "s", {2, "f", ""}, [&](std::ostream& out) {
          if (throwing) out.exceptions(std::ios::badbit | std::ios::failbit);
          for (size_t at = 0; at < state.size(); at += 1000) out.write(state.data() + at, 1000);
        });
      }
      REQUIRE_FALSE(full.has_value());
      CHECK(full.error().status() == Status::kResourceExhausted);
      CHECK(full.error().message().find((folder / "s").string()) != std::string::npos);
      CHECK(state_of(folder / "s") == "old");
      CHECK(folder.names() == std::vector<std::string>{"s"});
    }
  }
}

TEST_CASE("a snapshot that cannot be created says where and why") {
  const ScratchFolder folder;
  test::write_all(folder / "file", "no folder");
  const auto written = write(folder / "file/s", "x");
  REQUIRE_FALSE(written.has_value());
  CHECK(written.error().message().find((folder / "file").string()) != std::string::npos);
}

TEST_CASE("what a killed writer left is removed by the next one, what a living one writes is not") {
  const ScratchFolder folder;
  test::write_all(folder / "dead.partial", "half");
  test::write_all(folder / "s.partial", "half");
  test::write_all(folder / "alive.partial", "half");
  const int alive = ::open((folder / "alive.partial").c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(alive >= 0);
  REQUIRE(::flock(alive, LOCK_EX) == 0);
  REQUIRE(write(folder / "s", "new").has_value());
  CHECK(folder.names() == std::vector<std::string>{"alive.partial", "s"});
  ::close(alive);
  CHECK(write(folder / "s", "newer").has_value());
  CHECK(folder.names() == std::vector<std::string>{"s"});
}

TEST_CASE("a writer that is stopped in the middle keeps no other from writing the same snapshot") {
  const ScratchFolder folder;
  const auto slow = write_snapshot(folder / "s", {3, "", ""}, [&](std::ostream& out) {
    out << "of the slow one" << std::flush;
    CHECK(write(folder / "s", "of the quick one").has_value());
    CHECK(state_of(folder / "s") == "of the quick one");
  });
  CHECK(slow.has_value());
  CHECK(state_of(folder / "s") == "of the slow one");
  CHECK(folder.names() == std::vector<std::string>{"s"});
}

TEST_CASE("kill -9 while a snapshot is written leaves the old one or the new one") {
  const ScratchFolder folder;
  for (int round = 0; round < 8; ++round) {
    REQUIRE(write(folder / "s", "old").has_value());
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const pid_t writer = ::fork();
    REQUIRE(writer >= 0);
    if (writer == 0) {
      const std::string piece(100000, 'n');
      const auto done = write_snapshot(folder / "s", {3, "", ""}, [&](std::ostream& out) {
        for (int i = 0; i < 8; ++i) {
          out << piece << std::flush;
          if (::write(pipe_ends[1], "+", 1) != 1) ::_exit(1);
        }
      });
      ::_exit(done ? 0 : 1);
    }
    ::close(pipe_ends[1]);
    char byte = 0;
    for (int i = 0; i <= round; ++i) CHECK(::read(pipe_ends[0], &byte, 1) == 1);
    ::kill(writer, SIGKILL);
    REQUIRE(::waitpid(writer, nullptr, 0) == writer);
    ::close(pipe_ends[0]);
    const std::string state = state_of(folder / "s");
    CHECK((state == "old" || state == std::string(800000, 'n')));
  }
}

}  // namespace
}  // namespace pliant::elastic
