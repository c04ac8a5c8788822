// Indexed data sets (.idx, .bin): DeepSpeed's metric files and Megatron's index, which share their header.
//
// Little-endian: "MMIDIDX\0\0", u64 version 1, u8 type, u64 N, u64 D, i32 size[N], i64 offset[N], i64 document[D]. In
// a Megatron index size[i] is the length of sequence i. In a metric file every size is 1 and value i lies at offset[i]
// in the .bin, N values of `type` back to back.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <system_error>

#include "base/durable_file.hpp"
#include "base/whole_file.hpp"
#include "data/input_file.hpp"
#include "data/lengths/formats.hpp"
#include "pliant/lengths.hpp"

namespace pliant::data {
namespace {

constexpr std::string_view kIndexMagic{"MMIDIDX\0\0", 9};
constexpr std::string_view kOldMagic{"TNTIDX\0\0", 8};
constexpr uint64_t kHeader = 34;

/// By code, from 1; as DeepSpeed numbers them.
constexpr std::array<Number, 8> kIndexTypes{Number::kU8,  Number::kI8,  Number::kI16, Number::kI32,
                                            Number::kI64, Number::kU16, Number::kU32, Number::kU64};

template <class T>
T load(std::string_view bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

struct IndexHeader {
  uint8_t type = 0;
  uint64_t count = 0;
  uint64_t documents = 0;
};

Result<IndexHeader> header_of(std::string_view bytes, const std::string& name) {
  if (bytes.starts_with(kOldMagic)) {
    return damaged(name,
                   "this is the older index format TNTIDX; convert the data set with its own tools, or save the "
                   "lengths as .npy");
  }
  if (!bytes.starts_with(kIndexMagic)) return damaged(name, "it is not an index file: it does not start with MMIDIDX");
  if (bytes.size() < kHeader) return damaged(name, "it ends within its header");
  const auto version = load<uint64_t>(bytes, 9);
  if (version == uint64_t{1} << 56U) return damaged(name, "it is byte-swapped: written on a big-endian machine");
  if (version != 1) return damaged(name, fmt::format("index version {} is not 1", version));
  const IndexHeader header{load<uint8_t>(bytes, 17), load<uint64_t>(bytes, 18), load<uint64_t>(bytes, 26)};
  const uint64_t room = bytes.size() - kHeader;
  const bool fits = header.count <= room / 12 && header.documents == (room - header.count * 12) / 8 &&
                    (room - header.count * 12) % 8 == 0;
  if (fits) return header;
  return damaged(name, fmt::format("it has {} bytes, which do not match {} sequences and {} documents", bytes.size(),
                                   header.count, header.documents));
}

/// The values of a metric file, from the .bin beside it.
Result<NumberArray> metric_values(const std::filesystem::path& file, std::string_view index,
                                  const IndexHeader& header) {
  const std::string name = file.string();
  if (header.type < 1 || header.type > kIndexTypes.size()) {
    return damaged(name, fmt::format("its type code {} is unknown; allowed: 1 to {}", header.type, kIndexTypes.size()));
  }
  const Number type = kIndexTypes[header.type - size_t{1}];
  std::filesystem::path values = file;
  values.replace_extension(".bin");
  Result<SharedFile> read = read_whole(values);
  if (!read) return failed(std::move(read));
  const uint64_t width = width_of(type);
  if ((*read)->bytes().size() != header.count * width) {
    return damaged(values.string(), fmt::format("{} values of {} bytes do not match its {} bytes", header.count, width,
                                                (*read)->bytes().size()));
  }
  const uint64_t offsets = kHeader + header.count * 4;
  for (uint64_t i = 0; i < header.count; ++i) {
    if (load<uint64_t>(index, offsets + 8 * i) == i * width) continue;
    return damaged(name, fmt::format("value {} must be greater than value {}", i, i - 1));
  }
  return NumberArray{*read, (*read)->bytes(), type, false, values.string()};
}

/// The narrowest of DeepSpeed's types that holds all of them.
uint8_t type_code(const std::vector<int64_t>& values) {
  if (values.empty()) return 1;
  const int64_t low = *std::min_element(values.begin(), values.end());
  const int64_t high = *std::max_element(values.begin(), values.end());
  const auto fits = [low, high](int64_t least, int64_t most) { return low >= least && high <= most; };
  if (low >= 0) {
    if (high <= std::numeric_limits<uint8_t>::max()) return 1;
    if (high <= std::numeric_limits<uint16_t>::max()) return 6;
    return high <= int64_t{std::numeric_limits<uint32_t>::max()} ? 7 : 8;
  }
  if (fits(INT8_MIN, INT8_MAX)) return 2;
  if (fits(INT16_MIN, INT16_MAX)) return 3;
  return fits(INT32_MIN, INT32_MAX) ? 4 : 5;
}

void append(std::string& bytes, uint64_t value, uint64_t width) {
  for (uint64_t i = 0; i < width; ++i) bytes += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

/// Both files are on disk before the first has its name. Whoever is stopped in between leaves the old pair, or no
/// index.
Result<> write_pair(const std::filesystem::path& stem, std::string_view bin, std::string_view index) {
  const std::filesystem::path index_file = stem.string() + ".idx";
  const auto forget_old_index = [&]() -> Result<> {
    std::error_code failure;
    std::filesystem::remove(std::filesystem::weakly_canonical(index_file, failure), failure);
    if (failure) return tl::unexpected<Error>(file_error(failure.value(), "replace", index_file));
    return {};
  };
  const auto write_bin = [&] {
    const WholeFile contents{[&](int fd) { return write_all_at(fd, bin, 0); }, forget_old_index, {}};
    return write_whole(stem.string() + ".bin", contents, true);
  };
  return write_whole(index_file, WholeFile{[&](int fd) { return write_all_at(fd, index, 0); }, write_bin, {}}, true);
}

}  // namespace

Result<NumberArray> find_in_index(const SharedFile& file, const std::filesystem::path& path) {
  const std::string name = path.string();
  const std::string_view bytes = file->bytes();
  const Result<IndexHeader> header = header_of(bytes, name);
  if (!header) return tl::unexpected<Error>(header.error());
  // A Megatron index of documents of one sequence each ends with count + 1 documents; a metric file has few.
  bool metric = header->count == 1 || (header->count > 0 && header->documents != header->count + 1);
  for (uint64_t i = 0; metric && i < header->count; ++i) metric = load<int32_t>(bytes, kHeader + 4 * i) == 1;
  if (metric) return metric_values(path, bytes, *header);
  return NumberArray{file, bytes.substr(kHeader, header->count * 4), Number::kI32, false, name};
}

}  // namespace pliant::data

namespace pliant {

void write_metric_files(const std::filesystem::path& stem, const std::vector<int64_t>& values) {
  const uint8_t code = data::type_code(values);
  const uint64_t width = data::width_of(data::kIndexTypes[code - size_t{1}]);
  std::string bin;
  std::string index(data::kIndexMagic);
  data::append(index, 1, 8);
  data::append(index, code, 1);
  data::append(index, values.size(), 8);
  data::append(index, 2, 8);
  for (const int64_t value : values) data::append(bin, static_cast<uint64_t>(value), width);
  for (size_t i = 0; i < values.size(); ++i) data::append(index, 1, 4);
  for (size_t i = 0; i < values.size(); ++i) data::append(index, i * width, 8);
  data::append(index, 0, 8);
  data::append(index, values.size(), 8);
  or_throw(data::write_pair(stem, bin, index));
}

}  // namespace pliant
