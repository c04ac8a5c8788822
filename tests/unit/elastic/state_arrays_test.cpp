// The arrays of a program's state: what is refused, and how they come into streams, out of them and to other ranks.
#include "elastic/state_arrays.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <iterator>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "elastic/state_transfer.hpp"
#include "rank_group.hpp"

namespace pliant::elastic {
namespace {

struct Program final : TrainingState {
  std::vector<StateArray> parts;
  std::function<void(std::ostream&)> saves;
  std::function<void(std::istream&)> loads;
  [[nodiscard]] uint64_t gradient_size() const override { return 0; }
  [[nodiscard]] std::vector<StateArray> arrays() override { return parts; }
  void save(std::ostream& out) const override {
    if (saves) saves(out);
  }
  void load(std::istream& in) override {
    if (loads) loads(in);
  }
};

std::string refusal_of(std::vector<StateArray> parts) {
  Program program;
  program.parts = std::move(parts);
  try {
    const StateArrays arrays(program);
  } catch (const Error& error) {
    CHECK(error.status() == Status::kInvalidArgument);
    return error.message();
  }
  return "";
}

float some_memory[64];

TEST_CASE("arrays of one name, without memory, of an unknown type or an impossible shape are refused by name") {
  const StateArray good{"layers.0/w:1", DType::kF32, {2, 3}, some_memory};
  CHECK(refusal_of({good}).empty());
  CHECK(refusal_of({good, good}) == "TrainingState::arrays: two arrays have the name 'layers.0/w:1'");
  for (const char* name : {"", "two words", "line\n", "\x1b[31m"}) {
    StateArray bad = good;
    bad.name = name;
    CHECK(refusal_of({bad}).find("is not a valid array name; allowed: letters, digits and .-_/:") != std::string::npos);
  }
  CHECK(refusal_of({{"w", DType::kF32, {2}, nullptr}}) == "TrainingState::arrays: 'w' has no memory: its data is NULL");
  CHECK(refusal_of({{"w", DType::kF32, {0, 7}, nullptr}}).empty());
  CHECK(refusal_of({{"w", static_cast<DType>(99), {2}, some_memory}}).find("'w' has the unknown type 99") !=
        std::string::npos);
  CHECK(refusal_of({{"w", DType::kF32, {2, -1}, some_memory}}).find("negative length -1") != std::string::npos);
  CHECK(refusal_of({{"w", DType::kF64, {INT64_MAX, 2}, some_memory}}).find("does not fit memory") != std::string::npos);
}

TEST_CASE("a program whose arrays change, and a snapshot of others, are told the first difference") {
  Program program;
  program.parts = {{"w", DType::kF32, {4, 2}, some_memory}, {"steps", DType::kI64, {}, some_memory}};
  const StateArrays arrays(program);
  CHECK(arrays.layout() == "w f32[4,2]\nsteps i64[]\n");
  const auto difference = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      CHECK(error.status() == Status::kFailedPrecondition);
      return error.message();
    }
    return std::string();
  };
  CHECK(difference([&] { arrays.require(arrays.layout(), "the snapshot"); }).empty());
  CHECK(difference([&] { arrays.require("w f32[4,3]\nsteps i64[]\n", "the snapshot"); }) ==
        "the state has other arrays: array 1 is w f32[4,2] in this program, w f32[4,3] in the snapshot");
  CHECK(difference([&] { arrays.require("w f32[4,2]\n", "rank 0"); }) ==
        "the state has other arrays: array 2 is steps i64[] in this program, none in rank 0");
  program.parts[1].data = some_memory + 8;  // memory may move
  CHECK(arrays.now()[1].data == some_memory + 8);
  CHECK(difference([&] { arrays.require_unchanged(); }).empty());
  program.parts[1].dtype = DType::kF64;
  CHECK(difference([&] { arrays.require_unchanged(); }).find("steps f64[] in its current arrays") != std::string::npos);
  program.parts.pop_back();
  CHECK(difference([&] { arrays.require_unchanged(); }).find("none in its current arrays") != std::string::npos);
  program.parts[0].shape = {2, 2};
  CHECK(difference([&] { static_cast<void>(arrays.now()); }).find("w f32[2,2] in its current arrays") !=
        std::string::npos);
}

