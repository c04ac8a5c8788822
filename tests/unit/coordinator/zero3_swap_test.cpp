// Shards on a tier: what is loaded ahead, and where fetching ahead stops. Rows by hand, from the rules of DeepSpeed's
// __prefetch_nvme_param_partitions: twice the elements on their way, as many shards as there are free buffers.
#include <doctest/doctest.h>

#include "program.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

Program on_nvme(int64_t buffers, int64_t bucket, const sdk::Model& model, bool strict = false) {
  nlohmann::json options = zero3_options(strict);
  options["prefetch_bucket_size"] = bucket;
  options["offload_param_device"] = "nvme";
  options["offload_param_buffer_count"] = buffers;
  return {"zero3", options, model};
}

}  // namespace

TEST_CASE("without a tier nothing is loaded") {
  nlohmann::json options = zero3_options(false);
  options["prefetch_bucket_size"] = 100;
  Program program("zero3", options, layered({{10}, {10}}));
  program.pass({1, 2});
  program.begin_pass();
  CHECK(program.enter(0) == Words{"prefetch 0", "prefetch 1"});
}

TEST_CASE("a shard on the tier is loaded before the gather that a visit needs") {
  Program program = on_nvme(5, 100, layered({{10}, {10}}));
  program.begin_pass();
  CHECK(program.enter(1) == Words{"load 0", "gather 0", "wait 0"});
}

TEST_CASE("fetching ahead stops at the first shard on the tier, which alone is loaded while nothing is on its way") {
  Program program = on_nvme(5, 100, layered({{10}, {10}, {10}, {10}}));
  program.pass({1, 2, 3, 4});
  program.begin_pass();
  CHECK(program.enter(0) == Words{"load 0"});
  CHECK(program.counts().ahead == 8);
}

TEST_CASE("as many shards are loaded as there are free buffers, and a release frees one") {
  Program program = on_nvme(2, 100, layered({{10}, {10}, {10}, {10}, {10}}));
  program.pass({1, 2, 3, 4, 5});
  program.begin_pass();
  CHECK(program.enter(0) == Words{"load 0"});
  program.leave(0);
  // Layer 1 was loaded: it is gathered without a load, and fetching ahead stops at layer 2, whose shard is away.
  CHECK(program.enter(1) == Words{"gather 0", "wait 0", "load 1"});
  CHECK(program.leave(1) == Words{"release 0"});
}

TEST_CASE(
    "a shard that is loaded is fetched ahead, and while twice its elements are looked at the next ones are loaded") {
  Program program = on_nvme(9, 10, layered({{10}, {0}, {10}, {10}, {10}}), true);
  program.pass({1, 2, 3, 4, 5});
  program.begin_pass();
  program.enter(0);
  program.leave(0);
  // A parameter without elements is loaded and does not count: the one after it is loaded, too.
  CHECK(program.enter(1) == Words{"gather 0", "wait 0", "load 1", "load 2"});
  program.leave(1);
  CHECK(program.enter(2) == Words{"gather 1", "wait 1", "prefetch 2", "load 3", "load 4"});
}
