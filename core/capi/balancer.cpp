// Balancers and assignments for C.
#include "pliant/balancer.hpp"

#include "handles.hpp"
#include "structs.hpp"

struct pliant_balancer_t : pliant::capi::SerialHandle<pliant::capi::Tag::kBalancer> {
  static constexpr const char* kName = "balancer";
  explicit pliant_balancer_t(const pliant::Config& config) : balancer(config) {}

  const pliant::Balancer balancer;
};

namespace {

pliant::Sharing sharing_of(const pliant_sharing_t* sharing) {
  const pliant_sharing_t known = pliant::capi::read_or_default(sharing, "sharing");
  pliant::capi::check_flags(known.flags, PLIANT_SHARING_DETERMINISTIC | PLIANT_SHARING_IN_TURN, "sharing");
  pliant::Sharing made;
  made.world_size = pliant::capi::at_least_one(known.world_size);
  made.micro_batch = pliant::capi::at_least_one(known.micro_batch);
  made.granule = pliant::capi::at_least_one(known.granule);
  made.deterministic = (known.flags & PLIANT_SHARING_DETERMINISTIC) != 0;
  made.in_turn = (known.flags & PLIANT_SHARING_IN_TURN) != 0;
  return made;
}

}  // namespace

int32_t pliant_balancer_make(const pliant_config_t* config, pliant_balancer_t** balancer, pliant_error_t* error) {
  return pliant::capi::hand_out(
      balancer, error, [&] { return std::make_unique<pliant_balancer_t>(pliant::capi::given(config).config); });
}

int32_t pliant_balancer_free(pliant_balancer_t* balancer) {
  return pliant::capi::free_serial(balancer);
}

int32_t pliant_balancer_look(const pliant_balancer_t* balancer, pliant_balancer_facts_t* facts, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Balancer& known = pliant::capi::given(balancer).balancer;
    pliant_balancer_facts_t made{};
    made.name = known.name().c_str();
    made.per_token = known.rates().per_token;
    made.per_square = known.rates().per_square;
    pliant::capi::write(facts, made, "facts");
  });
}

int32_t pliant_row_costs(const pliant_batch_t* batch, int64_t per_token, int64_t per_square, int64_t* to, uint64_t room,
                         uint64_t* count, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_batch_t& known = pliant::capi::given(batch);
    const std::vector<int64_t> costs = pliant::row_costs(*known.batch, *known.dataset, {per_token, per_square});
    pliant::capi::fill_room(std::span(costs), to, room, count, "count");
  });
}

int32_t pliant_balancer_assign(pliant_balancer_t* balancer, const int64_t* row_costs, uint64_t rows,
                               const pliant_sharing_t* sharing, pliant_assignment_t** assignment,
                               pliant_error_t* error) {
  return pliant::capi::hand_out(assignment, error, [&] {
    const pliant::capi::Turn<pliant_balancer_t> known(balancer);
    const auto costs = pliant::capi::given_array(row_costs, rows, "row_costs");
    return std::make_unique<pliant_assignment_t>(known->balancer.assign(costs, sharing_of(sharing)));
  });
}

int32_t pliant_share_out(int64_t rows, const pliant_sharing_t* sharing, pliant_assignment_t** assignment,
                         pliant_error_t* error) {
  return pliant::capi::hand_out(assignment, error, [&] {
    return std::make_unique<pliant_assignment_t>(pliant::share_out(rows, sharing_of(sharing)));
  });
}

int32_t pliant_assignment_free(pliant_assignment_t* assignment) {
  return pliant::capi::free_any(assignment);
}

int32_t pliant_assignment_look(const pliant_assignment_t* assignment, pliant_assignment_view_t* view,
                               pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_assignment_t& known = pliant::capi::given(assignment);
    pliant_assignment_view_t made{};
    made.world_size = known.assignment.world_size();
    made.offsets = known.offsets.data();
    made.blocks = known.blocks.data();
    pliant::capi::write(view, made, "view");
  });
}

int32_t pliant_assignment_waiting(const pliant_assignment_t* assignment, const int64_t* row_costs, uint64_t rows,
                                  pliant_waiting_t* waiting, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Assignment& known = pliant::capi::given(assignment).assignment;
    const pliant::Waiting lost = pliant::waiting(pliant::capi::given_array(row_costs, rows, "row_costs"), known);
    pliant_waiting_t made{};
    made.work = lost.work;
    made.per_step = lost.per_step;
    made.per_micro_batch = lost.per_micro_batch;
    pliant::capi::write(waiting, made, "waiting");
  });
}