TEST_CASE("arrays of all sizes go into a stream and come back, through the host and where it is the device") {
  const Accelerator accelerator = test::open_host();
  Stream stream(accelerator, 0);
  // The second is larger than a chunk and no multiple of it.
  std::vector<double> small{1, 2, 3};
  std::vector<uint8_t> large(StateArrays::kChunkBytes * 2 + 12345);
  std::iota(large.begin(), large.end(), uint8_t{0});
  Program program;
  program.parts = {{"small", DType::kF64, {3}, small.data()},
                   {"none", DType::kF32, {0}, nullptr},
                   {"large", DType::kU8, {static_cast<int64_t>(large.size())}, large.data()}};
  const StateArrays arrays(program);
  const auto small_before = small;
  const auto large_before = large;
  Staging through_host(accelerator, StateArrays::kChunkBytes);
  for (Staging* const staging : {static_cast<Staging*>(nullptr), &through_host}) {
    std::stringstream bytes;
    write_arrays(arrays, bytes, stream, staging);
    CHECK(bytes.str().size() == 3 * sizeof(double) + large.size());
    small.assign(3, 0);
    large.assign(large.size(), 0);
    read_arrays(arrays, bytes, stream, staging);
    CHECK(small == small_before);
    CHECK(large == large_before);
  }
}

TEST_CASE("arrays are copied to the ranks that take them, and to no other") {
  const Accelerator accelerator = test::open_host();
  std::vector<std::vector<float>> weights(3, std::vector<float>(3'000'001));
  test::run_healthy_ranks(accelerator, 3, [&](int32_t rank, Communicator& group, Stream& stream) {
    std::vector<float>& own = weights[static_cast<size_t>(rank)];
    for (size_t i = 0; i < own.size(); ++i) own[i] = static_cast<float>(rank * 1000) + static_cast<float>(i % 997);
    Program program;
    program.parts = {{"w", DType::kF32, {static_cast<int64_t>(own.size())}, own.data()}};
    std::string rest = fmt::format("rest-{}", rank);
    program.saves = [&rest](std::ostream& out) { out << rest; };
    program.loads = [&rest](std::istream& in) { in >> rest; };
    const StateArrays arrays(program);
    SharedState state{rank + 7, fmt::format("rate {}", rank)};
    share_state(group, stream, accelerator, 0, 1, state, arrays, program, rank == 2);
    CHECK(state.step == 8);
    CHECK(state.lr_state == "rate 1");
    CHECK_FALSE(state.refusal);
    CHECK(rest == (rank == 0 ? "rest-0" : "rest-1"));
  });
  CHECK(weights[2] == weights[1]);
  CHECK(weights[0][5] == 5.0F);
  CHECK(weights[1][5] == 1005.0F);
}

TEST_CASE("ranks with other arrays than the donor's say so") {
  const Accelerator accelerator = test::open_host();
  std::vector<float> memory(8);
  const auto outcome = test::run_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
    Program program;
    program.parts = {{"w", DType::kF32, {rank == 0 ? 4 : 5}, memory.data()}};
    const StateArrays arrays(program);
    SharedState state;
    share_state(group, stream, accelerator, 0, 0, state, arrays, program, rank == 1);
  });
  REQUIRE(outcome[1]);
  try {
    std::rethrow_exception(outcome[1]);
  } catch (const Error& error) {
    CHECK(error.message() == "the state has other arrays: array 1 is w f32[5] in this program, w f32[4] in rank 0");
  }
}

// A rest of many pieces.
std::string large_rest() {
  std::string rest(5'000'003, ' ');
  for (size_t i = 0; i < rest.size(); ++i) rest[i] = static_cast<char>('a' + i * 7919 % 23);
  return rest;
}

