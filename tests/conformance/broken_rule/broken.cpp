// The rule `broken`: the rate grows with the root of the batch and falls by a thousandth with every commit, with the
// fault that its option names. TEST ONLY.
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "pliant/sdk/lr_rule.hpp"

namespace {

namespace sdk = pliant::sdk;

std::atomic<int64_t> instances = 0;  // made so far

struct Broken {
  std::string fault = "none";

  static void options(sdk::Options<Broken>& table) {
    table.add("fault", &Broken::fault, "What is wrong: none, or a fault's name.");
  }
  void start(const sdk::Host& /*host*/) {
    number = instances++;
    main_thread = std::this_thread::get_id();
  }
  [[nodiscard]] bool is(const char* name) const { return fault == name; }
  /// Other steps are answered well, whatever the fault: the kit asks about them to see how instances get on.
  [[nodiscard]] static bool is_judged(double base_batch, int64_t step) { return base_batch != 32 && step > 0; }

  [[nodiscard]] sdk::LrFacts facts() const {
    sdk::LrFacts made;
    if (is("for-none")) made.optimizers = 0;
    if (is("reason-missing")) made.optimizers = sdk::optimizers(sdk::Optimizer::kSgd, sdk::Optimizer::kUnknown);
    if (is("facts-change")) made.wants_total = described++ % 2 == 1;
    return made;
  }

  [[nodiscard]] sdk::LrScaling scale(const sdk::LrInput& in) const {
    const double ratio = in.batch / in.base_batch;
    const bool faulty = is_judged(in.base_batch, in.step);
    if (ratio > 1000) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE, is("without-words") ? "" : "a batch of more than 1000 times the base",
                         is("option-unknown") ? "batch" : "fault");
    }
    if (is("optimizer-refused") && in.base_batch != 32 && in.optimizer == sdk::Optimizer::kSign) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE, "not for sign");
    }
    sdk::LrScaling made = in.so_far;
    double factor = std::sqrt(ratio);
    if (is("base-moved") && in.base_batch != 32) factor *= 1.5;
    made.multiply_lr(factor);
    made.lr *= std::pow(0.999, static_cast<double>(committed));
    if (!faulty) return made;
    if (is("rate-negative")) made.lr = -made.lr;
    if (is("factor-negative")) made.second_moment = -1;
    if (is("beta-negative")) made.one_minus_beta1 = 11;
    if (is("of-an-instance")) made.epsilon = number % 2 == 0 ? 1 : 2;
    if (is("of-a-thread") && std::this_thread::get_id() != main_thread) made.epsilon = 2;
    if (is("scale-counts")) made.epsilon = static_cast<double>(++asked);
    if (is("scale-saved")) ++asked;
    return made;
  }

  void commit(const sdk::LrInput& in, const sdk::LrScaling&, const sdk::LrCommitted& step) {
    const bool wrong = step.big_norm > 1e300;
    if (!wrong || (is("failed-counts") && is_judged(in.base_batch, in.step))) ++committed;
    if (wrong) throw sdk::Failure(PLIANT_OUT_OF_RANGE, "norms that no gradients have");
  }

  void save(const sdk::Writer& out) const {
    out.value(is("state-partial") && committed > 10 ? committed - 1 : committed);
    out.value(is("scale-saved") ? asked : int64_t{0});
  }
  void load(const sdk::Reader& in) {
    const auto steps = in.value<int64_t>();
    const auto scaled = in.value<int64_t>();
    in.expect_end();
    committed = steps;
    asked = scaled;
  }

  int64_t number = 0;
  std::thread::id main_thread;
  int64_t committed = 0;
  mutable int64_t asked = 0;
  mutable int64_t described = 0;
};

using Adapter = sdk::detail::LrAdapter<Broken>;

/// What the SDK's slot keeps an author from.
int32_t scale(void* self, const pliant_lr_input* input, pliant_lr_output* output, pliant_error* error) {
  const Broken& broken = static_cast<Adapter::Instance*>(self)->plugin;
  const int32_t status = static_cast<const pliant_lr_rule*>(Adapter::vtable())->scale(self, input, output, error);
  if (status != PLIANT_OK || !Broken::is_judged(input->base_batch, input->step)) return status;
  if (broken.is("rate-infinite")) output->lr = std::numeric_limits<double>::infinity();
  if (broken.is("answer-past")) std::memset(output + 1, 0, sizeof(int64_t));
  return status;
}

}  // namespace

extern "C" PLIANT_PLUGIN_EXPORT const pliant_plugin* pliant_plugin_entry_v1(void) {
  static const pliant_lr_rule kTable = [] {
    pliant_lr_rule made = *static_cast<const pliant_lr_rule*>(Adapter::vtable());
    made.scale = &scale;
    return made;
  }();
  return sdk::detail::record<Broken, Adapter::Instance>(PLIANT_KIND_LR_RULE, &kTable, "broken", "0.0.1",
                                                        "Broken on purpose, to test the kit");
}
