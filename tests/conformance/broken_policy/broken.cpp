// The policy `broken`: shares a batch out to every world size that divides it, with the fault that its option names.
// TEST ONLY.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "pliant/sdk/elasticity_policy.hpp"

namespace {

namespace sdk = pliant::sdk;

/// World sizes up to here are answered well, whatever the fault: the kit asks for them to see how instances get on.
constexpr int64_t kHonest = 4;

struct Broken {
  std::string fault = "none";
  int64_t global_batch = 48;
  int64_t granule = 2;

  static void options(sdk::Options<Broken>& table) {
    table.add("fault", &Broken::fault, "What is wrong: none, or a fault's name.");
    table.add("global_batch", &Broken::global_batch, "Rows of one step; what is no multiple of granule is left out.")
        .range(24, 4096)
        .unit("rows");
    table.add("granule", &Broken::granule, "Rows that are never split.").range(1, 3).unit("rows");
  }
  void start(const sdk::Host& /*host*/) { main_thread = std::this_thread::get_id(); }
  [[nodiscard]] bool is(const char* name) const { return fault == name; }
  [[nodiscard]] int64_t granules() const { return global_batch / granule; }
  [[nodiscard]] bool has(int64_t size) const { return size <= granules() && granules() % size == 0; }

  [[nodiscard]] sdk::Plan plan(const sdk::PlanRequest& request) const {
    const int64_t size = request.world_size;
    const bool faulty = size > kHonest;
    if (size > 0 && !has(size) && !is("unlisted-planned")) refuse(size);
    if (faulty && is("listed-refused") && has(size)) refuse(size);
    sdk::Plan made;
    made.granule = granule;
    made.global_batch = granules() * granule;
    made.micro_batch = size > 0 ? std::max<int64_t>(granules() / size, 1) * granule : 0;
    for (int64_t one = 1; one <= granules(); ++one) {
      if (has(one)) made.world_sizes.push_back({one, one, 1});
    }
    if (request.has_world_size_text && size == 0) made.min_resize_interval_s = number_of(request.world_size_text);
    if (faulty) break_it(made);
    return made;
  }

 private:
  void refuse(int64_t size) const {
    const std::string words = "world size " + std::to_string(size) + " does not divide " + std::to_string(granules());
    const int32_t status = is("refused-otherwise") && size > kHonest ? int32_t{PLIANT_OUT_OF_RANGE}
                                                                     : int32_t{PLIANT_INCOMPATIBLE_WORLD_SIZE};
    throw sdk::Failure(status, is("without-words") && size > kHonest ? "" : words,
                       is("option-unknown") && size > kHonest ? "batch_size" : "global_batch");
  }
  [[nodiscard]] int64_t number_of(std::string_view text) const {
    const std::string digits(text.data(), is("text-past") ? text.size() + 1 : text.size());
    return std::strtoll(digits.c_str(), nullptr, 10);
  }
  void break_it(sdk::Plan& made) const {
    if (is("batch-zero")) made.global_batch = 0;
    if (is("micro-batch-large")) made.micro_batch = made.global_batch + made.granule;
    if (is("nodes-negative")) made.devices_per_node = -1;
    if (is("granule-odd")) made.granule = made.global_batch - 1;
    if (is("descending")) std::reverse(made.world_sizes.begin(), made.world_sizes.end());
    if (is("twice")) made.world_sizes.push_back(made.world_sizes.back());
    if (is("step-odd")) made.world_sizes.back() = {made.world_sizes.back().first, granules() + 3, 5};
    if (is("ranks-idle")) made.world_sizes.push_back({granules() + 1, granules() + 1, 1});
    if (is("micro-batch-missing")) made.micro_batch = 0;
    if (is("remembers")) made.devices_per_node = asked++;
    if (is("of-a-thread") && std::this_thread::get_id() != main_thread) made.devices_per_node = 1;
  }

  std::thread::id main_thread;
  mutable int64_t asked = 0;
};

using Adapter = sdk::detail::ElasticityAdapter<Broken>;

const pliant_elasticity_policy& sdk_slots() {
  return *static_cast<const pliant_elasticity_policy*>(Adapter::vtable());
}

/// What the SDK's slot keeps an author from.
int32_t plan(void* self, const pliant_plan_request* request, pliant_plan* plan, const pliant_world_sink* sizes,
             pliant_error* error) {
  const Broken& broken = static_cast<Adapter::Instance*>(self)->plugin;
  const pliant_plan before = *plan;
  pliant_plan_request asked = *request;
  if (broken.is("wanted-ignored")) asked.flags = 0;
  const int32_t status = sdk_slots().plan(self, &asked, plan, sizes, error);
  if (request->world_size <= kHonest) return status;
  if (broken.is("error-past") && status != PLIANT_OK) error->device = 7;
  if (status != PLIANT_OK) return status;
  if (broken.is("field-forgotten")) plan->min_resize_interval_s = before.min_resize_interval_s;
  if (broken.is("plan-past")) std::memset(plan + 1, 0, sizeof(int64_t));
  if (broken.is("sizes-null")) static_cast<void>(sizes->append(sizes->context, nullptr, 1));
  return status;
}

}  // namespace

extern "C" PLIANT_PLUGIN_EXPORT const pliant_plugin* pliant_plugin_entry_v1(void) {
  static const pliant_elasticity_policy kTable{sizeof(pliant_elasticity_policy), 0, &plan};
  return sdk::detail::record<Broken, Adapter::Instance>(PLIANT_KIND_ELASTICITY_POLICY, &kTable, "broken", "0.0.1",
                                                        "Broken on purpose, to test the kit");
}
