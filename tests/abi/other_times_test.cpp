// Extensions of plugins that were built against older headers, and of such against longer ones, as core uses them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/instances.hpp"
#include "data/epoch_plan.hpp"
#include "data/packing.hpp"
#include "pliant/accelerator.hpp"
#include "pliant/communicator.hpp"
#include "pliant/config.hpp"
#include "pliant/optimizer.hpp"
#include "plugin/plugin.hpp"
#include "scratch_folder.hpp"

using namespace pliant;

namespace {

/// The sampler `streaming` of the plugins in `folder`, with its stream or without.
struct Opened {
  Opened(const test::ScratchFolder& scratch, const std::string& folder, bool streams)
      : instance(or_throw(config::instantiate(config_of(scratch, folder), "sampler"))) {
    sampler.name = "sampler 'streaming'";
    sampler.slots = &instance.table<pliant_batch_sampler>();
    sampler.self = instance.self();
    sampler.refusal = [this](int32_t status, const pliant_error& error) {
      return plugin::to_error(instance.plugin(), status, error);
    };
    sampler.save = [this] { return instance.save(); };
    sampler.load = [this](std::string_view saved) { return instance.load(saved); };
    if (streams) sampler.stream = or_throw(instance.extension<pliant_row_stream>(PLIANT_ROW_STREAM));
  }
  static Config config_of(const test::ScratchFolder& scratch, const std::string& folder) {
    std::ofstream(scratch / "pliant.toml") << "config_version = 1\n[sampler]\nuse = \"streaming\"\n"
                                              "[sampler.streaming]\nmax_tokens = 60\nopen_packs = 4\n";
    const ConfigNeeds needs{"sampler"};
    ConfigOverrides overrides;
    overrides.plugin_dirs = {folder};
    overrides.read_environment = false;
    return Config::open(scratch / "pliant.toml", needs, overrides);
  }
  plugin::Instance instance;
  data::Sampler sampler;
};

Config host_config(const std::string& folder) {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {folder};
  overrides.read_environment = false;
  return Config::parse("config_version = 1\n[accelerator]\nuse = \"host\"\n", {"accelerator"}, overrides);
}
Accelerator host_of(const std::string& folder) {
  return Accelerator(host_config(folder));
}

/// What one of three ranks has gathered and received of pieces, in a group or not.
std::vector<float> pieces_of_rank(const Accelerator& accelerator, const CommId& id, int32_t rank, bool in_group) {
  Communicator comm(accelerator, 0, id, rank, 3);
  Stream stream(accelerator, 0);
  const std::vector<ArrayPiece> pieces{{2, 0, 2}, {0, 3, 1}, {1, 4, 0}, {2, 4, 1}};
  const auto own = static_cast<float>(10 * rank);
  const std::vector<float> packed{own, own + 1, own + 2};
  const std::vector<float> whole{own, own + 1, own + 2, own + 3, own + 4};
  std::vector<float> gathered(6, -1.0F);
  std::vector<float> received(6, -1.0F);
  if (in_group) comm.begin_group();
  comm.gather_pieces(packed.data(), gathered.data(), pieces, DType::kF32, stream);
  comm.scatter_pieces(rank == 1 ? nullptr : whole.data(), received.data(), pieces, {true, false, true}, DType::kF32,
                      stream);
  if (in_group) comm.end_group();
  stream.synchronize();
  gathered.insert(gathered.end(), received.begin(), received.end());
  return gathered;
}

Dataset some_dataset() {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 3000; ++i) lengths.push_back(1 + i * 7919 % 59);
  return {std::move(lengths), {}};
}

}  // namespace

TEST_CASE("rows on demand and what they fill are the same from samplers built against older or longer headers") {
  const test::ScratchFolder scratch;
  const Dataset dataset = some_dataset();
  for (const std::string when : {"earlier", "later"}) {
    CAPTURE(when);
    const std::string folder = fmt::format("{}/{}-plugins", PLIANT_PLUGINS_OF_OTHER_TIMES, when);
    Opened todays(scratch, PLIANT_PLUGIN_DIR, false);
    Opened other(scratch, folder, true);
    REQUIRE(other.instance.plugin().file().string().find(when) != std::string::npos);
    REQUIRE(other.sampler.stream != nullptr);
    auto planned = or_throw(data::EpochPlan::make(todays.sampler, {1, 2, 4, dataset}));
    auto streamed = or_throw(data::EpochPlan::make(other.sampler, {1, 2, 4, dataset}));
    CHECK(streamed.facts().digest == planned.facts().digest);
    const auto rows = static_cast<uint64_t>(planned.summary().rows);
    for (const uint64_t first : {rows - 10, uint64_t{0}, rows / 2}) {
      const Batch one = or_throw(streamed.cut(0, first, 10));
      const Batch wanted = or_throw(planned.cut(0, first, 10));
      CHECK(one.ids == wanted.ids);
      CHECK(one.offsets == wanted.offsets);
    }

    Opened whole(scratch, folder, false);
    static_cast<void>(or_throw(data::EpochPlan::make(whole.sampler, {1, 2, 4, dataset})));
    const auto filled = [](const Opened& opened) {
      const auto* table = or_throw(opened.instance.extension<pliant_packing>(PLIANT_PACKING));
      REQUIRE(table != nullptr);
      return or_throw(data::packing_of(opened.sampler, table));
    };
    CHECK(filled(whole).budget == 60);
    CHECK(filled(whole).used == filled(todays).used);
    CHECK(filled(whole).least_rows == filled(todays).least_rows);
  }
}

