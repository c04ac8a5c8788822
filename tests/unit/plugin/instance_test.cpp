// Instances: made, used, saved, loaded, moved; and the library that stays as long as one of them lives.
#include <doctest/doctest.h>

#include <fstream>
#include <optional>
#include <string>

#include "pliant/sdk/failure.hpp"
#include "unit/plugin/probe.hpp"

using pliant::Origin;
using pliant::Result;
using pliant::Status;
using pliant::plugin::Instance;
using pliant::plugin::Plugin;
using pliant::test::make_probe;
using pliant::test::open_probe;

namespace {

bool probe_is_mapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("lr-probe.pliant.so") != std::string::npos) return true;
  }
  return false;
}

double scale(const Instance& instance, double base_lr) {
  const pliant_lr_output before{sizeof(pliant_lr_output), 0, base_lr, base_lr, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  pliant_lr_input input{};
  input.struct_size = sizeof(input);
  input.base_lr = base_lr;
  input.base_batch = input.batch = 1;
  input.previous = &before;
  pliant_lr_output output = before;
  pliant_error error = pliant::plugin::fresh_error();
  REQUIRE(instance.table<pliant_lr_rule>().scale(instance.self(), &input, &output, &error) == PLIANT_OK);
  return output.lr;
}

}  // namespace

TEST_CASE("the record of an opened plugin is readable, and its options are in order") {
  const auto probe = open_probe();
  CHECK(probe->record().name == std::string("probe"));
  CHECK(probe->kind().section == "lr");
  REQUIRE(probe->options().size() == 2);
  CHECK(probe->options()[0].key == std::string("loud"));
  CHECK(probe->file().is_absolute());
}

TEST_CASE("the library stays loaded while an instance lives, and goes with the last one") {
  std::optional<Instance> first;
  {
    auto made = make_probe();
    REQUIRE(made);
    first.emplace(std::move(*made));
  }
  CHECK(probe_is_mapped());
  CHECK(scale(*first, 0.5) == 0.5);
  auto second = make_probe();
  REQUIRE(second);
  first.reset();
  CHECK(scale(*second, 0.25) == 0.25);
  second = pliant::failed(Status::kAborted, "gone");
  CHECK_FALSE(probe_is_mapped());
}

TEST_CASE("an instance that was moved from destroys nothing") {
  auto made = make_probe();
  REQUIRE(made);
  Instance moved(std::move(*made));
  Instance assigned = std::move(moved);
  CHECK(scale(assigned, 2.0) == 2.0);
  CHECK(moved.self() == nullptr);
}

TEST_CASE("state goes from one instance to another") {
  auto from = make_probe("kept");
  auto to = make_probe("other");
  REQUIRE((from && to));
  static_cast<void>(scale(*from, 1));
  const Result<std::string> saved = from->save();
  REQUIRE(saved);
  CHECK(to->load(*saved));
  CHECK(to->save().value() == *saved);
}

TEST_CASE("damaged state is refused and changes nothing") {
  auto probe = make_probe("kept");
  REQUIRE(probe);
  const std::string saved = probe->save().value();
  for (size_t length = 0; length < saved.size(); ++length) {
    const Result<> loaded = probe->load(std::string_view(saved).substr(0, length));
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().status() == Status::kDataLoss);
    CHECK(loaded.error().message().find("lr 'probe': the state") == 0);
  }
  CHECK_FALSE(probe->load(saved + "x"));
  CHECK(probe->save().value() == saved);
}

TEST_CASE("state that a plugin does not read to its end is refused, with the plugin's name") {
  auto probe = make_probe("hasty");
  REQUIRE(probe);
  const std::string saved = probe->save().value();
  CHECK(probe->load(saved));
  const Result<> loaded = probe->load(saved + "xy");
  REQUIRE_FALSE(loaded);
  CHECK(loaded.error().status() == Status::kDataLoss);
  CHECK(loaded.error().origin() == Origin::kPlugin);
  CHECK(loaded.error().message().find("lr 'probe' read only " + std::to_string(saved.size()) + " of the " +
                                      std::to_string(saved.size() + 2) + " bytes of its saved state") == 0);
}

