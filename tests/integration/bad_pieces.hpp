// Hands a step every piece of a gradient that is none, beside the right ones: each must be refused by name and leave
// the step as it was.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "pliant/session.hpp"

/// Throws std::logic_error unless `call` is refused as an invalid argument in these words.
template <class Call>
void must_refuse(const std::string& words, Call&& call) {
  try {
    call();
  } catch (const pliant::Error& error) {
    if (error.status() == pliant::Status::kInvalidArgument && error.message().find(words) != std::string::npos) return;
    throw std::logic_error(fmt::format("in place of '{}': {}", words, error.message()));
  }
  throw std::logic_error(fmt::format("nothing was refused in place of '{}'", words));
}

/// Adds a micro-batch in pieces from the device, and all that is wrong between them.
class BadPieces {
 public:
  /// Where no memory is.
  static void* nowhere() { return reinterpret_cast<void*>(uintptr_t{1} << 16U); }

  explicit BadPieces(pliant::Session& session) : session_(session) {}

  void add(pliant::Step& step, pliant::RowRange rows, double loss, std::span<const float> gradient) {
    const pliant::Buffer there(session_.accelerator(), session_.device(), gradient.size_bytes());
    session_.stream().copy(there.pointer(), gradient.data(), gradient.size_bytes());
    const auto* const from = static_cast<const float*>(there.pointer());
    const uint64_t size = gradient.size();
    const uint64_t half = size / 2;
    refuse_foreign(step, rows, size);
    refuse(step, rows, {0, size + 1, from}, "gradient_size() said");
    refuse(step, rows, {half, size, from}, "gradient_size() said");
    refuse(step, rows, {0, size, nullptr}, "is a null pointer");
    refuse(step, rows, {0, half, from, static_cast<pliant::DType>(99)}, "has the type 99");
    refuse(step, {rows.first + 1, rows.count}, {0, half, from}, "is out of order");
    step.add_piece(rows, {0, half, from});
    refuse(step, rows, {0, half, from}, "overlaps a piece that was added before");
    refuse(step, rows, {half - 1, 2, from}, "overlaps a piece that was added before");
    refuse(step, rows, {0, size, from}, "overlaps a piece that was added before");
    must_refuse("lacks elements", [&] { step.add(rows, loss); });
    refuse_foreign(step, rows, size);
    step.add_piece(rows, {half, size - half, from + half});
    step.add(rows, loss);
    must_refuse("is out of order", [&] { step.add(rows, loss); });
    refuse(step, rows, {0, half, from}, "is out of order");
    session_.stream().synchronize();  // before the piece is freed
  }
  /// When the step is committed, or has been given up.
  static void add_late(pliant::Step& step, pliant::RowRange rows, std::span<const float> gradient) {
    refuse(step, rows, {0, gradient.size(), gradient.data()}, "were added already");
  }

 private:
  static void refuse(pliant::Step& step, pliant::RowRange rows, const pliant::GradientPiece& piece,
                     const std::string& words) {
    must_refuse(words, [&] { step.add_piece(rows, piece); });
  }
  /// Memory that is none for this rank. The second half of the gradient, which has not been added.
  void refuse_foreign(pliant::Step& step, pliant::RowRange rows, uint64_t size) {
    const pliant::Accelerator& accelerator = session_.accelerator();
    const int32_t device = session_.device();
    const uint64_t half = size / 2;
    const uint64_t count = size - half;
    refuse(step, rows, {half, count, nowhere()}, "is memory of neither the accelerator nor this process");
    if (!kKeepsFreed || !accelerator.properties(device).host_visible) {
      const void* freed = nullptr;
      {
        constexpr uint64_t kLarge = uint64_t{40} << 20U;  // bytes that the C library gives back when they are freed
        const pliant::Buffer gone(accelerator, device, kLarge);
        freed = gone.pointer();
      }
      refuse(step, rows, {half, count, freed}, "it was freed, or the pointer is wrong");
    }
    const pliant::Buffer narrow(accelerator, device, count * sizeof(float) - 4);
    refuse(step, rows, {half, count, narrow.pointer()}, "exceeds its allocation");
    if (accelerator.device_count() == 1) return;
    const int32_t next = (device + 1) % accelerator.device_count();
    const pliant::Buffer foreign(accelerator, next, count * sizeof(float));
    refuse(step, rows, {half, count, foreign.pointer()},
           fmt::format("is memory of device {}, but this rank computes on device {}", next, device));
  }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool kKeepsFreed = true;  ///< of what malloc gave
#else
  static constexpr bool kKeepsFreed = false;
#endif
  pliant::Session& session_;
};
