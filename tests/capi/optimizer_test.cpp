// AdamW and squared norms in C: the bits of the C++ functions, on the CPU and on a stream, over the whole and over
// shards.
#include "pliant/optimizer.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "c_handles.hpp"

using namespace pliant::test;

namespace {

constexpr size_t kFloats = 3000;  // three chunks, the last one short

std::vector<float> some_floats(uint32_t seed) {
  std::vector<float> made(kFloats);
  for (float& value : made) {
    seed = seed * 1664525U + 1013904223U;
    value = static_cast<float>(seed % 20011) / 20011.0F - 0.5F;
  }
  return made;
}

/// What an update works on.
struct Weights {
  std::vector<float> weights = some_floats(1);
  std::vector<float> gradient = some_floats(2);
  std::vector<float> first = some_floats(3);
  std::vector<float> second = std::vector<float>(kFloats, 0.25F);
  bool operator==(const Weights&) const = default;

  /// Of elements [begin, begin + count).
  pliant_adamw_t update(size_t begin = 0, size_t count = kFloats) {
    pliant_adamw_t made = PLIANT_INIT(pliant_adamw_t);
    made.gradient_scale = 0.5F;
    made.beta1 = 0.9F;
    made.beta2 = 0.99F;
    made.rate = 0.01F;
    made.correction = 1.5F;
    made.epsilon = 1e-8F;
    made.decay = 0.001F;
    made.weights = weights.data() + begin;
    made.gradient = gradient.data() + begin;
    made.first_moment = first.data() + begin;
    made.second_moment = second.data() + begin;
    made.count = count;
    return made;
  }
};

Weights updated_by_cpp() {
  Weights made;
  pliant::adamw({0.5F, 0.9F, 0.99F, 0.01F, 1.5F, 1e-8F, 0.001F},
                {made.weights.data(), made.gradient.data(), made.first.data(), made.second.data(), kFloats});
  return made;
}

}  // namespace

TEST_CASE("an AdamW update in C has the bits of one in C++, whole, in shards and on a stream") {
  const Weights expected = updated_by_cpp();
  Weights whole;
  CHECK(whole != expected);
  const pliant_adamw_t update = whole.update();
  REQUIRE(pliant_adamw(&update, nullptr) == PLIANT_OK);
  CHECK(whole == expected);

  Weights shards;
  for (const size_t begin : {size_t{0}, size_t{7}, size_t{2000}}) {
    const size_t end = begin == 0 ? 7 : begin == 7 ? 2000 : kFloats;
    const pliant_adamw_t part = shards.update(begin, end - begin);
    REQUIRE(pliant_adamw(&part, nullptr) == PLIANT_OK);
  }
  CHECK(shards == expected);

  const OwnedAccelerator accelerator = host();
  const OwnedStream stream = stream_on(accelerator);
  Weights streamed;
  const pliant_adamw_t on_stream = streamed.update();
  REQUIRE(pliant_stream_adamw(stream.get(), &on_stream, nullptr) == PLIANT_OK);
  REQUIRE(pliant_stream_synchronize(stream.get(), nullptr) == PLIANT_OK);
  CHECK(streamed == expected);
}

TEST_CASE("an AdamW update in C over arrays that overlap or are NULL is refused and changes nothing") {
  Weights weights;
  const Weights before = weights;
  pliant_adamw_t update = weights.update();
  update.first_moment = weights.second.data() + 1;
  CHECK(pliant_adamw(&update, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(last_message() == "first_moment and second_moment overlap");
  update = weights.update();
  update.gradient = nullptr;
  CHECK(pliant_adamw(&update, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(last_message() == "gradient is NULL");
  update = weights.update();
  update.count = UINT64_MAX;
  CHECK(pliant_adamw(&update, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_adamw(nullptr, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(weights == before);
  update = weights.update(0, 0);
  update.weights = nullptr;
  CHECK(pliant_adamw(&update, nullptr) == PLIANT_OK);  // of nothing
}

TEST_CASE("a squared norm in C has the bits of one in C++, of one array, of several, and from chunks of any rank") {
  const std::vector<float> values = some_floats(9);
  const std::vector<uint64_t> parts{1500, 0, 1500};
  double one = 0;
  double several = 0;
  REQUIRE(pliant_squared_norm(values.data(), kFloats, nullptr, 0, &one, nullptr) == PLIANT_OK);
  CHECK(one == pliant::squared_norm(values));
  REQUIRE(pliant_squared_norm(values.data(), kFloats, parts.data(), parts.size(), &several, nullptr) == PLIANT_OK);
  CHECK(several == pliant::squared_norm(values, parts));

  std::vector<double> chunks(3);
  REQUIRE(pliant_squared_norms(chunks.data(), values.data(), PLIANT_FLOATS_OF_NORM, nullptr) == PLIANT_OK);
  REQUIRE(pliant_squared_norms(chunks.data() + 1, values.data() + PLIANT_FLOATS_OF_NORM,
                               kFloats - PLIANT_FLOATS_OF_NORM, nullptr) == PLIANT_OK);
  double sum = 0;
  REQUIRE(pliant_sum_of_norms(chunks.data(), chunks.size(), &sum, nullptr) == PLIANT_OK);
  CHECK(sum == one);
  REQUIRE(pliant_sum_of_norms(nullptr, 0, &sum, nullptr) == PLIANT_OK);
  CHECK(sum == 0);

  const OwnedAccelerator accelerator = host();
  const OwnedStream stream = stream_on(accelerator);
  double streamed = 0;
  REQUIRE(pliant_stream_squared_norm(stream.get(), values.data(), kFloats, parts.data(), parts.size(), &streamed,
                                     nullptr) == PLIANT_OK);
  CHECK(streamed == several);
  std::vector<double> on_stream(3);
  REQUIRE(pliant_stream_squared_norms(stream.get(), on_stream.data(), values.data(), kFloats, nullptr) == PLIANT_OK);
  REQUIRE(pliant_stream_synchronize(stream.get(), nullptr) == PLIANT_OK);
  CHECK(on_stream == chunks);
}

TEST_CASE("a squared norm in C of parts that are not all of the array is refused") {
  const std::vector<float> values = some_floats(9);
  const std::vector<uint64_t> few{1500};
  const std::vector<uint64_t> many{2000, 2000};
  double norm = -1;
  CHECK(pliant_squared_norm(values.data(), kFloats, few.data(), 1, &norm, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_squared_norm(values.data(), kFloats, many.data(), 2, &norm, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_squared_norm(nullptr, kFloats, nullptr, 0, &norm, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_squared_norms(nullptr, values.data(), kFloats, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(norm == -1);
}
