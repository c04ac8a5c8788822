// What optimizers compute, for C.
#include "pliant/optimizer.hpp"

#include <array>
#include <utility>

#include "device_handles.hpp"
#include "structs.hpp"

namespace {

using StreamTurn = pliant::capi::Turn<pliant_stream_t>;

static_assert(pliant::kNormChunk == PLIANT_FLOATS_OF_NORM);

pliant::AdamWUpdate update_of(const pliant_adamw_t& from) {
  return {from.gradient_scale, from.beta1, from.beta2, from.rate, from.correction, from.epsilon, from.decay};
}

/// Throws for arrays that are NULL or overlap.
pliant::AdamWArrays arrays_of(const pliant_adamw_t& from) {
  const std::array<std::pair<const float*, const char*>, 4> all{{{from.weights, "weights"},
                                                                 {from.gradient, "gradient"},
                                                                 {from.first_moment, "first_moment"},
                                                                 {from.second_moment, "second_moment"}}};
  for (size_t i = 0; i < all.size(); ++i) {
    const auto [array, name] = all[i];
    static_cast<void>(pliant::capi::given_array(array, from.count, name));
    for (size_t before = 0; before < i; ++before) {
      const auto one = reinterpret_cast<uintptr_t>(array);
      const auto other = reinterpret_cast<uintptr_t>(all[before].first);
      const uint64_t bytes = from.count * sizeof(float);
      if (bytes > 0 && one < other + bytes && other < one + bytes)
        throw pliant::capi::wrong(std::string(all[before].second) + " and " + name + " overlap");
    }
  }
  return {from.weights, from.gradient, from.first_moment, from.second_moment, from.count};
}

/// One array, or as the caller says.
std::vector<uint64_t> parts_of(const uint64_t* parts, uint64_t part_count, uint64_t count) {
  if (part_count == 0) return {count};
  const auto given = pliant::capi::given_array(parts, part_count, "parts");
  return {given.begin(), given.end()};
}

}  // namespace

int32_t pliant_adamw(const pliant_adamw_t* update, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_adamw_t known = pliant::capi::read(update, "update");
    pliant::adamw(update_of(known), arrays_of(known));
  });
}

int32_t pliant_stream_adamw(pliant_stream_t* stream, const pliant_adamw_t* update, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const StreamTurn known(stream);
    const pliant_adamw_t wanted = pliant::capi::read(update, "update");
    pliant::adamw(known->stream, update_of(wanted), arrays_of(wanted));
  });
}

int32_t pliant_squared_norm(const float* values, uint64_t count, const uint64_t* parts, uint64_t part_count,
                            double* norm, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const auto all = pliant::capi::given_array(values, count, "values");
    pliant::capi::require(norm, "norm");
    *norm = pliant::squared_norm(all, parts_of(parts, part_count, count));
  });
}

int32_t pliant_stream_squared_norm(pliant_stream_t* stream, const float* values, uint64_t count, const uint64_t* parts,
                                   uint64_t part_count, double* norm, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const StreamTurn known(stream);
    const auto all = pliant::capi::given_array(values, count, "values");
    pliant::capi::require(norm, "norm");
    *norm = pliant::squared_norm(known->stream, all, parts_of(parts, part_count, count));
  });
}

int32_t pliant_squared_norms(double* to, const float* from, uint64_t count, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const auto all = pliant::capi::given_array(from, count, "from");
    if (all.empty()) return;
    pliant::capi::require(to, "to");
    pliant::squared_norms(to, all.data(), all.size());
  });
}

int32_t pliant_stream_squared_norms(pliant_stream_t* stream, double* to, const float* from, uint64_t count,
                                    pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const StreamTurn known(stream);
    const auto all = pliant::capi::given_array(from, count, "from");
    if (all.empty()) return;
    pliant::capi::require(to, "to");
    pliant::squared_norms(known->stream, to, all.data(), all.size());
  });
}

int32_t pliant_sum_of_norms(const double* chunks, uint64_t count, double* sum, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const auto all = pliant::capi::given_array(chunks, count, "chunks");
    pliant::capi::require(sum, "sum");
    pliant::NormTree tree;
    tree.add(all);
    *sum = tree.sum();
  });
}
