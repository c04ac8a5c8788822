// UTF-8 digits to a number.
#include "decimal_text.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace pliant::elasticity {
namespace {

/// The zeros of all scripts with decimal digits in Unicode 14.0.0; the other nine digits follow each.
constexpr std::array<char32_t, 66> kZeros{
    0x0030,  0x0660,  0x06F0,  0x07C0,  0x0966,  0x09E6,  0x0A66,  0x0AE6,  0x0B66,  0x0BE6,  0x0C66,
    0x0CE6,  0x0D66,  0x0DE6,  0x0E50,  0x0ED0,  0x0F20,  0x1040,  0x1090,  0x17E0,  0x1810,  0x1946,
    0x19D0,  0x1A80,  0x1A90,  0x1B50,  0x1BB0,  0x1C40,  0x1C50,  0xA620,  0xA8D0,  0xA900,  0xA9D0,
    0xA9F0,  0xAA50,  0xABF0,  0xFF10,  0x104A0, 0x10D30, 0x11066, 0x110F0, 0x11136, 0x111D0, 0x112F0,
    0x11450, 0x114D0, 0x11650, 0x116C0, 0x11730, 0x118E0, 0x11950, 0x11C50, 0x11D50, 0x11DA0, 0x16A60,
    0x16AC0, 0x16B50, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6, 0x1E140, 0x1E2F0, 0x1E950, 0x1FBF0};

/// Decodes one code point at `at` and moves on; nullopt for bytes that are no UTF-8.
std::optional<char32_t> next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || text.size() - at < length) return std::nullopt;
  char32_t code = length == 1 ? lead : lead & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80) return std::nullopt;
    code = (code << 6U) | (byte(at + i) & 0x3FU);
  }
  at += length;
  return code;
}

std::optional<int> digit(char32_t code) {
  const auto above = std::upper_bound(kZeros.begin(), kZeros.end(), code);
  if (above == kZeros.begin() || code - *std::prev(above) > 9) return std::nullopt;
  return static_cast<int>(code - *std::prev(above));
}

}  // namespace

DecimalText parse_decimal(std::string_view text) {
  if (text.empty()) return {};
  DecimalText parsed{true, 0};
  for (size_t at = 0; at < text.size();) {
    const std::optional<char32_t> code = next_code_point(text, at);
    const std::optional<int> next = code ? digit(*code) : std::nullopt;
    if (!next) return {};
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    if (parsed.value && *parsed.value > (kMost - *next) / 10) parsed.value.reset();
    if (parsed.value) parsed.value = *parsed.value * 10 + *next;
  }
  return parsed;
}

}  // namespace pliant::elasticity