TEST_CASE("arrays of pieces go by messages where the accelerator is older than collectives of them") {
  for (const std::string when : {"earlier", "later"}) {
    CAPTURE(when);
    const Accelerator accelerator = host_of(fmt::format("{}/{}-plugins", PLIANT_PLUGINS_OF_OTHER_TIMES, when));
    for (const bool in_group : {false, true}) {
      CAPTURE(in_group);
      const CommId id = accelerator.make_comm_id(3);
      std::vector<std::vector<float>> found(3);
      std::vector<std::thread> others;
      for (size_t rank = 1; rank < 3; ++rank) {
        others.emplace_back(
            [&, rank] { found[rank] = pieces_of_rank(accelerator, id, static_cast<int32_t>(rank), in_group); });
      }
      found[0] = pieces_of_rank(accelerator, id, 0, in_group);
      for (std::thread& other : others) other.join();
      CHECK(found[0] == std::vector<float>{20, 21, -1, 0, 22, -1, -1, 23, -1, -1, -1, -1});
      CHECK(found[1] == std::vector<float>{20, 21, -1, 0, 22, -1, -1, -1, -1, -1, -1, -1});
      CHECK(found[2] == std::vector<float>{20, 21, -1, 0, 22, -1, 0, 1, 4, -1, -1, -1});
    }
    const CommId id = accelerator.make_comm_id(1);
    Communicator alone(accelerator, 0, id, 0, 1);
    Stream stream(accelerator, 0);
    float one = 0;
    const std::vector<ArrayPiece> descending{{0, 1, 1}, {0, 0, 1}};
    CHECK_THROWS_AS(alone.gather_pieces(&one, &one, descending, DType::kF32, stream), Error);
    const std::vector<ArrayPiece> stranger{{1, 0, 1}};
    CHECK_THROWS_AS(alone.scatter_pieces(&one, &one, stranger, {true}, DType::kF32, stream), Error);
    CHECK_THROWS_AS(alone.scatter_pieces(&one, &one, {}, {}, DType::kF32, stream), Error);
  }
}

TEST_CASE("updates of AdamW and norms have the bits of the CPU on accelerators built against older or longer headers") {
  constexpr size_t kCount = 2500;
  constexpr uint64_t kBytes = kCount * sizeof(float);
  const auto value = [](size_t array, size_t i) {
    return static_cast<float>((i * 7919 + array * 131) % 2003) / 2003.0F - (array == 3 ? 0.0F : 0.5F);
  };
  const auto as_arrays = [](auto& all) {
    return AdamWArrays{static_cast<float*>(all[0].pointer()), static_cast<float*>(all[1].pointer()),
                       static_cast<float*>(all[2].pointer()), static_cast<float*>(all[3].pointer()), kCount};
  };
  const AdamWUpdate update{0.37F, 0.9F, 0.95F, 3.1e-3F, 1.7F, 1e-8F, 1e-4F};
  for (const std::string when : {"earlier", "later"}) {
    CAPTURE(when);
    const std::string folder = fmt::format("{}/{}-plugins", PLIANT_PLUGINS_OF_OTHER_TIMES, when);
    const auto instance = or_throw(config::instantiate(host_config(folder), "accelerator"));
    CHECK(or_throw(instance.extension<pliant_optimizer>(PLIANT_OPTIMIZER)) != nullptr);
    const Accelerator accelerator(host_config(folder));
    Stream stream(accelerator, 0);
    std::vector<Buffer> there;
    std::vector<Buffer> expected;
    for (size_t array = 0; array < 4; ++array) {
      for (std::vector<Buffer>* const all : {&there, &expected}) {
        all->emplace_back(accelerator, 0, kBytes);
        for (size_t i = 0; i < kCount; ++i) static_cast<float*>(all->back().pointer())[i] = value(array, i);
      }
    }
    const Buffer norms(accelerator, 0, norm_chunks(kCount) * sizeof(double));
    adamw(stream, update, as_arrays(there));
    squared_norms(stream, static_cast<double*>(norms.pointer()), static_cast<const float*>(there[0].pointer()), kCount);
    stream.synchronize();
    adamw(update, as_arrays(expected));
    for (size_t array = 0; array < 4; ++array)
      CHECK(std::memcmp(there[array].pointer(), expected[array].pointer(), kBytes) == 0);
    CHECK(static_cast<const float*>(there[0].pointer())[7] != value(0, 7));
    std::vector<double> of_cpu(norm_chunks(kCount));
    squared_norms(of_cpu.data(), static_cast<const float*>(there[0].pointer()), kCount);
    CHECK(std::memcmp(of_cpu.data(), norms.pointer(), norms.bytes()) == 0);
  }
}
