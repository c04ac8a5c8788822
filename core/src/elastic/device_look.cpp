#include "elastic/device_look.hpp"

#include <array>
#include <cmath>

#include "accelerator/norms_on_device.hpp"
#include "pliant/error.hpp"
#include "pliant/optimizer.hpp"

namespace pliant::elastic {
namespace {

/// Parts that end within a chunk take a number more each; so many are folded at once.
constexpr size_t kPartsAtOnce = 1024;

double* numbers_in(const Buffer& buffer) {
  return static_cast<double*>(buffer.pointer());
}

}  // namespace

DeviceLook::DeviceLook(const Accelerator& accelerator, int32_t device, Stream& stream, size_t gradient_size)
    : accelerator_(accelerator),
      device_(device),
      stream_(stream),
      capacity_(static_cast<size_t>(norm_chunks(gradient_size)) + kPartsAtOnce) {}

void DeviceLook::begin(size_t blocks) {
  is_ready_ = false;
  blocks_ = blocks;
  block_ = 0;
  used_ = 0;
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
  grow(folded_, static_cast<size_t>(norm_chunks(2 * capacity_)) + 1);
  grow(marks_, blocks_);
  stream_.fill(marks_.pointer(), 0, blocks_ * sizeof(double));
  is_ready_ = true;
}

bool DeviceLook::norms(double* to, const void* from, size_t floats) {
  return detail::squared_norms_there(stream_, to, static_cast<const float*>(from), floats);
}

void DeviceLook::add(const float* from, size_t count) {
  if (!can_ || count == 0) return;
  if (!is_ready_ && !has_memory()) return;
  const auto more = static_cast<size_t>(norm_chunks(count));
  if (used_ + more > capacity_) {
    double* const one = numbers_in(folded_) + norm_chunks(2 * capacity_);
    fold(one);
    stream_.copy(numbers_.pointer(), one, sizeof(double));
    used_ = 1;
  }
  // No float is so large that the squares of a chunk overflow a double.
  can_ = norms(numbers_in(numbers_) + used_, from, count);
  if (can_) used_ += more;
}

// Times zero, a number is zero where it was finite, else a NaN; seen as two floats each it is that, too, and so are the
// squared norms of these.
void DeviceLook::fold(double* to) {
  double* from = numbers_in(numbers_);
  double* other = numbers_in(folded_);
  const std::array<const void*, 1> numbers{from};
  if (used_ > 1) stream_.reduce(from, numbers, used_, DType::kF64, ReduceOp::kSum, 0.0);
  while (used_ > 1) {
    const auto fewer = static_cast<size_t>(norm_chunks(2 * used_));
    double* const next = fewer == 1 ? to : other;
    can_ = norms(next, from, 2 * used_) && can_;
    other = from;
    from = next;
    used_ = fewer;
  }
  if (from != to) stream_.copy(to, from, sizeof(double));
  used_ = 0;
}

void DeviceLook::close_block() {
  if (used_ > 0) fold(numbers_in(marks_) + block_);
  ++block_;
}

std::optional<std::vector<size_t>> DeviceLook::not_finite() {
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

}  // namespace pliant::elastic
