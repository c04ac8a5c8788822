// A weight of a sharded model between two visits. CHECK is a macro of c10 here.
#include "seat.hpp"

#include <ATen/ops/linear.h>
#include <c10/util/Exception.h>
#include <doctest/doctest.h>

#include <array>

using namespace tinylm;

TEST_CASE("a weight that was left cannot be read, in a graph that saved it neither, until it is whole again") {
  std::array<float, 2> first{2, 3};
  Seat seat(pliant::ParameterId{0}, {1, 2});
  CHECK_THROWS_AS(seat.leaf.data_ptr<float>(), c10::Error);
  std::array<float, 2> given{5, 7};
  const at::Tensor in = at::from_blob(given.data(), {1, 2}).set_requires_grad(true);
  seat.sit_at(first.data());
  const at::Tensor out = at::linear(in, seat.leaf);
  DOCTEST_CHECK(out.item<float>() == 2 * 5 + 3 * 7);

  seat.stand_up();
  CHECK_THROWS_AS(static_cast<void>(at::linear(in, seat.leaf)), c10::Error);
  CHECK_THROWS_AS(out.backward({}, true), c10::Error);

  std::array<float, 2> second = first;
  std::array<float, 2> gradient{};
  first = {100, 100};
  seat.sit_at(second.data());
  seat.add_gradient_to(gradient.data());
  out.backward();
  DOCTEST_CHECK(in.grad()[0][1].item<float>() == 3);
  DOCTEST_CHECK(gradient == given);
  seat.stand_up();
  DOCTEST_CHECK(!seat.leaf.grad().defined());
}
