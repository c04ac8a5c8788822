// The state of our samplers: their options, since everything else follows from the request.
#include <doctest/doctest.h>

#include "sampler_plugin.hpp"

namespace state_test {

using namespace pliant;
using namespace pliant::test;

TEST_CASE("a sampler loads its own state, and saves the same bytes again") {
  const std::map<std::string, OptionMap> made{{"seqlen", {{"max_tokens", int64_t{64}}}},
                                              {"fixed", {{"order", "random"}}},
                                              {"next_fit", {{"max_tokens", int64_t{64}}}},
                                              {"best_fit", {{"max_tokens", int64_t{64}}}},
                                              {"streaming", {{"max_tokens", int64_t{64}}}},
                                              {"concat", {{"max_tokens", int64_t{64}}}},
                                              {"padded_budget", {{"max_tokens", int64_t{64}}}},
                                              {"bucketed", {{"max_tokens", int64_t{64}}}},
                                              {"rows", {{"order", "random"}}}};
  for (const auto& one : made) {
    const std::string& name = one.first;
    const OptionMap& options = one.second;
    CAPTURE(name);
    OpenedSampler writer(name, options);
    const std::string saved = or_throw(writer.instance().save());
    OpenedSampler reader(name, options);
    CHECK(reader.instance().load(saved).has_value());
    CHECK(or_throw(reader.instance().save()) == saved);
  }
}

TEST_CASE("a state saved with other options is refused with both sets of options") {
  OpenedSampler writer("seqlen", {{"max_tokens", int64_t{64}}});
  OpenedSampler reader("seqlen", {{"max_tokens", int64_t{65}}});
  const auto loaded = reader.instance().load(or_throw(writer.instance().save()));
  REQUIRE_FALSE(loaded.has_value());
  CHECK(loaded.error().status() == Status::kFailedPrecondition);
  CHECK(loaded.error().message().find("max_tokens = 64") != std::string::npos);
  CHECK(loaded.error().message().find("max_tokens = 65") != std::string::npos);
}

TEST_CASE("every truncation, every flipped byte and left-over bytes of a state are refused") {
  OpenedSampler sampler("seqlen", {{"max_tokens", int64_t{64}}});
  const std::string saved = or_throw(sampler.instance().save());
  for (size_t size = 0; size < saved.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(sampler.instance().load(saved.substr(0, size)).has_value());
    std::string flipped = saved;
    flipped[size] = static_cast<char>(flipped[size] ^ 0x40);
    CHECK_FALSE(sampler.instance().load(flipped).has_value());
  }
  CHECK_FALSE(sampler.instance().load(saved + "x").has_value());
  OpenedSampler other("fixed", {});
  CHECK(other.instance().load(saved).error().status() == Status::kDataLoss);
}

}  // namespace state_test
