// numpy's .npy, format versions 1 to 3: a magic, the length of a header, the header as a Python literal, the numbers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "data/lengths/formats.hpp"

namespace pliant::data {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

/// The text behind 'key': in the header, without leading blanks.
std::optional<std::string_view> entry(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = header.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

struct Type {
  Number number = Number::kI64;
  bool swapped = false;
};

/// '<i4', '>f8', '|u1'.
std::optional<Type> type_of(std::string_view text) {
  using Named = std::pair<std::string_view, Number>;
  constexpr std::array<Named, 10> kTypes{{{"u1", Number::kU8},
                                          {"i1", Number::kI8},
                                          {"i2", Number::kI16},
                                          {"i4", Number::kI32},
                                          {"i8", Number::kI64},
                                          {"u2", Number::kU16},
                                          {"u4", Number::kU32},
                                          {"u8", Number::kU64},
                                          {"f4", Number::kF32},
                                          {"f8", Number::kF64}}};
  if (text.size() < 5 || (text[0] != '\'' && text[0] != '"') || text[4] != text[0]) return std::nullopt;
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [name = text.substr(2, 2)](const Named& type) { return type.first == name; });
  if (found == kTypes.end() || std::string_view("<>|=").find(text[1]) == std::string_view::npos) return std::nullopt;
  return Type{found->second, text[1] == '>'};
}

/// The n of "(n,)".
std::optional<uint64_t> count_of(std::string_view text) {
  uint64_t count = 0;
  if (text.empty() || text.front() != '(') return std::nullopt;
  text.remove_prefix(1);
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (problem != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return text.substr(0, 2) == ",)" ? std::optional(count) : std::nullopt;
}

}  // namespace

Result<NumberArray> find_in_npy(const SharedFile& file, const std::string& name) {
  const std::string_view bytes = file->bytes();
  if (!bytes.starts_with(kNpyMagic)) return damaged(name, "it is not a .npy file: it does not start with \\x93NUMPY");
  if (bytes.size() < 12) return damaged(name, "it ends within its header");
  const auto version = static_cast<unsigned char>(bytes[6]);
  if (version < 1 || version > 3)
    return damaged(name, fmt::format(".npy format version {} is unknown; known are 1 to 3", version));
  const size_t start = version == 1 ? 10 : 12;
  uint32_t size = 0;
  std::memcpy(&size, bytes.data() + 8, start - 8);
  if (size > bytes.size() - start) return damaged(name, "it ends within its header");
  const std::string_view header = bytes.substr(start, size);
  const auto descr = entry(header, "descr");
  const auto shape = entry(header, "shape");
  if (!descr || !shape) return damaged(name, "its header lacks descr or shape");
  const std::optional<Type> type = type_of(*descr);
  const std::optional<uint64_t> count = count_of(*shape);
  if (!type) {
    return damaged(name, fmt::format("its type {} is neither integer nor float", descr->substr(0, descr->find(','))));
  }
  if (!count) return damaged(name, "its array does not have exactly one dimension; save it as a flat array");
  const std::string_view data = bytes.substr(start + size);
  if (data.size() / width_of(type->number) != *count || data.size() % width_of(type->number) != 0) {
    return damaged(
        name, fmt::format("{} numbers need {} bytes, it has {}", *count, *count * width_of(type->number), data.size()));
  }
  return NumberArray{file, data, type->number, type->swapped, name};
}

}  // namespace pliant::data
