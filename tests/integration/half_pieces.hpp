// Hands a step its gradients in 16 bits: one half from the device, the other from the host; or the same numbers in 32.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pliant/sdk/half.hpp"
#include "pliant/session.hpp"

class HalfPieces {
 public:
  /// `type`: "bf16" or "f16". `widened`: rounded to that, and added as floats.
  HalfPieces(pliant::Session& session, const std::string& type, bool widened)
      : session_(session), dtype_(type == "f16" ? pliant::DType::kF16 : pliant::DType::kBF16), widened_(widened) {}

  void add(pliant::Step& step, pliant::RowRange rows, double loss, std::span<const float> gradient) {
    if (dtype_ == pliant::DType::kF16) return add_as<pliant::sdk::Half>(step, rows, loss, gradient);
    add_as<pliant::sdk::BFloat>(step, rows, loss, gradient);
  }

 private:
  template <class Number>
  void add_as(pliant::Step& step, pliant::RowRange rows, double loss, std::span<const float> gradient) {
    std::vector<Number> narrow(gradient.size());
    for (size_t i = 0; i < narrow.size(); ++i) pliant::sdk::narrow(gradient[i], narrow[i]);
    if (widened_) {
      std::vector<float> wide(narrow.size());
      for (size_t i = 0; i < wide.size(); ++i) wide[i] = pliant::sdk::widen(narrow[i]);
      return step.add(rows, loss, wide);
    }
    const uint64_t half = narrow.size() / 2;
    const pliant::Buffer there(session_.accelerator(), session_.device(), half * sizeof(Number));
    session_.stream().copy(there.pointer(), narrow.data(), there.bytes());
    step.add_piece(rows, {half, narrow.size() - half, narrow.data() + half, dtype_});
    step.add_piece(rows, {0, half, there.pointer(), dtype_});
    step.add(rows, loss);
    session_.stream().synchronize();  // before the piece is freed
  }

  pliant::Session& session_;
  pliant::DType dtype_;
  bool widened_;
};
