// Extensions of a sampler that was built against older headers, and of one against longer ones, as core uses them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "config/instances.hpp"
#include "data/epoch_plan.hpp"
#include "data/packing.hpp"
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
    if (streams) sampler.stream = instance.extension<pliant_row_stream>(PLIANT_ROW_STREAM);
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
      const auto* table = opened.instance.extension<pliant_packing>(PLIANT_PACKING);
      REQUIRE(table != nullptr);
      return or_throw(data::packing_of(opened.sampler, table));
    };
    CHECK(filled(whole).budget == 60);
    CHECK(filled(whole).used == filled(todays).used);
    CHECK(filled(whole).least_rows == filled(todays).least_rows);
  }
}
