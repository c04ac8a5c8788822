// GradientReduction: the collectives over slices of the gradient that make one sum of those of all ranks.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "elastic/reduction_state.hpp"
#include "pliant/error.hpp"

namespace pliant::elastic {

namespace {

/// Bounds of one receive buffer of the deterministic mode.
constexpr size_t kReceiveFloats = size_t{1} << 20;
constexpr size_t kNarrowestSlice = size_t{1} << 10;

/// Waits until nothing enqueued uses our buffers any more, however that ends.
void drain(Stream& stream, detail::DeviceSums& work) noexcept {
  try {
    stream.synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the first failure is the one that is reported
  }
  work.drain();
}

}  // namespace

void GradientReduction::State::check_reducible(const Communicator& communicator) const {
  if (world_size == 0 || reduced || !complete()) {
    throw Error(Status::kFailedPrecondition,
                world_size == 0 || reduced
                    ? std::string("a reduction needs begin() first")
                    : fmt::format("the step is incomplete: {} of {} micro-batches of this rank were added", added,
                                  blocks.size()));
  }
  if (communicator.world_size() != world_size) {
    throw Error(Status::kInvalidArgument,
                fmt::format("the communicator has {} ranks, but the step was begun with world size {}",
                            communicator.world_size(), world_size));
  }
}

void GradientReduction::State::reduce_fast(Communicator& communicator, Stream& stream,
                                           const std::function<void()>& midway) {
  if (failed_beginning) throw Error(*failed_beginning);
  if (sums.empty()) push_zero();
  const size_t half = std::max(buckets() / 2, begun);
  const bool are_under_way = begun > 0;
  while (begun < half) begin_bucket(communicator, stream);
  if (!are_under_way) stream.synchronize();
  if (midway) midway();
  while (begun < buckets()) begin_bucket(communicator, stream);
  if (work.is_here()) own_sum_overflows = !own_sum_is_finite && not_finite.empty();
}

size_t GradientReduction::State::bucket_width() const {
  const size_t half = size / 2 + size % 2;
  return wanted_bucket == 0 ? half : std::min(half, wanted_bucket);
}

size_t GradientReduction::State::buckets() const {
  return size == 0 ? 0 : (size - 1) / bucket_width() + 1;
}

std::pair<size_t, size_t> GradientReduction::State::bucket(size_t number) const {
  const size_t end = size - number * bucket_width();
  return {end - std::min(end, bucket_width()), end};
}

void GradientReduction::State::note_for_buckets(size_t offset, size_t count) {
  if (open.missing.empty()) return;
  const size_t end = offset + count;
  for (size_t i = (size - end) / bucket_width(); i < open.missing.size(); ++i) {
    const auto [first, last] = bucket(i);
    if (last <= offset) return;
    open.missing[i] -= std::min(end, last) - std::max(offset, first);
  }
}

void GradientReduction::State::begin_bucket(Communicator& communicator, Stream& stream) {
  const auto [first, end] = bucket(begun);
  float* const from = sums.front().data() + first;
  if (looked_at && work.is_here() && blocks.size() > 1 && own_sum_is_finite)
    own_sum_is_finite = work.finite(from, end - first);
  communicator.all_reduce(from, from, end - first, DType::kF32, ReduceOp::kSum, stream);
  ++begun;
}

bool GradientReduction::State::begin_buckets(Communicator& communicator, Stream& stream) {
  const bool is_whole = open.there.count() == size;
  if (open.missing.empty() || is_whole || !work.is_here() || failed_beginning) return false;
  const size_t before = begun;
  try {
    while (begun < open.missing.size() && open.missing[begun] == 0) begin_bucket(communicator, stream);
    if (begun > before) static_cast<void>(stream.is_idle());  // has it begin now, although nobody waits for it soon
  } catch (const Error& error) {
    failed_beginning = error;
  }
  return before == 0 && begun > 0;
}

void GradientReduction::drop_buckets(Stream& stream) noexcept {
  drain(stream, state_->work);
  state_->reduced = true;
}

void GradientReduction::State::reduce_tree(Communicator& communicator, Stream& stream,
                                           const std::function<void()>& midway) {
  if (slots() <= 1 || size == 0) {  // one rank, or nothing to send
    if (midway) midway();
    if (sums.empty()) push_zero();
    return;
  }
  // Of a slice that has been gathered nobody reads the own sums any more: what it makes goes there.
  if (sums.empty()) push_sum();
  const size_t width = std::min(size, std::max(kNarrowestSlice, kReceiveFloats / slots()));
  const size_t slices = (size + width - 1) / width;
  const auto width_of = [&](size_t slice) { return std::min(width, size - slice * width); };
  gather_slice(communicator, stream, 0, width_of(0), received[0]);
  for (size_t slice = 0; slice < slices; ++slice) {
    stream.synchronize();
    if (midway && slice == (slices - 1) / 2) midway();
    // The next slice travels while this one is folded.
    const size_t next = slice + 1;
    work.finish();  // the buffer of the one before is free
    if (next < slices) gather_slice(communicator, stream, next * width, width_of(next), received[next % 2]);
    fold_slice(received[slice % 2], slice * width, width_of(slice));
  }
  work.finish();
}

void GradientReduction::State::gather_slice(Communicator& communicator, Stream& stream, size_t first, size_t width,
                                            Floats& into) {
  grow(into, slots() * width);
  const auto count = static_cast<size_t>(fold.roots_per_rank) * width;
  const float* from = nullptr;
  if (count == width && sums.size() == 1) {
    from = sums.front().data() + first;
  } else {
    // Ranks with fewer subtrees than others send slots that nobody reads.
    grow(send, count);
    for (size_t k = 0; k < sums.size(); ++k) {
      stream.copy(send.data() + k * width, sums[k].data() + first, width * sizeof(float));
    }
    from = send.data();
  }
  communicator.all_gather(from, into.data(), count, DType::kF32, stream);
}

void GradientReduction::State::fold_slice(const Floats& slice, size_t first, size_t width) {
  for (size_t begin = 0, block = work.block(width); begin < width; begin += block) {
    const size_t count = std::min(block, width - begin);
    for (const SlotAddition& addition : fold.additions) {
      work.add(slice.data() + addition.to * width + begin, slice.data() + addition.from * width + begin, count);
    }
    work.copy(sums.front().data() + first + begin, slice.data() + fold.result * width + begin, count * sizeof(float));
  }
}

void GradientReduction::State::gather_scalars(Communicator& communicator, Stream& stream, ReductionResult& total) {
  // Per rank: loss tokens, digest, parts, then loss and norm of each of its slots. Carried as bits, added here.
  constexpr size_t kHead = 3;
  const auto roots = static_cast<size_t>(fold.roots_per_rank);
  const size_t words = 2 * roots + kHead;
  std::vector<int64_t> own(words);
  own[0] = loss_tokens;
  own[1] = std::bit_cast<int64_t>(digest);
  own[2] = parts;
  for (size_t k = 0; k < std::min(scalars.size(), roots); ++k) {
    own[kHead + 2 * k] = std::bit_cast<int64_t>(scalars[k].loss);
    own[kHead + 2 * k + 1] = std::bit_cast<int64_t>(scalars[k].norm);
  }
  std::vector<int64_t> all(words * static_cast<size_t>(world_size));
  const size_t own_bytes = own.size() * sizeof(int64_t);
  const size_t all_bytes = all.size() * sizeof(int64_t);
  if (scalars_there.bytes() < own_bytes + all_bytes) {
    scalars_there = Buffer();
    scalars_there = Buffer(accelerator, device, own_bytes + all_bytes);
  }
  auto* const all_there = static_cast<std::byte*>(scalars_there.pointer());
  std::byte* const own_there = all_there + all_bytes;
  try {
    stream.copy(own_there, own.data(), own_bytes);
    communicator.all_gather(own_there, all_there, words, DType::kI64, stream);
    stream.copy(all.data(), all_there, all_bytes);
    stream.synchronize();
  } catch (...) {
    drain(stream, work);
    throw;
  }
  std::vector<Scalars> of_slots;
  for (size_t at = 0; at < all.size(); at += words) {
    total.loss_tokens += all[at];
    total.digest += std::bit_cast<uint64_t>(all[at + 1]);
    total.parts += all[at + 2];
    for (size_t k = at + kHead; k < at + words; k += 2) {
      of_slots.push_back({std::bit_cast<double>(all[k]), std::bit_cast<double>(all[k + 1])});
    }
  }
  for (const SlotAddition& addition : fold.additions) of_slots[addition.to].add(of_slots[addition.from]);
  if (of_slots.empty()) return;
  total.loss_sum = of_slots[fold.result].loss;
  total.part_norms = of_slots[fold.result].norm;
}

ReductionResult GradientReduction::reduce(Communicator& communicator, Stream& stream,
                                          const std::function<void()>& midway) {
  State& state = *state_;
  state.check_reducible(communicator);
  state.reduced = true;
  try {
    state.work.finish();
    state.look_at_own_sums();
    if (state.deterministic) {
      state.reduce_tree(communicator, stream, midway);
    } else {
      state.reduce_fast(communicator, stream, midway);
    }
    ReductionResult total;
    state.gather_scalars(communicator, stream, total);
    total.gradient = {state.sums.front().data(), state.size};
    total.not_finite = state.not_finite;
    total.sum_not_finite = state.sum_not_finite;
    total.own_sum_overflows = state.own_sum_overflows;
    total.finite = !state.looked_at ||
                   (std::isfinite(total.loss_sum) && state.work.finite(total.gradient.data(), total.gradient.size()));
    return total;
  } catch (...) {
    drain(stream, state.work);
    throw;
  }
}

}  // namespace pliant::elastic
