// A study, or several beside each other, as text and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/study.hpp"

namespace pliant::cli {

std::string plan_text(const Study& study);
/// One line, schema pliant.plan/1.
std::string plan_json(const Study& study);

/// One policy of a comparison: a study, or why there is none.
struct Compared {
  std::string policy;
  std::optional<Study> study;
  std::string refusal;
  std::string remark;  ///< about the world size asked for
};

/// Cluster sizes that a comparison looks at: from the first size that any policy has to the largest that any counted.
WorldRange compared_sizes(const std::vector<Compared>& policies);

std::string compare_text(const std::vector<Compared>& policies, int64_t world_size);
/// One line, schema pliant.plan_compare/1.
std::string compare_json(const std::vector<Compared>& policies, int64_t world_size);

}  // namespace pliant::cli
