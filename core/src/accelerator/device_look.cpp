#include "accelerator/device_look.hpp"

#include <array>
#include <cmath>
#include <utility>

#include "accelerator/norms_on_device.hpp"
#include "pliant/error.hpp"
#include "pliant/optimizer.hpp"

namespace pliant::detail {
namespace {

double* numbers_in(const Buffer& buffer) {
  return static_cast<double*>(buffer.pointer());
}

}  // namespace

DeviceLook::DeviceLook(const Accelerator& accelerator, int32_t device, Stream& stream, size_t elements)
    : accelerator_(accelerator),
      device_(device),
      stream_(stream),
      capacity_(static_cast<size_t>(norm_chunks(elements)) + kPartsAtOnce) {}

void DeviceLook::begin(size_t blocks) {
  is_ready_ = false;
  blocks_ = blocks;
  first_ = closed_ = used_ = 0;
}

// Without it rows are told together; nobody stops for that.
bool DeviceLook::has_memory() {
  try {
    take_memory();
  } catch (const Error& error) {
    if (error.status() != Status::kResourceExhausted) throw;
    can_ = false;
  }
  return can_;
}

void DeviceLook::take_memory() {
  const auto grow = [this](Buffer& buffer, size_t count) {
    if (buffer.bytes() >= count * sizeof(double)) return;
    if (buffer.bytes() > 0) stream_.synchronize();  // a step that was given up may still use it
    buffer = Buffer();
    buffer = Buffer(accelerator_, device_, count * sizeof(double));
  };
  grow(numbers_, capacity_);
  grow(folded_, static_cast<size_t>(norm_chunks(2 * capacity_)));
  grow(marks_, blocks_);
  stream_.fill(marks_.pointer(), 0, blocks_ * sizeof(double));
  is_ready_ = true;
}

bool DeviceLook::norms(double* to, const void* from, size_t floats) {
  return squared_norms_there(stream_, to, static_cast<const float*>(from), floats);
}

bool DeviceLook::add(const float* from, size_t count) {
  if (!can_ || count == 0) return can_;
  if (!is_ready_ && !has_memory()) return false;
  const auto more = static_cast<size_t>(norm_chunks(count));
  if (used_ + more > capacity_) make_room(more);
  // No float is so large that the squares of a chunk overflow a double.
  can_ = norms(numbers_in(numbers_) + used_, from, count) && can_;
  if (can_) used_ += more;
  return can_;
}

// Times zero, a number is zero where it was finite, else a NaN; seen as two floats each it is that, too, and so are the
// squared norms of these.
double* DeviceLook::fold(size_t first, size_t count) {
  double* from = numbers_in(numbers_) + first;
  double* other = numbers_in(folded_);
  const std::array<const void*, 1> numbers{from};
  if (count > 1) stream_.reduce(from, numbers, count, DType::kF64, ReduceOp::kSum, 0.0);
  while (count > 1) {
    can_ = norms(other, from, 2 * count) && can_;
    count = static_cast<size_t>(norm_chunks(2 * count));
    std::swap(from, other);
  }
  return from;
}

// Sums of so few of them do not overflow either.
void DeviceLook::settle() {
  if (first_ < closed_) {
    double* const mark = numbers_in(marks_) + block_;
    const std::array<const void*, 2> both{mark, fold(first_, closed_ - first_)};
    stream_.reduce(mark, both, 1, DType::kF64, ReduceOp::kSum);
  }
  first_ = closed_;
  if (first_ == used_) first_ = closed_ = used_ = 0;
}

void DeviceLook::make_room(size_t more) {
  settle();
  if (used_ + more <= capacity_) return;
  const double* const one = fold(first_, used_ - first_);
  if (one != numbers_in(numbers_)) stream_.copy(numbers_.pointer(), one, sizeof(double));
  first_ = closed_ = 0;
  used_ = 1;
}

void DeviceLook::close(size_t block) {
  if (used_ == closed_) return;
  if (block != block_) settle();
  block_ = block;
  closed_ = used_;
}

std::optional<std::vector<size_t>> DeviceLook::not_finite() {
  if (can_ && is_ready_) settle();
  if (!can_) return std::nullopt;
  std::vector<size_t> found;
  if (!is_ready_) return found;
  std::vector<double> marks(blocks_);
  stream_.copy(marks.data(), marks_.pointer(), blocks_ * sizeof(double));
  stream_.synchronize();
  for (size_t block = 0; block < marks.size(); ++block) {
    if (!std::isfinite(marks[block])) found.push_back(block);
  }
  return found;
}

}  // namespace pliant::detail
