// The chain of [lr]: order, refusals with positions, committed steps, norms, state.
#include <doctest/doctest.h>

#include <cmath>

#include "pliant/error.hpp"
#include "pliant/learning_rate.hpp"
#include "scratch.hpp"

using namespace pliant;
using pliant::test::Scratch;

namespace {

constexpr BatchSize kMeanOfChain{4, 8, 100, 50};
constexpr BatchSize kDouble{8, 16, 200, 100};

LearningRate rate_of(const std::string& toml, const BatchSize& mean = kMeanOfChain) {
  const Scratch scratch;
  return {scratch.config(toml), mean};
}

template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {Status::kOk, "nothing was thrown"};
}

bool contains(const Error& error, const std::string& text) {
  return error.message().find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("schedule comes first, use next, then last") {
  LearningRate chain = rate_of(
      "[lr]\nuse = \"linear\"\nbase_lr = 0.5\nschedule = [\"warmup\", \"step\"]\nthen = [\"clamp\"]\n"
      "[lr.warmup]\nsteps = 4\nby = \"steps\"\n[lr.step]\nevery = 10\ngamma = 0.5\nby = \"steps\"\n"
      "[lr.clamp]\nhighest_factor = 1.5\n");
  const Scaling early = chain.scaling(2, kDouble);
  CHECK(early.scheduled_learning_rate == 0.25);
  CHECK(early.learning_rate_factor == 1.5);
  CHECK(early.learning_rate == 0.375);
  CHECK(chain.at(10, kMeanOfChain) == 0.25);
}

TEST_CASE("every factor reaches the caller") {
  LearningRate chain = rate_of(
      "[lr]\nuse = \"adam_sde\"\nbase_lr = 0.5\noptimizer = \"adamw\"\nbeta1 = 0.9\nbeta2 = 0.95\nthen = "
      "[\"timescale\"]\n");
  const Scaling twice = chain.scaling(0, kDouble);
  CHECK(twice.learning_rate == 0.5 * std::sqrt(2.0));
  CHECK(twice.one_minus_beta1 == 2);
  CHECK(Scaling::beta(0.9, twice.one_minus_beta1) == doctest::Approx(0.8));
  CHECK(Scaling::beta(0.9, 1) == 0.9);
  CHECK(twice.epsilon == 1 / std::sqrt(2.0));
  CHECK(twice.weight_decay == doctest::Approx(std::sqrt(2.0)));
  CHECK(twice.ema_power == 2);
  CHECK(twice.progress == 100);
}

TEST_CASE("packs are rows") {
  CHECK(rate_of("[lr]\nuse = \"linear\"\nbase_lr = 0.5\nunit = \"packs\"\n").at(0, kDouble) == 1);
}

TEST_CASE("a rule that is not valid for the optimizer is refused with its reason") {
  const Error adam = error_of([] { (void)rate_of("[lr]\nuse = \"adascale\"\noptimizer = \"adam\"\n"); });
  CHECK(adam.origin() == Origin::kInput);
  CHECK(
      contains(adam, "lr 'adascale' is valid for sgd, sgd_momentum, nesterov only, and [lr] optimizer is \"adam\": "));
  CHECK(contains(adam, "for adam set use = \"sqrt\""));
  const Error unknown = error_of([] { (void)rate_of("[lr]\nuse = \"adam_sde\"\n"); });
  CHECK(contains(unknown,
                 "lr 'adam_sde' depends on the optimizer: set [lr] optimizer; the rule is valid for adam, adamw only"));
  const Error link =
      error_of([] { (void)rate_of("[lr]\nuse = \"sqrt\"\noptimizer = \"adam\"\nthen = [\"momentum\"]\n"); });
  CHECK(contains(link, "lr 'momentum' is valid for sgd_momentum, nesterov only"));
  CHECK(contains(adam, "pliant.toml:4:"));
  CHECK(contains(unknown, "pliant.toml:3:"));
  CHECK(rate_of("[lr]\nuse = \"linear\"\n").at(0, kMeanOfChain) == 1e-3);  // unknown: those that need not know go on
}

TEST_CASE("the lists of the chain are checked where they stand") {
  const Error twice = error_of([] { (void)rate_of("[lr]\nuse = \"sqrt\"\nthen = [\"clamp\", \"sqrt\"]\n"); });
  CHECK(contains(twice, "pliant.toml:4:18"));
  CHECK(contains(twice, "lr.then names 'sqrt', which is already in the chain"));
  const Error missing = error_of([] { (void)rate_of("[lr]\nuse = \"sqrt\"\nschedule = [\"cosin\"]\n"); });
  CHECK(contains(missing, "cosin"));
  CHECK(missing.origin() == Origin::kPlugin);
  const Error bad = error_of([] { (void)rate_of("[lr]\nuse = \"sqrt\"\nthen = [\"Not A Name\"]\n"); });
  CHECK(contains(bad, "lr.then must list names of plugins"));
  const Error option =
      error_of([] { (void)rate_of("[lr]\nuse = \"sqrt\"\nthen = [\"clamp\"]\n[lr.clamp]\nhigh = 1\n"); });
  CHECK(contains(option, "unknown key 'high' in [lr.clamp]"));
}

TEST_CASE("the resolved config opens to the same chain") {
  const Scratch scratch;
  const Config config =
      scratch.config("[lr]\nuse = \"sqrt\"\nbase_lr = 0.5\nthen = [\"clamp\"]\n[lr.clamp]\nhighest_factor = 1.25\n");
  const std::string resolved = config.resolved_toml();
  CHECK(resolved.find("highest_factor = 1.25") != std::string::npos);
  const ConfigNeeds needs{"lr"};
  CHECK(LearningRate(Config::parse(resolved, needs), kMeanOfChain).at(0, kDouble) == 0.625);
}

TEST_CASE("progress is what was committed, and what was asked for changes nothing") {
  LearningRate chain =
      rate_of("[lr]\nuse = \"none\"\nbase_lr = 0.5\nschedule = [\"warmup\"]\n[lr.warmup]\nsteps = 4\n");
  CHECK(chain.at(2, kMeanOfChain) == 0.25);  // nothing committed: as many base batches as steps
  CHECK(chain.at(0, kMeanOfChain) == 0);
  chain.commit(0, kDouble);  // two base batches
  CHECK(chain.at(1, kMeanOfChain) == 0.25);
  CHECK(chain.at(1, kMeanOfChain) == 0.25);
  CHECK(error_of([&] { chain.commit(0, kMeanOfChain); }).status() == Status::kFailedPrecondition);
  chain.commit(1, kMeanOfChain);
  CHECK(chain.at(2, kMeanOfChain) == 0.375);
}

TEST_CASE("a job's length ends its schedules") {
  LearningRate chain = rate_of("[lr]\nuse = \"none\"\nbase_lr = 0.5\nschedule = [\"cosine\"]\n");
  CHECK(chain.wants_job_length());
  CHECK(contains(error_of([&] { (void)chain.at(0, kMeanOfChain); }), "lr 'cosine'"));
  chain.set_job_length({10, {40, 80, 1000, 500}});
  CHECK(chain.at(5, kMeanOfChain) == doctest::Approx(0.25));
  CHECK_FALSE(rate_of("[lr]\nuse = \"sqrt\"\n").wants_job_length());
}

TEST_CASE("norms reach the rule that asks for them, and its gain is its progress") {
  LearningRate chain = rate_of("[lr]\nuse = \"adascale\"\nbase_lr = 0.5\nbase_batch = 25\noptimizer = \"sgd\"\n");
  CHECK(chain.wants_gradient_norms());
  chain.commit(0, kDouble, GradientNorms{8, 5, 2});  // 100 over 25: the numbers of the test of the rule, k = 4
  const Scaling measured = chain.scaling(1, kDouble);
  CHECK(measured.learning_rate_factor == doctest::Approx(1.6428571428571428).epsilon(1e-14));
  CHECK(measured.progress == doctest::Approx(25 * 1.6428571428571428).epsilon(1e-14));
  chain.commit(1, kDouble, GradientNorms{1, 5, 5});  // one part says nothing about noise
  CHECK(chain.at(2, kDouble) == measured.learning_rate);
}

TEST_CASE("the state of a chain goes on in another object, whatever was asked between") {
  const std::string toml =
      "[lr]\nuse = \"adascale\"\nbase_batch = 25\noptimizer = \"sgd\"\nschedule = [\"warmup\"]\nthen = [\"smooth\"]\n"
      "[lr.warmup]\nsteps = 100\n[lr.smooth]\nover = 4\n";
  LearningRate first = rate_of(toml);
  for (int64_t step = 0; step < 5; ++step) {
    (void)first.at(step, kMeanOfChain);
    first.commit(step, step < 3 ? kMeanOfChain : kDouble, GradientNorms{8, 5, 2});
  }
  LearningRate second = rate_of(toml);
  second.load(first.save());
  CHECK(second.save() == first.save());
  for (int64_t step = 5; step < 9; ++step) {
    CHECK(second.at(step, kDouble) == first.at(step, kDouble));
    first.commit(step, kDouble, GradientNorms{8, 4, 2});
    second.commit(step, kDouble, GradientNorms{8, 4, 2});
  }
  CHECK(second.save() == first.save());
  const std::string before = second.save();
  for (size_t cut : {size_t{0}, size_t{10}, before.size() - 1})
    CHECK_THROWS_AS(second.load(before.substr(0, cut)), Error);
  CHECK_THROWS_AS(second.load(rate_of("[lr]\nuse = \"sqrt\"\n").save()), Error);
  CHECK(second.save() == before);
}

TEST_CASE("a beta that the batch would push below 0 stops there when asked to") {
  LearningRate chain = rate_of(
      "[lr]\nuse = \"adam_sde\"\noptimizer = \"adam\"\nbeta1 = 0.9\nbeta2 = 0.95\n[lr.adam_sde]\nclamp = true\n");
  const Scaling huge = chain.scaling(0, {400, 800, 10000, 5000});
  CHECK(Scaling::beta(0.9, huge.one_minus_beta1) == doctest::Approx(0));
  CHECK(Scaling::beta(0.95, huge.one_minus_beta2) == doctest::Approx(0));
}
