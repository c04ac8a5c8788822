// .safetensors files: what is refused, and that what is written is what others would read.
#include "sharded/files/safetensors.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "says.hpp"
#include "scratch_folder.hpp"

namespace pliant::sharded {
namespace {

using test::ScratchFolder;

std::string u64(uint64_t value) {
  std::string bytes;
  for (unsigned i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

/// Why a file of this header and `data_bytes` bytes is refused; empty: it is not.
std::string refusal(const std::string& json, uint64_t data_bytes, Status status = Status::kDataLoss) {
  const ScratchFolder folder;
  test::write_all(folder / "t.safetensors", u64(json.size()) + json + std::string(data_bytes, 'x'));
  const auto reader = SafetensorsReader::open(folder / "t.safetensors");
  if (reader) return {};
  CHECK(reader.error().status() == status);
  CHECK(reader.error().message().find("t.safetensors as a .safetensors file: ") != std::string::npos);
  return reader.error().message();
}

std::string f32(const std::string& shape, const std::string& offsets) {
  return R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST_CASE("numbers of 16 bits are read as the f32 that they are, in blocks") {
  const ScratchFolder folder;
  const auto values_of = [&folder](const std::string& dtype, const std::vector<uint16_t>& bits) {
    std::string data;
    for (const uint16_t one : bits) data += {static_cast<char>(one & 0xFFU), static_cast<char>(one >> 8U)};
    const std::string json = R"({"t":{"dtype":")" + dtype + R"(","shape":[)" + std::to_string(bits.size()) +
                             R"(],"data_offsets":[0,)" + std::to_string(data.size()) + "]}}";
    test::write_all(folder / "t", u64(json.size()) + json + data);
    const auto reader = SafetensorsReader::open(folder / "t");
    REQUIRE(reader.has_value());
    std::vector<float> values(bits.size());
    REQUIRE(reader->read_floats(*reader->find("t"), values).has_value());
    return values;
  };
  const float infinite = std::numeric_limits<float>::infinity();
  CHECK(values_of("F16", {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x03FF, 0x0400, 0x7C00, 0xFC00, 0x3555}) ==
        std::vector<float>{1, -2, 0x1p-24F, 65504, 1023 * 0x1p-24F, 0x1p-14F, infinite, -infinite, 0x1.554p-2F});
  CHECK(std::signbit(values_of("F16", {0x8000}).front()));
  CHECK(std::isnan(values_of("F16", {0x7E00}).front()));
  CHECK(values_of("BF16", {0x3F80, 0xC000, 0x0001, 0xFF80}) == std::vector<float>{1, -2, 0x1p-133F, -infinite});
  const std::vector<float> many = values_of("BF16", std::vector<uint16_t>(10000, 0x4040));
  CHECK(std::count(many.begin(), many.end(), 3.0F) == 10000);
  const std::string json = R"({"t":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})";
  test::write_all(folder / "i", u64(json.size()) + json + "xxxx");
  const auto reader = SafetensorsReader::open(folder / "i");
  REQUIRE(reader.has_value());
  std::vector<float> values(1);
  CHECK(reader->read_floats(*reader->find("t"), values).error().status() == Status::kUnimplemented);
}

TEST_CASE("headers that are cut, too long or no JSON are refused") {
  const ScratchFolder folder;
  const auto open = [&folder](const std::string& bytes) {
    test::write_all(folder / "t", bytes);
    const auto reader = SafetensorsReader::open(folder / "t");
    REQUIRE_FALSE(reader.has_value());
    CHECK(reader.error().status() == Status::kDataLoss);
    return reader.error().message();
  };
  CHECK(says(open(""), "cut short"));
  CHECK(says(open("1234567"), "cut short"));
  CHECK(says(open(u64(3) + "{}"), "cut short"));
  CHECK(says(open(u64(100'000'001) + "{}"), "would have 100000001 bytes"));
  CHECK(says(open(u64(~uint64_t{0}) + "{}"), "would have 18446744073709551615 bytes"));
  CHECK(says(refusal("", 0), "does not begin with '{'"));
  CHECK(says(refusal(" {}", 0), "does not begin with '{'"));
  CHECK(says(refusal("[]", 0), "does not begin with '{'"));
  CHECK(says(refusal("{", 0), "not JSON at byte"));
  CHECK(says(refusal("{} {}", 0), "not JSON at byte"));
  CHECK(says(refusal("{\"\xff\":1}", 0), "not JSON at byte"));
  CHECK(SafetensorsReader::open(folder / "none").error().status() == Status::kNotFound);
}

TEST_CASE("members that describe no tensor are refused by name") {
  CHECK(says(refusal(R"({"a":1})", 0), "1 is unexpected"));
  CHECK(says(refusal(R"({"a":"x"})", 0), "'x' is unexpected"));
  CHECK(says(refusal(R"({"a":null})", 0), "null"));
  CHECK(says(refusal(R"({"a":true})", 0), "a boolean where"));
  CHECK(says(refusal(R"({"a":[]})", 0), "an array is unexpected"));
  CHECK(says(refusal(R"({"a":{}})", 0), "'a' lacks"));
  CHECK(says(refusal(R"({"a":{"dtype":"F32","shape":[]}})", 0), "'a' lacks"));
  CHECK(says(refusal(R"({"a":{"kind":"F32"}})", 0), "a tensor cannot have 'kind'"));
  CHECK(says(refusal(R"({"a":{"dtype":{}}})", 0), "nests deeper"));
  CHECK(says(refusal(R"({"a":{"shape":[[1]]}})", 0), "an array is unexpected"));
  CHECK(says(refusal(R"({"a":)" + f32("[1]", "[0,4,8]") + "}", 4), "not [begin, end]"));
  CHECK(says(refusal(R"({"a":)" + f32("[1]", "[4,0]") + "}", 4), "not [begin, end]"));
  CHECK(says(refusal(R"({"a":)" + f32("[-1]", "[0,4]") + "}", 4), "-1 is not a size"));
  CHECK(says(refusal(R"({"a":)" + f32("[1.0]", "[0,4]") + "}", 4), "1.0 is not a size"));
  CHECK(says(refusal(R"({"a":)" + f32("[18446744073709551615]", "[0,4]") + "}", 4), "is not a size"));
  CHECK(says(refusal(R"({"__metadata__":{"a":1}})", 0), "1 is unexpected"));
  CHECK(says(refusal(R"({"a":{"dtype":"","shape":[1],"data_offsets":[0,1]}})", 1), "'a' has no dtype"));
}

TEST_CASE("elements of a type that is not known are left alone, and refused by its name where floats are asked for") {
  const ScratchFolder folder;
  const std::string json = R"({"scale":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},)"
                           R"("mask":{"dtype":"BOOL","shape":[2],"data_offsets":[3,5]},"w":)" +
                           f32("[1]", "[5,9]") + R"(,"none":{"dtype":"F4","shape":[0],"data_offsets":[9,9]}})";
  test::write_all(folder / "t", u64(json.size()) + json + std::string("abcde\0\0\x80\x3f", 9));
  const auto reader = SafetensorsReader::open(folder / "t");
  REQUIRE(reader.has_value());
  std::vector<float> values(1);
  REQUIRE(reader->read_floats(*reader->find("w"), values).has_value());
  CHECK(values.front() == 1);
  const Tensor* const scale = reader->find("scale");
  REQUIRE(scale != nullptr);
  CHECK_FALSE(scale->dtype.has_value());
  CHECK(scale->other_type == "F8_E4M3");
  std::string bytes(3, '\0');
  REQUIRE(reader->read(*scale, 0, 3, bytes.data()).has_value());
  CHECK(bytes == "abc");
  const auto refused = reader->read_floats(*scale, values);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().status() == Status::kUnimplemented);
  CHECK(says(refused.error().message(), "has elements of type F8_E4M3; supported are f32, bf16 and f16"));
}

TEST_CASE("bytes of a type that is not known still belong to one tensor each, and are not written again") {
  const auto tensor = [](const char* offsets) {
    return fmt::format(R"({{"dtype":"F8_E4M3","shape":[4],"data_offsets":{}}})", offsets);
  };
  CHECK(
      says(refusal(R"({"a":)" + tensor("[0,4]") + R"(,"b":)" + tensor("[3,7]") + "}", 7), "'b' begins inside another"));
  CHECK(says(refusal(R"({"a":)" + tensor("[1,5]") + "}", 5), "1 bytes before 'a' belong to no tensor"));
  CHECK(says(refusal(R"({"a":)" + tensor("[0,4]") + "}", 3), "'a' ends 1 bytes past its end"));
  SafetensorsHeader header{{{"a", std::nullopt, {4}, 0, 4, "F8_E4M3"}}, {}};
  const auto written = encode_safetensors_header(header);
  REQUIRE_FALSE(written.has_value());
  CHECK(says(written.error().message(), "'a' has elements of type F8_E4M3, which cannot be written"));
}

TEST_CASE("names that come twice are refused wherever they stand") {
  const std::string one = f32("[1]", "[0,4]");
  CHECK(says(refusal(R"({"a":)" + one + R"(,"a":)" + f32("[1]", "[4,8]") + "}", 8), "'a' occurs twice"));
  CHECK(says(refusal(R"({"a":{"dtype":"F32","dtype":"F32"}})", 4), "'dtype' occurs twice in 'a'"));
  CHECK(says(refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "'k' occurs twice"));
  CHECK(says(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), "occurs twice"));
}

TEST_CASE("bytes of two tensors, of none, too few and too many are refused") {
  const std::string a = R"({"a":)" + f32("[2]", "[0,8]");
  CHECK(says(refusal(a + "}", 7), "'a' ends 1 bytes past its end"));
  CHECK(says(refusal(a + "}", 9), "1 bytes at the end belong to no tensor"));
  CHECK(says(refusal("{}", 1), "1 bytes at the end belong to no tensor"));
  CHECK(says(refusal(a + R"(,"b":)" + f32("[1]", "[4,8]") + "}", 8), "'b' begins inside another tensor"));
  CHECK(says(refusal(a + R"(,"b":)" + f32("[1]", "[12,16]") + "}", 16), "4 bytes before 'b' belong to no tensor"));
  CHECK(says(refusal(R"({"a":)" + f32("[3]", "[0,8]") + "}", 8), "'a' has 8 bytes, but its type and shape need 12"));
  CHECK(says(refusal(R"({"a":)" + f32("[4294967296,4294967296,4294967296]", "[0,0]") + "}", 0), "does not fit a file"));
}

TEST_CASE("files of other writers are read: any order, spaces, scalars and empty tensors") {
  const ScratchFolder folder;
  const std::string json =
      R"({ "late":{"data_offsets":[4,6],"dtype":"BF16","shape":[]},"__metadata__":{"format":"pt"},)"
      R"( "early":{"shape":[4],"dtype":"U8","data_offsets":[0,4]},"none":)" +
      f32("[3,0]", "[4,4]") + "}  ";
  test::write_all(folder / "t", u64(json.size()) + json + "abcdxy");
  const auto reader = SafetensorsReader::open(folder / "t");
  REQUIRE(reader.has_value());
  REQUIRE(reader->header().tensors.size() == 3);
  CHECK(reader->header().tensors[0].name == "early");
  CHECK(reader->header().tensors[1].name == "none");
  CHECK(reader->header().metadata == Metadata{{"format", "pt"}});
  const Tensor* late = reader->find("late");
  REQUIRE(late != nullptr);
  CHECK(late->dtype == DType::kBF16);
  std::string bytes(2, '\0');
  REQUIRE(reader->read(*late, 0, 2, bytes.data()).has_value());
  CHECK(bytes == "xy");
  CHECK(reader->read(*late, 1, 2, bytes.data()).error().status() == Status::kOutOfRange);
  CHECK(reader->find("later") == nullptr);
}

TEST_CASE("the bytes of a file are those that the format asks for") {
  const ScratchFolder folder;
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};
  header.tensors = {{"w\"1", DType::kF32, {1, 2}}, {"b", DType::kU8, {3}}};
  const auto written = write_safetensors(folder / "t", header, false, [](SafetensorsSink& sink) -> Result<> {
    if (Result<> first = sink.write("abcde", 5); !first) return first;
    CHECK(sink.left() == 6);
    return sink.write("fghijk", 6);
  });
  REQUIRE(written.has_value());
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"w\"1":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  const std::string padded = json + std::string((8 - json.size() % 8) % 8, ' ');
  CHECK(test::read_all(folder / "t") == u64(padded.size()) + padded + "abcdefghijk");
}

TEST_CASE("tensors that cannot be written are refused before there is a file") {
  const ScratchFolder folder;
  const auto refused = [&folder](std::vector<Tensor> tensors, Metadata metadata = {}) {
    const auto written = write_safetensors(folder / "t", {std::move(tensors), std::move(metadata)}, false,
                                           [](SafetensorsSink&) -> Result<> { return {}; });
    REQUIRE_FALSE(written.has_value());
    CHECK(written.error().status() == Status::kInvalidArgument);
    return written.error().message();
  };
  CHECK(says(refused({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}), "two tensors have the name 'a'"));
  CHECK(says(refused({{"__metadata__", DType::kF32, {1}}}), "is not a valid tensor name"));
  CHECK(says(refused({{"\xff", DType::kF32, {1}}}), "is not a valid tensor name"));
  CHECK(says(refused({{"a", static_cast<DType>(99), {1}}}), "unknown type 99"));
  CHECK(says(refused({{"a", DType::kF32, {-1}}}), "negative length -1"));
  CHECK(says(refused({{"a", DType::kF32, {int64_t{1} << 62}}}), "does not fit a file"));
  CHECK(says(refused({}, {{"k", "\xff"}}), "the metadata 'k'"));
  CHECK(folder.names().empty());
}

TEST_CASE("too few bytes, too many, an error and an exception leave nothing behind") {
  const ScratchFolder folder;
  const auto write = [&folder](const std::function<Result<>(SafetensorsSink&)>& fill) {
    return write_safetensors(folder / "t", {{{"a", DType::kF32, {1}}}, {}}, false, fill);
  };
  const auto few = write([](SafetensorsSink& sink) { return sink.write("abc", 3); });
  REQUIRE_FALSE(few.has_value());
  CHECK(says(few.error().message(), "1 of the 4 bytes of its tensors are missing"));
  const auto many = write([](SafetensorsSink& sink) { return sink.write("abcde", 5); });
  REQUIRE_FALSE(many.has_value());
  CHECK(many.error().status() == Status::kFailedPrecondition);
  const auto own = write([](SafetensorsSink&) -> Result<> { return failed(Status::kPeerLost, "a peer died"); });
  REQUIRE_FALSE(own.has_value());
  CHECK(own.error().status() == Status::kPeerLost);
  CHECK_THROWS_AS(static_cast<void>(write([](SafetensorsSink&) -> Result<> { throw std::runtime_error("no"); })),
                  std::runtime_error);
  CHECK(folder.names().empty());
}

TEST_CASE("an old file stays unless it is to be replaced") {
  const ScratchFolder folder;
  test::write_all(folder / "t", "old");
  const SafetensorsHeader header{{{"a", DType::kU8, {1}}}, {}};
  const auto fill = [](SafetensorsSink& sink) { return sink.write("x", 1); };
  CHECK_FALSE(write_safetensors(folder / "t", header, false, fill).has_value());
  CHECK(test::read_all(folder / "t") == "old");
  CHECK(write_safetensors(folder / "t", header, true, fill).has_value());
  CHECK(SafetensorsReader::open(folder / "t").has_value());
}

TEST_CASE("what is written is read, whatever the tensors are") {
  const ScratchFolder folder;
  const bool held = rc::check([&folder] {
    SafetensorsHeader header;
    const int count = *rc::gen::inRange(0, 6);
    std::string bytes;
    for (int i = 0; i < count; ++i) {
      const auto dimensions = *rc::gen::inRange<size_t>(0, 5);
      Tensor tensor{std::to_string(i) + "\t\u00e9\"", static_cast<DType>(*rc::gen::inRange(1, 8)),
                    *rc::gen::container<std::vector<int64_t>>(dimensions, rc::gen::inRange<int64_t>(0, 5))};
      bytes += std::string(static_cast<size_t>(*bytes_of(tensor)), static_cast<char>('a' + i));
      header.tensors.push_back(std::move(tensor));
    }
    const auto written = write_safetensors(
        folder / "t", header, true, [&bytes](SafetensorsSink& sink) { return sink.write(bytes.data(), bytes.size()); });
    RC_ASSERT(written.has_value());
    const auto reader = SafetensorsReader::open(folder / "t");
    RC_ASSERT(reader.has_value());
    RC_ASSERT(reader->header().tensors.size() == header.tensors.size());
    for (size_t i = 0; i < header.tensors.size(); ++i) {
      const Tensor* tensor = reader->find(header.tensors[i].name);
      RC_ASSERT(tensor != nullptr);
      RC_ASSERT(tensor->dtype == header.tensors[i].dtype);
      RC_ASSERT(tensor->shape == header.tensors[i].shape);
      std::string got(static_cast<size_t>(tensor->bytes), '\0');
      RC_ASSERT(reader->read(*tensor, 0, tensor->bytes, got.data()).has_value());
      RC_ASSERT(got == std::string(got.size(), static_cast<char>('a' + i)));
    }
  });
  CHECK(held);
}

}  // namespace
}  // namespace pliant::sharded
