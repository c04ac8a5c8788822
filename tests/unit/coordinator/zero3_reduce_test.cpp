// When complete gradients leave: in buckets, a full one at once, the rest with the pass.
#include <doctest/doctest.h>

#include "program.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

Program with_bucket(int64_t elements, const sdk::Model& model) {
  nlohmann::json options = zero3_options(false);
  options["reduce_bucket_size"] = elements;
  return {"zero3", options, model};
}

/// The reductions of leaving `module` in backward.
std::vector<std::vector<uint32_t>> reduced(Program& program, uint32_t module, const std::vector<uint32_t>& complete) {
  program.enter(module, true);
  std::vector<std::vector<uint32_t>> groups;
  program.leave(module, true, false, complete);
  return program.groups();
}

using Groups = std::vector<std::vector<uint32_t>>;

}  // namespace

TEST_CASE("a bucket leaves as one group before the gradient that would not fit, and the rest with the pass") {
  Program program = with_bucket(25, layered({{10}, {10}, {10}}));
  program.begin_pass();
  CHECK(reduced(program, 3, {2}).empty());
  CHECK(reduced(program, 2, {1, 2}).empty());
  CHECK(reduced(program, 1, {0, 1, 2}) == Groups{{2, 1}});
  CHECK(program.end_pass() == Words{"reduce 0"});
}

TEST_CASE("a bucket that is full leaves at once, and a gradient above its size leaves alone") {
  Program program = with_bucket(20, layered({{50}, {10}, {10}}));
  program.begin_pass();
  CHECK(reduced(program, 3, {2}).empty());
  CHECK(reduced(program, 2, {1, 2}) == Groups{{2, 1}});
  CHECK(reduced(program, 1, {0}) == Groups{{0}});
  CHECK(program.end_pass().empty());
}

TEST_CASE("a gradient that waits in a bucket is told again and reduced once") {
  Program program = with_bucket(1000, layered({{10}, {10}}));
  program.begin_pass();
  CHECK(reduced(program, 2, {1}).empty());
  CHECK(reduced(program, 2, {1}).empty());
  CHECK(reduced(program, 1, {0, 1}).empty());
  CHECK(program.end_pass() == Words{"reduce 1", "reduce 0"});
}

TEST_CASE("gradients of a pass that was given up leave with no later one") {
  Program program = with_bucket(1000, layered({{10}, {10}}));
  program.begin_pass();
  CHECK(reduced(program, 2, {1}).empty());
  program.end_step();
  program.begin_pass();
  CHECK(reduced(program, 1, {0}).empty());
  CHECK(program.end_pass() == Words{"reduce 0"});
}

TEST_CASE("a bucket whose size is not set has an eighth of what is trained, so that no whole gradient is ever there") {
  sdk::Model model =
      layered({{1000}, {10}, {10}, {10}, {10}, {10}, {10}, {10}, {10}, {10}, {10}, {10}, {10}, {10}, {10}, {10}, {10}});
  model.parameters[0].frozen = true;
  Program program("zero3", zero3_options(false), model);
  program.begin_pass();
  CHECK(reduced(program, 17, {16}).empty());
  CHECK(reduced(program, 16, {15, 16}) == Groups{{16, 15}});
  CHECK(reduced(program, 15, {14}).empty());
  CHECK(program.end_pass() == Words{"reduce 14"});
}

TEST_CASE("without a size that is set the gradients of a model with hardly any elements leave one by one") {
  Program program("zero3", zero3_options(false), layered({{1}, {2}}));
  program.begin_pass();
  CHECK(reduced(program, 2, {1}) == Groups{{1}});
  CHECK(reduced(program, 1, {0}) == Groups{{0}});
  CHECK(program.end_pass().empty());
}

TEST_CASE("a size that is set stays, also DeepSpeed's for a model that is smaller") {
  Program program = with_bucket(500000000, layered({{10}, {10}}));
  program.begin_pass();
  CHECK(reduced(program, 2, {1}).empty());
  CHECK(reduced(program, 1, {0, 1}).empty());
  CHECK(program.end_pass() == Words{"reduce 1", "reduce 0"});
}
