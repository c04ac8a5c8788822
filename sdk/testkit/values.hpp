// Elements of every type, and the plainest arithmetic on them: what work of an accelerator is compared with.
#pragma once

#include <cstdint>
#include <string>

#include "testkit/accelerator.hpp"

namespace pliant::testkit {

inline constexpr int32_t kTypes[] = {PLIANT_F32, PLIANT_F64, PLIANT_I32, PLIANT_I64,
                                     PLIANT_U8,  PLIANT_F16, PLIANT_BF16};
inline constexpr int32_t kOps[] = {PLIANT_SUM, PLIANT_MIN, PLIANT_MAX};

uint64_t size_of(int32_t dtype);
bool is_integer(int32_t dtype);
bool is_sixteen(int32_t dtype);  ///< PLIANT_F16 or PLIANT_BF16
const char* name_of_type(int32_t dtype);
const char* name_of_op(int32_t op);

/// A number that depends on nothing but the arguments.
uint64_t drawn(uint64_t seed, uint64_t where, uint64_t index);

/// Bytes drawn from (seed, where).
Bytes drawn_bytes(uint64_t seed, uint64_t where, uint64_t count);

/// `count` elements of one type. Holds every value of every type exactly as long double.
class Elements {
 public:
  Elements(int32_t dtype, uint64_t count) : dtype_(dtype), count_(count), bytes_(count * size_of(dtype)) {}
  Elements(int32_t dtype, Bytes bytes)
      : dtype_(dtype), count_(bytes.size() / size_of(dtype)), bytes_(std::move(bytes)) {}

  [[nodiscard]] int32_t dtype() const { return dtype_; }
  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }
  [[nodiscard]] unsigned char* at(uint64_t i) { return bytes_.data() + i * size_of(dtype_); }

  [[nodiscard]] long double get(uint64_t i) const;
  /// The nearest value of the type, ties to even, infinity past the largest. For integers a value that they hold.
  void put(uint64_t i, long double value);
  [[nodiscard]] int64_t integer(uint64_t i) const;
  /// The low bits.
  void put_integer(uint64_t i, int64_t value);

 private:
  template <class T>
  [[nodiscard]] T load(uint64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void store(uint64_t i, T value) {
    std::memcpy(bytes_.data() + i * sizeof(T), &value, sizeof(T));
  }
  int32_t dtype_;
  uint64_t count_;
  Bytes bytes_;
};

/// What values are drawn for.
enum class Draw {
  kSmall,     ///< whole numbers 0..100 (16 bits: 0..14): sums of a few are exact; u8 wraps
  kRounding,  ///< sums are rounded, so that the order of additions shows; integers take their whole range
  kSixteenth  ///< sums of a few are exact in float and not in 16 bits
};
/// Elements `first`, `first` + 1, ... of a list that depends on nothing but the other arguments.
Elements drawn_elements(int32_t dtype, uint64_t count, Draw draw, uint64_t seed, uint64_t where, uint64_t first = 0);

/// (from[0] op from[1] op ...) * scale, element by element, in this order; 16-bit floats in float, rounded once.
Elements reduced(const std::vector<Elements>& from, int32_t op, double scale);

/// The first element in which two arrays differ by more than `units` in the last place, in words; "" when none does.
std::string difference(const Elements& got, const Elements& wanted, int units = 0);

}  // namespace pliant::testkit
