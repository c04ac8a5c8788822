// Hands a step its gradients in pieces, from the end to the beginning, as a backward pass makes them; and breaks off in
// the middle.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>

#include "pliant/session.hpp"

class BackwardPieces {
 public:
  /// [app]: `backward_pieces` of each gradient, 0 is none; `whole_on`: the rank that hands in whole ones all the same;
  /// `break_off`: "next" or "throw", once, by the worker that began as rank `break_off_rank`, in step `break_off_step`.
  explicit BackwardPieces(const pliant::Config& config)
      : pieces_(static_cast<size_t>(config.app_int("backward_pieces").value_or(0))),
        whole_on_(config.app_int("whole_on").value_or(-1)),
        break_off_(config.app_string("break_off").value_or("")),
        rank_(config.app_int("break_off_rank").value_or(0)),
        step_(config.app_int("break_off_step").value_or(0)) {
    const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
    const char* const own = std::getenv("RANK");
    const bool is_it = own != nullptr && std::to_string(rank_) == own;
    if (!is_it || (restarts != nullptr && std::string(restarts) != "0")) break_off_.clear();
  }
  [[nodiscard]] bool are_wanted(const pliant::Step& step) const { return pieces_ > 0 && step.rank() != whole_on_; }

  /// False where the step is to be handed out again.
  bool add(pliant::Step& step, pliant::RowRange rows, double loss, std::span<const float> gradient) {
    const bool is_last = rows == step.micro_batches().back();
    const bool breaks_off = is_last && !break_off_.empty() && step.rank() == rank_ && step.index() == step_;
    const size_t width = (gradient.size() + pieces_ - 1) / pieces_;
    size_t end = gradient.size();
    for (size_t number = 0; end > 0; ++number) {
      const size_t first = end - std::min(end, width);
      if (breaks_off && number == pieces_ / 2) {
        if (break_off_ == "throw") throw std::runtime_error("breaks off in backward");
        break_off_.clear();
        return false;
      }
      step.add_piece(rows, {first, end - first, gradient.data() + first});
      end = first;
    }
    step.add(rows, loss);
    return true;
  }

 private:
  size_t pieces_;
  int64_t whole_on_;
  std::string break_off_;
  int64_t rank_;
  int64_t step_;
};
