// Whatever bytes a map of owners or a .safetensors file holds, it is read or refused.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "fuzz/mutations.hpp"
#include "sharded/ownership.hpp"
#include "sharded/safetensors_header.hpp"

using namespace pliant;
using test::fuzz;

TEST_CASE("the header of a .safetensors file is refused, or says of every byte whose it is") {
  sharded::SafetensorsHeader header{{{"a", DType::kF32, {2, 3}}, {"b", DType::kBF16, {}}, {"c", DType::kU8, {0}}},
                                    {{"format", "pt"}}};
  const std::string whole = *sharded::encode_safetensors_header(header);
  const std::vector<std::string> words{
      "null",   "-1",      "1e9",        "18446744073709551615", "[",      "{", "\"I64\"",
      "[0,24]", "[24,26]", "\"shape\":", "\"__metadata__\":",    "\\u0000"};
  int read = 0;
  fuzz({whole.substr(8)}, words, [&](std::string_view text) {
    const auto found = sharded::decode_safetensors_header(text, 26);
    if (!found) {
      CHECK(found.error().message().size() > 5);
      return;
    }
    ++read;
    uint64_t end = 0;
    for (const sharded::Tensor& tensor : found->tensors) {
      CHECK(tensor.first_byte == end);
      CHECK(tensor.bytes == sharded::bytes_of(tensor).value_or(~uint64_t{0}));
      end += tensor.bytes;
    }
    CHECK(end == 26);
  });
  CHECK(read > 0);
}

TEST_CASE("a map of owners is refused, or read as it would be written") {
  const std::string whole = sharded::Ownership::deal(40, 2)->save();
  const std::vector<std::string> words{"-1", "1e400", " 1:0", " 1048576:1", "ranks 1"};
  int read = 0;
  fuzz({whole}, words, [&](std::string_view text) {
    const auto map = sharded::Ownership::load(text);
    if (!map) return;
    ++read;
    CHECK(map->save() == text);
  });
  CHECK(read > 0);
}
