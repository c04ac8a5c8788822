// Asking for the report, and holding it to its ranges.
#include "data/packing.hpp"

#include <array>

#include "data/sampler_call.hpp"

namespace pliant::data {

Result<Packing> packing_of(const Sampler& sampler, const pliant_packing* table) {
  constexpr std::array<const char*, 4> kUnits{"tokens", "padded_tokens", "loss_tokens", "cost"};
  if (table == nullptr) return Packing{};
  pliant_packing_report report{};
  report.struct_size = sizeof(report);
  Result<> asked =
      ask(sampler, 0, "report", [&](pliant_error* error) { return table->report(sampler.self, &report, error); });
  if (!asked) return failed(std::move(asked));
  if (const std::string fault = sdk::packing_fault(report); !fault.empty()) {
    return failed(Status::kInternal, fmt::format("{} broke its contract: {}", sampler.name, fault), Origin::kPlugin);
  }
  Packing packing;
  packing.unit = kUnits[static_cast<size_t>(report.unit)];
  packing.budget = report.budget;
  packing.used = static_cast<double>(report.used);
  packing.least_rows = static_cast<int64_t>(report.least_rows);
  return packing;
}

}  // namespace pliant::data