TEST_CASE("the rank, the device and the options that a refusal is about are fields of the error") {
  const auto probe = open_probe();
  pliant_error error = pliant::plugin::fresh_error();
  CHECK(to_error(*probe, PLIANT_INTERNAL, error).rank() == -1);
  CHECK(to_error(*probe, PLIANT_INTERNAL, error).device() == -1);
  pliant::sdk::detail::set_error(&error,
                                 pliant::sdk::Failure(PLIANT_PEER_LOST, "gone", "port").about_rank(3).about_device(0));
  const pliant::Error told = to_error(*probe, PLIANT_PEER_LOST, error);
  CHECK(told.rank() == 3);
  CHECK(told.device() == 0);
  CHECK(told.options() == "port");
  CHECK_FALSE(told.is_located());
}

TEST_CASE("an error told in other words keeps what it is about, and its place only in front of its own") {
  pliant::Error error(Status::kPeerLost, "pliant.toml:3:1: error: rank 3 is lost", Origin::kPlugin);
  error.about("port").about_rank(3).about_device(1).set_findings({{"pliant.toml", 3, 1, "rank 3 is lost"}});
  const auto about_the_same = [](const pliant::Error& other) {
    CHECK(other.status() == Status::kPeerLost);
    CHECK(other.options() == "port");
    CHECK(other.rank() == 3);
    CHECK(other.device() == 1);
  };
  const pliant::Error again = error.with_message("the program lost rank 3");
  about_the_same(again);
  CHECK(again.message() == "the program lost rank 3");
  CHECK(again.origin() == Origin::kPlugin);
  CHECK_FALSE(again.is_located());
  const pliant::Error longer = error.with_lines("\n  help: start it again").with_origin(Origin::kInput);
  about_the_same(longer);
  CHECK(longer.message() == "pliant.toml:3:1: error: rank 3 is lost\n  help: start it again");
  CHECK(longer.origin() == Origin::kInput);
  CHECK(longer.is_located());
  CHECK(longer.findings() == error.findings());
}

TEST_CASE("a refusal in create carries the plugin's words and is a fault of the input") {
  const auto refused = make_probe("refuse");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message() == "lr 'probe': note must not be 'refuse'");
  CHECK(refused.error().origin() == Origin::kInput);
}

TEST_CASE("options are not read past what the host says there are") {
  const auto probe = open_probe();
  pliant::plugin::OptionValues none;
  const auto refused = Instance::create(probe, none);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message() == "lr 'probe': the host passed 0 option values for 2 options");
}

TEST_CASE(
    "statuses map to origins: the user's options to the input, the rest to the plugin, unknown ones to an internal "
    "error") {
  const auto probe = open_probe();
  const auto error_of = [&](int32_t status) { return to_error(*probe, status, pliant::plugin::fresh_error()); };
  for (const int32_t users :
       {PLIANT_INVALID_ARGUMENT, PLIANT_OUT_OF_RANGE, PLIANT_FAILED_PRECONDITION, PLIANT_INCOMPATIBLE_WORLD_SIZE}) {
    CHECK(error_of(users).origin() == Origin::kInput);
  }
  for (const int32_t plugins : {PLIANT_INTERNAL, PLIANT_RESOURCE_EXHAUSTED, PLIANT_DATA_LOSS, PLIANT_UNIMPLEMENTED}) {
    CHECK(error_of(plugins).origin() == Origin::kPlugin);
  }
  CHECK(error_of(-5).status() == Status::kInternal);
  CHECK(error_of(PLIANT_INTERNAL).message() == "lr 'probe': failed with status 7 and gave no message");
}

TEST_CASE("a message without an end or with control characters is shown safely") {
  const auto probe = open_probe();
  pliant_error error = pliant::plugin::fresh_error();
  for (char& c : error.message) c = 'x';
  CHECK(to_error(*probe, PLIANT_INTERNAL, error).message().size() ==
        std::string("lr 'probe': ").size() + sizeof(error.message));
  error = pliant::plugin::fresh_error();
  const std::string_view escape = "a\x1b[31mb\a";
  escape.copy(error.message, escape.size());
  CHECK(to_error(*probe, PLIANT_INTERNAL, error).message() == "lr 'probe': a [31mb ");
}
