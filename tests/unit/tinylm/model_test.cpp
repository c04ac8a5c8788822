// The transformer: packs, gradients, reproducibility.
#include "model.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

using namespace tinylm;

namespace {

constexpr ModelShape kShape{40, 16, 2, 2, 200};

std::vector<Token> random_sequence(std::mt19937& random, size_t length) {
  std::vector<Token> tokens(length);
  for (Token& token : tokens) token = static_cast<Token>(random() % 40);
  return tokens;
}

std::vector<std::vector<Token>> random_pack(std::initializer_list<size_t> lengths, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<Token>> pack;
  for (const size_t length : lengths) pack.push_back(random_sequence(random, length));
  return pack;
}

std::vector<Sequence> views(const std::vector<std::vector<Token>>& pack) {
  return {pack.begin(), pack.end()};
}

double loss_alone(const Model& model, Sequence sequence) {
  return model.loss(std::span(&sequence, 1));
}

std::vector<float> copy(std::span<const float> values) {
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("the loss of a pack is the sum of its sequences' losses, whoever shares the pack") {
  const Model model(kShape, 1);
  const auto pack = random_pack({2, 30, 7, 150, 64, 3, 90, 12}, 5);
  double sum = 0;
  for (const auto& sequence : pack) sum += loss_alone(model, sequence);
  CHECK(model.loss(views(pack)) == doctest::Approx(sum).epsilon(1e-5));
}

TEST_CASE("changing one sequence of a pack does not change the loss of another") {
  const Model model(kShape, 1);
  auto pack = random_pack({20, 30, 25}, 6);
  const double others = loss_alone(model, pack[0]) + loss_alone(model, pack[2]);
  const double before = model.loss(views(pack)) - loss_alone(model, pack[1]);
  std::mt19937 random(99);
  for (Token& token : pack[1]) token = static_cast<Token>(random() % 40);
  const double after = model.loss(views(pack)) - loss_alone(model, pack[1]);
  CHECK(before == doctest::Approx(others).epsilon(1e-5));
  CHECK(after == doctest::Approx(others).epsilon(1e-5));
}

TEST_CASE("positions restart with each sequence: the order inside a pack does not matter") {
  const Model model(kShape, 1);
  const auto pack = random_pack({20, 30, 25}, 6);
  const auto turned = std::vector<std::vector<Token>>{pack[2], pack[0], pack[1]};
  CHECK(model.loss(views(pack)) == doctest::Approx(model.loss(views(turned))).epsilon(1e-6));
}

TEST_CASE("a token is predicted from those before it only") {
  const Model model(kShape, 1);
  auto sequence = random_pack({30}, 8).front();
  const Sequence head = Sequence(sequence).first(20);
  const double before = loss_alone(model, head);
  for (size_t i = 20; i < sequence.size(); ++i) sequence[i] = static_cast<Token>((sequence[i] + 1U) % 40);
  CHECK(loss_alone(model, head) == before);
  // What follows is longer by its own terms only: each prefix adds one non-negative term.
  double last = 0;
  for (size_t n = 2; n <= sequence.size(); ++n) {
    const double now = loss_alone(model, Sequence(sequence).first(n));
    CHECK(now > last);
    last = now;
  }
}

TEST_CASE("the gradient of a pack is the sum of the gradients of its sequences") {
  Model model(kShape, 1);
  const auto pack = random_pack({2, 30, 7, 150, 64}, 5);
  std::vector<double> sum(model.parameters().size());
  double largest = 0;
  for (const auto& sequence : pack) {
    const Sequence one(sequence);
    model.loss_and_gradient(std::span(&one, 1));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(model.gradient()[i]);
  }
  for (const double value : sum) largest = std::max(largest, std::abs(value));
  const double loss = model.loss_and_gradient(views(pack));
  CHECK(loss == doctest::Approx(model.loss(views(pack))));
  REQUIRE(largest > 0.01);
  double worst = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    worst = std::max(worst, std::abs(sum[i] - static_cast<double>(model.gradient()[i])));
  }
  CHECK(worst < 1e-5 * largest);
}

TEST_CASE("the gradient is the slope of the loss") {
  Model model({40, 16, 1, 2, 32}, 3);
  const auto pack = random_pack({12, 20}, 4);
  model.loss_and_gradient(views(pack));
  const std::vector<float> gradient = copy(model.gradient());
  std::mt19937 random(11);
  std::vector<float> direction(gradient.size());
  double slope = 0;
  for (size_t i = 0; i < direction.size(); ++i) {
    direction[i] = static_cast<float>(random() % 2001) / 1000.0F - 1.0F;
    slope += static_cast<double>(direction[i]) * static_cast<double>(gradient[i]);
  }
  const std::vector<float> start = copy(model.parameters());
  const auto loss_at = [&](double distance) {
    for (size_t i = 0; i < start.size(); ++i) {
      model.parameters()[i] =
          static_cast<float>(static_cast<double>(start[i]) + distance * static_cast<double>(direction[i]));
    }
    return model.loss(views(pack));
  };
  const double distance = 2e-4;
  const double measured = (loss_at(distance) - loss_at(-distance)) / (2 * distance);
  CHECK(measured == doctest::Approx(slope).epsilon(0.02));
}

TEST_CASE("the same seed and rows give the same bits") {
  Model one(kShape, 42);
  Model two(kShape, 42);
  const Model other(kShape, 43);
  const auto pack = random_pack({20, 150, 9, 64, 33}, 12);
  CHECK(copy(one.parameters()) == copy(two.parameters()));
  CHECK(copy(one.parameters()) != copy(other.parameters()));
  two.loss_and_gradient(views(random_pack({50, 60}, 1)));  // what came before leaves nothing behind
  CHECK(one.loss_and_gradient(views(pack)) == two.loss_and_gradient(views(pack)));
  CHECK(copy(one.gradient()) == copy(two.gradient()));
}

TEST_CASE("no rows give no loss and no gradient") {
  Model model(kShape, 1);
  model.loss_and_gradient(views(random_pack({20}, 1)));
  CHECK(model.loss_and_gradient({}) == 0);
  for (const float value : model.gradient()) REQUIRE(value == 0.0F);
}

TEST_CASE("matrices decay, biases and norms do not") {
  const Model model(kShape, 1);
  uint64_t decaying = 0;
  uint64_t all = 0;
  for (const Parameter& one : model.parts()) {
    decaying += one.decays ? one.size : 0;
    all += one.size;
  }
  CHECK(all == model.parameters().size());
  CHECK(decaying == 40U * 16 + 2U * 12 * 16 * 16);
}