TEST_CASE("what is no array is loaded while it is still being saved, front to back or wherever the program seeks") {
  const Accelerator accelerator = test::open_host();
  const std::string rest = large_rest();
  std::atomic<bool> begun{false};
  std::string got[4];
  test::run_healthy_ranks(accelerator, 4, [&](int32_t rank, Communicator& group, Stream& stream) {
    std::string& own = got[rank];
    Program program;
    program.saves = [&](std::ostream& out) {
      const size_t half = rest.size() / 2;
      out.write(rest.data(), static_cast<std::streamsize>(half));
      CHECK(out.tellp() == static_cast<std::streamoff>(half));
      begun.wait(false);  // whoever held it whole before it sends it would wait for ever
      out.write(rest.data() + half, static_cast<std::streamsize>(rest.size() - half));
    };
    program.loads = [&, rank](std::istream& in) {
      if (rank == 1) {  // front to back
        own.resize(rest.size());
        own[0] = static_cast<char>(in.get());
        begun = true;
        begun.notify_all();
        in.read(own.data() + 1, static_cast<std::streamsize>(own.size() - 1));
        CHECK(in.tellg() == static_cast<std::streamoff>(rest.size()));
        return;
      }
      in.seekg(0, std::ios_base::end);  // as archives are read
      own.resize(static_cast<size_t>(in.tellg()));
      in.seekg(4'000'000);
      in.read(own.data() + 4'000'000, 1'000'003);
      in.seekg(0);
      in.read(own.data(), 4'000'000);
      in.seekg(0, std::ios_base::end);
      CHECK(in.good());
    };
    const StateArrays arrays(program);
    SharedState state;
    share_state(group, stream, accelerator, 0, 0, state, arrays, program, rank == 1 || rank == 2);
    CHECK_FALSE(state.refusal);
  });
  CHECK(got[1] == rest);
  CHECK(got[2] == rest);
  CHECK(got[3].empty());
}

TEST_CASE(
    "a program that leaves a part of the rest unread, goes back too far or throws is told so, and the others go on") {
  const Accelerator accelerator = test::open_host();
  const std::string rest = large_rest();
  std::string refusals[4];
  test::run_healthy_ranks(accelerator, 4, [&](int32_t rank, Communicator& group, Stream& stream) {
    Program program;
    program.saves = [&](std::ostream& out) { out << rest; };
    program.loads = [&, rank](std::istream& in) {
      std::string own(rest.size() - (rank == 1 ? 1 : 0), ' ');
      in.read(own.data(), static_cast<std::streamsize>(own.size()));
      if (rank == 2) throw std::runtime_error("it is damaged");
      if (rank == 3) CHECK(in.seekg(5).fail());
    };
    float weight = static_cast<float>(rank);
    program.parts = {{"w", DType::kF32, {}, &weight}};
    const StateArrays arrays(program);
    SharedState state{rank, ""};
    share_state(group, stream, accelerator, 0, 0, state, arrays, program, rank > 0);
    CHECK(state.step == 0);
    CHECK(weight == 0);
    try {
      if (state.refusal) std::rethrow_exception(state.refusal);
    } catch (const std::exception& refusal) {
      refusals[rank] = refusal.what();
    }
  });
  CHECK(refusals[0].empty());
  CHECK(refusals[1].find("this program did not read all of its saved state") == 0);
  CHECK(refusals[2] == "it is damaged");
  CHECK(refusals[3].empty());
}

TEST_CASE("where the save of the rank that gives its state away fails, no load takes what has come for all") {
  const Accelerator accelerator = test::open_host();
  const std::string rest = large_rest();
  for (const size_t given : {size_t{0}, rest.size() / 2}) {
    CAPTURE(given);
    std::atomic<int> ends{0};
    const auto outcome = test::run_ranks(accelerator, 3, [&](int32_t rank, Communicator& group, Stream& stream) {
      Program program;
      program.saves = [&](std::ostream& out) {
        out.write(rest.data(), static_cast<std::streamsize>(given));
        throw std::runtime_error("the disk is full");
      };
      program.loads = [&, rank](std::istream& in) {
        if (rank == 1) {  // as the languages do that take all at once
          const std::string all{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
          ++ends;
        }
        std::string all(rest.size(), ' ');
        in.read(all.data(), static_cast<std::streamsize>(all.size()));
        if (!in.bad()) ++ends;
      };
      const StateArrays arrays(program);
      SharedState state;
      share_state(group, stream, accelerator, 0, 0, state, arrays, program, rank > 0);
      ++ends;
    });
    CHECK(ends == 0);
    for (const std::exception_ptr& how : outcome) CHECK(how != nullptr);
  }
}

}  // namespace
}  // namespace pliant::elastic
