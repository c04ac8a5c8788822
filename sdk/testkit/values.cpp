// Plain arithmetic, written to be obviously right; what is drawn is the most that a run of the kit computes.
#include "testkit/values.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

namespace pliant::testkit {

static_assert(std::numeric_limits<long double>::digits >= 64, "long double must hold every int64_t");

namespace {

/// A floating type: bits of the mantissa without the leading one, exponents of normal numbers.
struct Format {
  int mantissa;
  int least_exponent;
  int largest_exponent;
  /// Of infinity and NaN.
  [[nodiscard]] uint64_t most_biased_exponent() const { return 2 * static_cast<uint64_t>(largest_exponent) + 1; }
};

constexpr Format kHalf{10, -14, 15};
constexpr Format kBFloat{7, -126, 127};

/// Of PLIANT_F16 or PLIANT_BF16.
const Format& format_of_sixteen(int32_t dtype) {
  return dtype == PLIANT_F16 ? kHalf : kBFloat;
}

Format format_of(int32_t dtype) {
  switch (dtype) {
    case PLIANT_F16:
    case PLIANT_BF16:
      return format_of_sixteen(dtype);
    case PLIANT_F32:
      return {23, -126, 127};
    default:
      return {52, -1022, 1023};
  }
}

/// Distance to the next value of the type at this magnitude.
long double step_at(long double value, const Format& format) {
  const int exponent =
      value == 0 || !std::isfinite(value) ? format.least_exponent : std::max(std::ilogb(value), format.least_exponent);
  return std::ldexp(1.0L, exponent - format.mantissa);
}

/// What a 16-bit float is worth. A float holds every such value, with the same bits in other places.
float widened(uint16_t bits, const Format& format) {
  const uint32_t exponent = uint32_t{bits} >> format.mantissa & static_cast<uint32_t>(format.most_biased_exponent());
  const uint32_t fraction = bits & ((uint32_t{1} << format.mantissa) - 1);
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16U;
  if (exponent == 0) {
    const float magnitude =
        fraction == 0 ? 0.0F : std::ldexp(static_cast<float>(fraction), format.least_exponent - format.mantissa);
    return sign != 0 ? -magnitude : magnitude;
  }
  const bool is_finite = exponent != format.most_biased_exponent();
  const uint32_t wide = is_finite ? exponent + 127 - static_cast<uint32_t>(format.largest_exponent) : 255;
  return std::bit_cast<float>(sign | wide << 23U | fraction << (23 - format.mantissa));
}

/// The nearest 16-bit float, ties to even. `value` is rounded once: a double that does not hold it stands for it, with
/// a last bit that says so.
uint16_t narrowed(long double value, const Format& format) {
  const auto infinity = static_cast<uint16_t>(format.most_biased_exponent() << format.mantissa);
  if (std::isnan(value)) return static_cast<uint16_t>(infinity | uint64_t{1} << (format.mantissa - 1));
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const long double magnitude = std::abs(value);
  auto bits = std::bit_cast<uint64_t>(static_cast<double>(magnitude));
  const auto held = static_cast<long double>(std::bit_cast<double>(bits));
  if (held > magnitude) --bits;  // towards zero
  if (held != magnitude) bits |= 1U;
  const int exponent = static_cast<int>(bits >> 52U) - 1023;
  if (exponent > format.largest_exponent) return static_cast<uint16_t>(sign | infinity);
  // Far below the smallest value; a double below its own normal numbers, too.
  if (exponent < format.least_exponent - format.mantissa - 1) return sign;
  const uint64_t significand = (bits & ((uint64_t{1} << 52U) - 1)) | uint64_t{1} << 52U;
  const int below = std::max(format.least_exponent - exponent, 0);
  const int cut = 52 - format.mantissa + below;
  const uint64_t rest = significand & ((uint64_t{1} << cut) - 1);
  const uint64_t half = uint64_t{1} << (cut - 1);
  uint64_t kept = significand >> cut;
  if (rest > half || (rest == half && (kept & 1U) != 0)) ++kept;
  // The leading one of `kept` is the last bit of the exponent; one that rounding has moved up is carried into it.
  const int biased = below > 0 ? 0 : exponent - format.least_exponent;
  return static_cast<uint16_t>(sign | ((static_cast<uint64_t>(biased) << format.mantissa) + kept));
}

/// One step of splitmix64 over another word.
uint64_t mixed(uint64_t state, uint64_t word) {
  state += word + 0x9e3779b97f4a7c15ULL;
  state = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  state = (state ^ (state >> 27U)) * 0x94d049bb133111ebULL;
  return state ^ state >> 31U;
}

/// Makes each element one of `few`, of which there are kCount, by the numbers drawn(seed, where, first + i) that begin
/// with this state.
template <uint64_t kCount, class Bits>
void fill_as(Elements& made, const Elements& few, uint64_t state, uint64_t first) {
  std::array<Bits, kCount> values;
  std::memcpy(values.data(), few.bytes().data(), sizeof(values));
  unsigned char* const to = made.at(0);
  for (uint64_t i = 0; i < made.count(); ++i) {
    std::memcpy(to + i * sizeof(Bits), &values[mixed(state, first + i) % kCount], sizeof(Bits));
  }
}

template <uint64_t kCount>
void fill_with(Elements& made, const Elements& few, uint64_t state, uint64_t first) {
  switch (size_of(made.dtype())) {
    case 1:
      return fill_as<kCount, uint8_t>(made, few, state, first);
    case 2:
      return fill_as<kCount, uint16_t>(made, few, state, first);
    case 4:
      return fill_as<kCount, uint32_t>(made, few, state, first);
    default:
      return fill_as<kCount, uint64_t>(made, few, state, first);
  }
}

template <class T>
T folded(int32_t op, T a, T b) {
  if (op == PLIANT_SUM) return a + b;
  return op == PLIANT_MIN ? std::min(a, b) : std::max(a, b);
}

}  // namespace

uint64_t size_of(int32_t dtype) {
  switch (dtype) {
    case PLIANT_F64:
    case PLIANT_I64:
      return 8;
    case PLIANT_U8:
      return 1;
    case PLIANT_F16:
    case PLIANT_BF16:
      return 2;
    default:
      return 4;
  }
}

bool is_integer(int32_t dtype) {
  return dtype == PLIANT_I32 || dtype == PLIANT_I64 || dtype == PLIANT_U8;
}

bool is_sixteen(int32_t dtype) {
  return dtype == PLIANT_F16 || dtype == PLIANT_BF16;
}

const char* name_of_type(int32_t dtype) {
  const char* const names[] = {"?", "f32", "f64", "i32", "i64", "u8", "f16", "bf16"};
  return names[dtype];
}

const char* name_of_op(int32_t op) {
  const char* const names[] = {"?", "sum", "min", "max"};
  return names[op];
}

uint64_t drawn(uint64_t seed, uint64_t where, uint64_t index) {
  return mixed(mixed(mixed(0, seed), where), index);
}

Bytes drawn_bytes(uint64_t seed, uint64_t where, uint64_t count) {
  Bytes made(count);
  for (uint64_t i = 0; i < count; i += 8) {
    const uint64_t word = drawn(seed, where, i);
    std::memcpy(made.data() + i, &word, std::min<uint64_t>(8, count - i));
  }
  return made;
}

long double Elements::get(uint64_t i) const {
  if (is_integer(dtype_)) return static_cast<long double>(integer(i));
  if (dtype_ == PLIANT_F32) return static_cast<long double>(load<float>(i));
  if (dtype_ == PLIANT_F64) return static_cast<long double>(load<double>(i));
  return static_cast<long double>(widened(load<uint16_t>(i), format_of_sixteen(dtype_)));
}

void Elements::put(uint64_t i, long double value) {
  if (is_integer(dtype_)) return put_integer(i, static_cast<int64_t>(value));
  if (dtype_ == PLIANT_F32) return store(i, static_cast<float>(value));
  if (dtype_ == PLIANT_F64) return store(i, static_cast<double>(value));
  store(i, narrowed(value, format_of_sixteen(dtype_)));
}

int64_t Elements::integer(uint64_t i) const {
  if (dtype_ == PLIANT_I32) return load<int32_t>(i);
  if (dtype_ == PLIANT_I64) return load<int64_t>(i);
  return load<uint8_t>(i);
}

void Elements::put_integer(uint64_t i, int64_t value) {
  std::memcpy(at(i), &value, size_of(dtype_));  // little-endian: the low bits come first
}

Elements drawn_elements(int32_t dtype, uint64_t count, Draw draw, uint64_t seed, uint64_t where, uint64_t first) {
  Elements made(dtype, count);
  const uint64_t state = mixed(mixed(0, seed), where);  // of drawn(seed, where, first + i)
  if (draw == Draw::kSmall) {
    Elements few(dtype, is_sixteen(dtype) ? 15 : 101);
    for (uint64_t v = 0; v < few.count(); ++v) few.put(v, static_cast<long double>(v));
    is_sixteen(dtype) ? fill_with<15>(made, few, state, first) : fill_with<101>(made, few, state, first);
  } else if (is_integer(dtype)) {
    for (uint64_t i = 0; i < count; ++i) made.put_integer(i, static_cast<int64_t>(mixed(state, first + i)));
  } else if (draw == Draw::kSixteenth) {
    Elements few(dtype, 401);
    for (uint64_t v = 0; v < few.count(); ++v) {
      const int64_t steps = static_cast<int64_t>(v) - 200;
      few.put(v, static_cast<long double>(dtype == PLIANT_F16 ? steps * 10 : steps) / (dtype == PLIANT_F16 ? 16 : 4));
    }
    fill_with<401>(made, few, state, first);
  } else {
    for (uint64_t i = 0; i < count; ++i) {
      const auto word = static_cast<int64_t>(mixed(state, first + i));
      made.put(i, static_cast<long double>(word) * 0x1p-57L);  // -64..64, all bits of it
    }
  }
  return made;
}

Elements reduced(const std::vector<Elements>& from, int32_t op, double scale) {
  const Elements& first = from.front();
  Elements made(first.dtype(), first.count());
  for (uint64_t i = 0; i < first.count(); ++i) {
    if (is_integer(first.dtype())) {
      int64_t value = first.integer(i);
      for (size_t s = 1; s < from.size(); ++s) {
        const int64_t next = from[s].integer(i);
        // Unsigned, so that it wraps.
        value = op == PLIANT_SUM ? static_cast<int64_t>(static_cast<uint64_t>(value) + static_cast<uint64_t>(next))
                                 : folded(op, value, next);
      }
      made.put_integer(i, value);
    } else if (first.dtype() == PLIANT_F64) {
      auto value = static_cast<double>(first.get(i));
      for (size_t s = 1; s < from.size(); ++s) value = folded(op, value, static_cast<double>(from[s].get(i)));
      made.put(i, static_cast<long double>(value * scale));
    } else {
      auto value = static_cast<float>(first.get(i));
      for (size_t s = 1; s < from.size(); ++s) value = folded(op, value, static_cast<float>(from[s].get(i)));
      made.put(i, static_cast<long double>(scale == 1 ? value : value * static_cast<float>(scale)));
    }
  }
  return made;
}

std::string difference(const Elements& got, const Elements& wanted, int units) {
  if (got.bytes() == wanted.bytes()) return "";
  for (uint64_t i = 0; i < wanted.count(); ++i) {
    std::ostringstream text;
    text.precision(std::numeric_limits<double>::max_digits10);
    text << "element " << i << " of " << wanted.count() << " is ";
    if (is_integer(wanted.dtype())) {
      if (got.integer(i) == wanted.integer(i)) continue;
      text << got.integer(i) << ", not " << wanted.integer(i);
      return text.str();
    }
    const long double a = got.get(i);
    const long double b = wanted.get(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (std::abs(a - b) <= static_cast<long double>(units) * step_at(b, format_of(wanted.dtype()))) continue;
    text << a << ", not " << b;
    if (units > 0) text << " (" << units << " units in the last place are allowed)";
    return text.str();
  }
  return "";
}

}  // namespace pliant::testkit
