// Lengths from the files of other tools, and every way in which such a file can be wrong.
#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "../elastic/file_size_limit.hpp"
#include "data/lengths_file.hpp"
#include "pliant/error.hpp"
#include "pliant/lengths.hpp"
#include "scratch_folder.hpp"

namespace {

using pliant::Lengths;
using pliant::read_lengths;

struct Files : pliant::test::ScratchFolder {
  [[nodiscard]] std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((*this / name).parent_path());
    std::ofstream(*this / name, std::ios::binary) << bytes;
    return *this / name;
  }
};

std::string refusal_of(const std::filesystem::path& file, const std::string& column = "length") {
  try {
    static_cast<void>(read_lengths(file, column));
  } catch (const pliant::Error& error) {
    CHECK(error.origin() == pliant::Origin::kInput);
    CHECK(error.message().find(file.stem().string()) != std::string::npos);
    return error.message();
  }
  return "nothing was refused";
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data, char version = 1) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(118, ' ');
  header += '\n';
  std::string bytes = std::string("\x93NUMPY") + version + '\0';
  bytes += static_cast<char>(header.size());
  bytes += std::string(version == 1 ? 1 : 3, '\0');
  return bytes + header + data;
}

/// An index with `sizes`, as Megatron writes it.
std::string index_of(const std::vector<int32_t>& sizes, uint8_t type = 4) {
  std::string bytes("MMIDIDX\0\0", 9);
  const auto add = [&bytes](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  add(uint64_t{1});
  add(type);
  add(uint64_t{sizes.size()});
  add(uint64_t{2});
  bytes += bytes_of(sizes);
  for (size_t i = 0; i < sizes.size(); ++i) add(int64_t{0});
  add(int64_t{0});
  add(static_cast<int64_t>(sizes.size()));
  return bytes;
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE_FIXTURE(Files, "a numpy array of any integer or float type gives its lengths") {
  const Lengths wanted{3, 1, 127};
  CHECK(read_lengths(write("a.npy", npy("<i8", "(3,)", bytes_of<int64_t>({3, 1, 127})))) == wanted);
  CHECK(read_lengths(write("b.npy", npy("<i4", "(3,)", bytes_of<int32_t>({3, 1, 127}), 2))) == wanted);
  CHECK(read_lengths(write("c.npy", npy("|u1", "(3,)", bytes_of<uint8_t>({3, 1, 127}), 3))) == wanted);
  CHECK(read_lengths(write("d.npy", npy("<f8", "(3,)", bytes_of<double>({3, 1, 127})))) == wanted);
  CHECK(read_lengths(write("e.npy", npy(">i2", "(3,)", std::string("\0\3\0\1\0\177", 6)))) == wanted);
  CHECK(read_lengths(write("f.npy", npy("<u8", "(0,)", ""))).empty());
}

TEST_CASE_FIXTURE(Files, "a numpy array that is wrong is refused by name") {
  const std::string three = bytes_of<int64_t>({3, 1, 127});
  CHECK(mentions(refusal_of(write("a.npy", "x")), "does not start with"));
  CHECK(mentions(refusal_of(write("b.npy", npy("<i8", "(4,)", three))), "4 numbers need 32 bytes, it has 24"));
  CHECK(mentions(refusal_of(write("c.npy", npy("<i8", "(2,)", three))), "2 numbers need 16 bytes, it has 24"));
  CHECK(mentions(refusal_of(write("d.npy", npy("<i8", "(3, 1)", three))), "exactly one dimension"));
  CHECK(mentions(refusal_of(write("e.npy", npy("<U8", "(3,)", three))), "neither integer nor float"));
  CHECK(mentions(refusal_of(write("f.npy", npy("<i8", "(3,)", three, 9))), "version 9"));
  CHECK(mentions(refusal_of(write("g.npy", npy("<i8", "(3,)", three).substr(0, 40))), "ends within its header"));
  CHECK(mentions(refusal_of(write("h.npy", npy("<f8", "(2,)", bytes_of<double>({1, NAN})))), "value 1 is nan"));
  CHECK(mentions(refusal_of(write("i.npy", npy("<f8", "(2,)", bytes_of<double>({1, 2.5})))), "value 1 is 2.5"));
  CHECK(mentions(refusal_of(write("j.npy", npy("<f4", "(1,)", bytes_of<float>({INFINITY})))), "value 0 is inf"));
  CHECK(mentions(refusal_of(write("k.npy", npy("<u8", "(1,)", bytes_of<uint64_t>({uint64_t{1} << 63})))), "63 bits"));
  CHECK(mentions(refusal_of(write("l.npy", npy("<i8", "(2,)", bytes_of<int64_t>({5, 0})))),
                 "sequence 1 has a length of 0; a length must be"));
  CHECK(mentions(refusal_of(write("m.npy", npy("<i8", "(1,)", bytes_of<int64_t>({-3})))),
                 "sequence 0 has a length of -3"));
}

TEST_CASE_FIXTURE(Files, "a pipe and a folder are refused at once") {
  REQUIRE(::mkfifo((path() / "pipe.npy").c_str(), 0600) == 0);
  CHECK(mentions(refusal_of(path() / "pipe.npy"), "pipe.npy: it is not a regular file"));
  std::filesystem::create_directory(path() / "folder.npy");
  CHECK(mentions(refusal_of(path() / "folder.npy"), "cannot read"));
}

TEST_CASE_FIXTURE(Files, "what was written as metric files comes back, through stem, .idx, .bin and folder") {
  const std::vector<int64_t> lengths{76, 200, 70000, 170};
  std::filesystem::create_directories(*this / "seqlen");
  pliant::write_metric_files(*this / "seqlen/seqlen_sample_to_metric", lengths);
  CHECK(pliant::read_metric_files(*this / "seqlen/seqlen_sample_to_metric") == lengths);
  CHECK(read_lengths(*this / "seqlen/seqlen_sample_to_metric.idx") == Lengths::from(lengths));
  CHECK(read_lengths(*this / "seqlen/seqlen_sample_to_metric.bin") == Lengths::from(lengths));
  CHECK(read_lengths(*this / "seqlen") == Lengths::from(lengths));
  CHECK(read_lengths(path()) == Lengths::from(lengths));
}

TEST_CASE_FIXTURE(Files, "metric files that cannot be written whole leave the old pair, and nothing else") {
  const std::vector<int64_t> old{3, 1, 2};
  pliant::write_metric_files(*this / "m", old);
  {
    const pliant::test::FileSizeLimit limit(5000);
    CHECK_THROWS_AS(pliant::write_metric_files(*this / "m", std::vector<int64_t>(2000, 7)), pliant::Error);
  }
  {
    const pliant::test::FileSizeLimit limit(50);  // the values fit, the index does not
    CHECK_THROWS_AS(pliant::write_metric_files(*this / "m", std::vector<int64_t>(4, 7)), pliant::Error);
  }
  CHECK(pliant::read_metric_files(*this / "m") == old);
  CHECK(names() == std::vector<std::string>{"m.bin", "m.idx"});
  pliant::write_metric_files(*this / "m", {300, 1});
  CHECK(pliant::read_metric_files(*this / "m") == std::vector<int64_t>{300, 1});
  CHECK_THROWS_AS(pliant::write_metric_files(*this / "none/m", old), pliant::Error);
}

TEST_CASE_FIXTURE(Files, "whole numbers of every size travel through metric files") {
  CHECK(rc::check([this] {
    const auto values = *rc::gen::container<std::vector<int64_t>>(
        rc::gen::oneOf(rc::gen::arbitrary<int64_t>(), rc::gen::inRange<int64_t>(-200, 400),
                       rc::gen::cast<int64_t>(rc::gen::arbitrary<uint32_t>())));
    pliant::write_metric_files(*this / "m", values);
    RC_ASSERT(pliant::read_metric_files(*this / "m") == values);
  }));
}

TEST_CASE_FIXTURE(Files, "the index of a Megatron data set holds the lengths itself") {
  CHECK(read_lengths(write("data.idx", index_of({12, 7, 2048}))) == Lengths{12, 7, 2048});
  CHECK(read_lengths(write("floats.idx", index_of({12, 7}, 200))) == Lengths{12, 7});
}

TEST_CASE_FIXTURE(Files, "an index that is wrong is refused by name") {
  const std::string good = index_of({12, 7, 2048});
  CHECK(mentions(refusal_of(write("a.idx", good.substr(0, 20))), "ends within its header"));
  CHECK(mentions(refusal_of(write("b.idx", good.substr(0, good.size() - 1))), "do not match 3 sequences"));
  CHECK(mentions(refusal_of(write("c.idx", good + "x")), "do not match 3 sequences"));
  CHECK(mentions(refusal_of(write("d.idx", "XMIDIDX" + good.substr(7))), "does not start with MMIDIDX"));
  CHECK(mentions(refusal_of(write("e.idx", std::string("TNTIDX\0\0", 8) + good)), "TNTIDX"));
  std::string swapped = good;
  std::reverse(swapped.begin() + 9, swapped.begin() + 17);
  CHECK(mentions(refusal_of(write("f.idx", swapped)), "byte-swapped"));
  std::string huge = good;
  huge[25] = '\x7f';
  CHECK(mentions(refusal_of(write("g.idx", huge)), "do not match"));
  CHECK(mentions(refusal_of(write("h.idx", index_of({12, -7}))), "sequence 1 has a length of -7"));
  const auto metric = write("i.idx", index_of({1, 1}));
  CHECK(mentions(refusal_of(metric), "i.bin"));
  static_cast<void>(write("i.bin", "abc"));
  CHECK(mentions(refusal_of(metric), "2 values of 4 bytes do not match its 3 bytes"));
}

TEST_CASE_FIXTURE(Files, "the data set that a job left in its run directory is lengths, and damage is named") {
  const auto file = *this / "dataset.bin";
  REQUIRE(pliant::data::write_dataset_once(file, {{5, 6, 7}, {4, 5, 6}, {}, 77}).has_value());
  CHECK(pliant::data::read_dataset(file)->content == 77);
  CHECK_FALSE(pliant::data::write_dataset_once(file, {{5, 6, 7}, {4, 5, 6}, {}, 78}).has_value());
  CHECK(read_lengths(file) == Lengths{5, 6, 7});
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  CHECK(mentions(refusal_of(file), "is damaged"));
}

TEST_CASE_FIXTURE(Files, "integers back to back are lengths") {
  CHECK(read_lengths(write("a.i32", bytes_of<int32_t>({5, 6}))) == Lengths{5, 6});
  CHECK(read_lengths(write("a.i64", bytes_of<int64_t>({5, 6}))) == Lengths{5, 6});
  CHECK(read_lengths(write("empty.i64", "")).empty());
  CHECK(mentions(refusal_of(write("b.i32", "12345")), "5 bytes are not a whole number of 4-byte integers"));
}

TEST_CASE_FIXTURE(Files, "lines give lengths, and a wrong one its number") {
  CHECK(read_lengths(write("a.txt", "5\r\n\n 6 \n7")) == Lengths{5, 6, 7});
  for (const char* wrong : {"x", "1.5", "-2", "0", "99999999999999999999", "5 6"}) {
    CAPTURE(wrong);
    CHECK(mentions(refusal_of(write("b.txt", std::string("5\n") + wrong + "\n")), "b.txt:2: '"));
  }
}

TEST_CASE_FIXTURE(Files, "JSON lines give lengths by a number or by the size of a list") {
  const auto file = write("a.jsonl", "{\"length\": 5, \"ids\": [1, 2]}\n\n{\"length\": 6.0, \"ids\": [1]}\n");
  CHECK(read_lengths(file) == Lengths{5, 6});
  CHECK(read_lengths(file, "ids") == Lengths{2, 1});
  CHECK(mentions(refusal_of(file, "tokens"), "a.jsonl:1: it has no 'tokens'; [data] length_column"));
  for (const char* wrong : {"{\"length\": \"5\"}", "{\"length\": null}", "{\"length\": 0}", "{\"length\": []}",
                            "{\"length\": 1e300}", "{\"length\": 2.5}", "[5]", "{", "5"}) {
    CAPTURE(wrong);
    CHECK(mentions(refusal_of(write("b.jsonl", std::string("{\"length\": 5}\n") + wrong + "\n")), "b.jsonl:2: "));
  }
}

TEST_CASE_FIXTURE(Files, "a file that is not there, of no known kind, or a folder without lengths is refused") {
  CHECK(mentions(refusal_of(*this / "nothing.npy"), "cannot read"));
  CHECK(mentions(refusal_of(write("a.parquet", "PAR1")), "lengths are read from .npy, .idx"));
  std::filesystem::create_directories(*this / "folder");
  CHECK(mentions(refusal_of(*this / "folder"), "cannot read"));
}

TEST_CASE_FIXTURE(Files, "a length that does not fit 31 bits is refused, whatever the file") {
  const int64_t most = std::numeric_limits<int32_t>::max();
  CHECK(read_lengths(write("a.i64", bytes_of<int64_t>({1, most})))[1] == most);
  CHECK(
      mentions(refusal_of(write("b.i64", bytes_of<int64_t>({1, most + 1}))), "sequence 1 has a length of 2147483648"));
  CHECK(mentions(refusal_of(write("c.txt", "2147483648\n")), "a whole number from 1 to 2147483647"));
  CHECK(mentions(refusal_of(write("d.jsonl", "{\"length\": 2147483648}\n")), "a whole number from 1 to 2147483647"));
  try {
    static_cast<void>(Lengths::from(std::vector<int64_t>{5, most + 1}));
    FAIL("nothing was refused");
  } catch (const pliant::Error& error) {
    CHECK(mentions(error.message(), "sequence 1 has a length of 2147483648"));
  }
}

TEST_CASE_FIXTURE(Files, "a large file of 32-bit integers is viewed, outlives its reader and is checked to its end") {
  std::vector<int32_t> many(size_t{17} << 20U, 7);
  many.back() = 9;
  const auto file = write("large.npy", npy("<i4", "(" + std::to_string(many.size()) + ",)", bytes_of(many)));
  const Lengths copy = [&] { return read_lengths(file); }();
  REQUIRE(copy.size() == many.size());
  CHECK(copy[many.size() - 1] == 9);
  CHECK(copy == Lengths(many));
  many.back() = -9;
  CHECK(mentions(refusal_of(write("wrong.i32", bytes_of(many))), "has a length of -9"));
}

TEST_CASE_FIXTURE(Files, "a line that does not end is an error before it fills the memory") {
  const auto numbers = write("endless.txt", "1\n");
  std::filesystem::resize_file(numbers, uint64_t{1} << 33);
  CHECK(mentions(refusal_of(numbers), "endless.txt:2: "));
  const auto objects = write("endless.jsonl", "{\"length\": 5}\n");
  std::filesystem::resize_file(objects, uint64_t{1} << 33);
  CHECK(mentions(refusal_of(objects), "endless.jsonl:2: "));
}
