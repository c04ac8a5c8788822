// Runtime: what the coordinator has learnt goes from group to group, where all ranks have the same.
#include <fmt/format.h>

#include <array>
#include <limits>
#include <string_view>

#include "base/log.hpp"
#include "data/digest.hpp"
#include "sharded/runtime.hpp"

namespace pliant::sharded {

std::string Runtime::line_of_coordinator() const {
  data::Digest digest;
  digest.add(std::string_view(model.description()));
  digest.add(memory_->budget());
  digest.add(static_cast<uint64_t>(compute_));
  return fmt::format("{} {:016x}\n", coordinator_.name(), digest.value());
}

std::string Runtime::save_coordinator() const {
  if (!coordinator_.has_state() || !is_sound_ || in_pass_) return {};
  const Result<std::string> saved = coordinator_.save();
  if (saved) return line_of_coordinator() + *saved;
  Log("coordinator").write(LogLevel::kWarning, saved.error().message());
  return {};
}

std::string Runtime::load_coordinator(std::string_view saved) {
  const std::string line = line_of_coordinator();
  if (saved.substr(0, line.size()) != line) return "it belongs to another coordinator or another model";
  const Result<> loaded = coordinator_.load(saved.substr(line.size()));
  return loaded ? std::string() : loaded.error().message();
}

// Lists must be the same on all ranks, and so must what they are decided by. What was loaded is saved again: that is
// what the coordinator has made of it.
void Runtime::restore_coordinator(const std::string& saved) {
  if (!coordinator_.has_state()) return;
  const std::string why = saved.empty() ? "there is nothing" : load_coordinator(saved);
  const bool goes_on = why.empty();
  data::Digest digest;
  digest.add(std::string_view(saved));
  digest.add(std::string_view(goes_on ? save_coordinator() : line_of_coordinator()));
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  const uint64_t own = digest.value() & kMost;
  std::array<uint64_t, 4> most{own, kMost - own, goes_on ? uint64_t{0} : 1, saved.empty() ? uint64_t{0} : 1};
  combine_over_ranks(most, ReduceOp::kMax);
  const bool all_alike = most[0] == kMost - most[1];
  if (all_alike && most[2] == 0) return;
  give_model();
  if (most[3] == 0) return;
  const std::string reason =
      goes_on || saved.empty() ? "the ranks do not all have the same saved state or cannot all use it" : why;
  Log("coordinator")
      .write(LogLevel::kWarning, fmt::format("'{}' starts without its saved state: {}", coordinator_.name(), reason));
}

}  // namespace pliant::sharded
