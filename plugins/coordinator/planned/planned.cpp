// Coordinator planned: knows the passes of a job, and gathers ahead within a budget that it keeps.
#include <cstdint>
#include <span>
#include <string>

#include "planner.hpp"

namespace pliant::coordinator::planned {
namespace {

struct Planned {
  int64_t ahead = 2;
  int64_t gather_bucket = int64_t{1} << 20U;
  int64_t traces = 16;
  int64_t reduce_bucket = int64_t{1} << 20U;

  static void options(sdk::Options<Planned>& table) {
    table
        .add("ahead", &Planned::ahead, "Gathers that may be on their way before the visits that they are for; 0: none.")
        .at_least(0)
        .unit("gathers");
    table
        .add("gather_bucket", &Planned::gather_bucket,
             "What visits behind each other use is gathered ahead together until it has so many bytes, or is for 16 "
             "visits; what is next goes alone. 0: one gather a visit.")
        .at_least(0)
        .unit("bytes");
    table
        .add("traces", &Planned::traces,
             "Orders of visits that are known at once, of passes with gradients and of others each; the one not seen "
             "for longest goes first.")
        .range(1, 4096)
        .unit("traces");
    table
        .add("reduce_bucket", &Planned::reduce_bucket,
             "Complete gradients are collected until they have so many bytes, and leave together; fewer where a budget "
             "leaves no room for that.")
        .at_least(0)
        .unit("bytes");
  }

  void set_model(const sdk::Model& model) {
    planner_ = Planner(model, {static_cast<uint64_t>(traces), static_cast<uint64_t>(ahead),
                               static_cast<uint64_t>(reduce_bucket), static_cast<uint64_t>(gather_bucket)});
  }
  void set_module_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
    planner_.set_parameters(module, own, external);
  }
  void set_costs(std::span<const uint64_t> nanoseconds) { planner_.set_costs(nanoseconds); }
  void begin_pass(bool with_gradient, sdk::Actions& actions) { planner_.begin_pass(with_gradient, actions); }
  void enter(const sdk::Visit& visit, sdk::Actions& actions) { planner_.enter(visit, actions); }
  void leave(const sdk::Visit& visit, sdk::Actions& actions) { planner_.leave(visit, actions); }
  void end_pass(sdk::Actions& actions) { planner_.end_pass(actions); }
  void end_step(sdk::Actions& actions) { planner_.end_step(actions); }
  void drop_trace(sdk::Actions& actions) { planner_.drop_trace(actions); }
  [[nodiscard]] sdk::CoordinatorCounts counts() const { return planner_.counts(); }
  static const void* extension(const char* id) { return sdk::counters_of<Planned>(id); }
  void save(sdk::Writer& out) const { planner_.save(out); }
  void load(sdk::Reader& in) { planner_.load(in); }

 private:
  Planner planner_;
};

}  // namespace
}  // namespace pliant::coordinator::planned

PLIANT_COORDINATOR(pliant::coordinator::planned::Planned, "planned", "0.1.0",
                   "Knows the passes it has seen, gathers ahead, and keeps its budget")
