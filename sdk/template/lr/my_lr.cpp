// my-lr: the learning rate grows with a power of the batch.
#include "pliant/sdk/lr_rule.hpp"

struct MyLr {
  double exponent = 0.5;

  static void options(pliant::sdk::Options<MyLr>& table) {
    table.add("exponent", &MyLr::exponent, "Power of batch / base_batch.").range(0.0, 1.0);
  }

  double scale(const pliant::sdk::LrInput& in) const {
    return in.base_lr * std::pow(in.batch / in.base_batch, exponent);
  }
};

PLIANT_LR_RULE(MyLr, "my-lr", "0.1.0", "the learning rate grows with a power of the batch")
