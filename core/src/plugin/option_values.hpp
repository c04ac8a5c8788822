// What is inside OptionValues: storage that the ABI's views point into.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "pliant/abi/options.h"
#include "plugin/plugin.hpp"

namespace pliant::plugin {

/// Rows are set one by one, in the order of the table; a setter fills row `index`. Addresses stay when the owner moves.
struct OptionValues::State {
  std::vector<pliant_value> rows;
  std::deque<std::string> texts;
  std::deque<std::vector<int64_t>> integers;
  std::deque<std::vector<double>> reals;
  std::deque<std::vector<pliant_str>> views;
  pliant_option_values view{};

  /// One unset row per option.
  void reset(const std::vector<pliant_option>& options);
  void set_integer(size_t index, int64_t value);
  void set_real(size_t index, double value);
  void set_text(size_t index, std::string value);
  void set_integers(size_t index, std::vector<int64_t> values);
  void set_reals(size_t index, std::vector<double> values);
  void set_texts(size_t index, const std::vector<std::string>& values);
  /// Copies the default of `option`, deep; leaves the row unset when there is none.
  void set_default(size_t index, const pliant_option& option);
};

}  // namespace pliant::plugin
