// Writing and checking the files of a finished analysis.
#include "data/analysis/stored_lengths.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/durable_file.hpp"
#include "base/whole_file.hpp"
#include "data/digest.hpp"

namespace pliant::data {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "lengths are written as memory has them");

constexpr const char* kFormat = "pliant.lengths_origin/1";

fs::path origin_of(const fs::path& file) {
  return file.string() + ".origin.json";
}

/// A version 1.0 header of a flat array of int32, as numpy pads it.
std::string npy_header(int64_t count) {
  std::string dict = fmt::format("{{'descr': '<i4', 'fortran_order': False, 'shape': ({},), }}", count);
  constexpr size_t kPrefix = 10;
  dict.append(64 - (kPrefix + dict.size() + 1) % 64, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xffU);
  header += static_cast<char>(dict.size() >> 8U);
  return header + dict;
}

/// Takes lengths in chunks as PartialLengths has them.
class ChunkDigest {
 public:
  void add(std::string_view bytes) { digest_.add(bytes); }
  [[nodiscard]] std::string text() const { return fmt::format("{:016x}", digest_.value()); }

 private:
  Digest digest_;
};

tl::unexpected<Error> not_ours(const fs::path& file, const std::string& why, Status status) {
  return failed(status, fmt::format("{} {}; remove it to measure again", file.string(), why), Origin::kInput);
}

struct LengthsOrigin {
  Measure measure;
  std::string digest;
};

Result<LengthsOrigin> read_origin(const fs::path& file) {
  const fs::path origin = origin_of(file);
  std::error_code absent;
  std::ifstream in;
  if (fs::is_regular_file(origin, absent)) in.open(origin, std::ios::binary);  // to open a pipe may never end
  if (!in.is_open()) {
    return not_ours(file, fmt::format("exists, but {}, the record of its source, is missing", origin.string()),
                    Status::kFailedPrecondition);
  }
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const Json json = Json::parse(text, nullptr, false);
  const auto has = [&](const char* key, bool right) { return json.contains(key) && right; };
  const bool readable = json.is_object() && json.value("format", Json()) == kFormat &&
                        has("count", json.value("count", Json()).is_number_integer()) &&
                        has("identity", json.value("identity", Json()).is_string()) &&
                        has("digest", json.value("digest", Json()).is_string());
  if (!readable) {
    return not_ours(origin, "is damaged: it does not describe its source", Status::kDataLoss);
  }
  return LengthsOrigin{{json["count"].get<int64_t>(), json["identity"].get<std::string>()},
                       json["digest"].get<std::string>()};
}

Result<> check_contents(const fs::path& file, const LengthsOrigin& origin) {
  const std::string header = npy_header(origin.measure.count);
  Result<FileDescriptor> fd = open_file(file, O_RDONLY, "read");
  if (!fd) return failed(fd.error().status(), fd.error().message(), Origin::kInput);
  struct stat found {};
  if (::fstat(fd->get(), &found) != 0) return tl::unexpected<Error>(file_error(errno, "read", file));
  const uint64_t size = header.size() + static_cast<uint64_t>(origin.measure.count) * sizeof(int32_t);
  if (static_cast<uint64_t>(found.st_size) != size) {
    return not_ours(
        file, fmt::format("is damaged: {} lengths take {} bytes, it has {}", origin.measure.count, size, found.st_size),
        Status::kDataLoss);
  }
  constexpr size_t kChunkBytes = PartialLengths::kChunk * sizeof(int32_t);
  std::string block(header.size(), '\0');
  uint64_t at = 0;
  ChunkDigest digest;
  for (bool first = true; at < size; first = false) {
    if (!first) block.resize(std::min<uint64_t>(kChunkBytes * 1024, size - at));
    size_t got = 0;
    const int fault = read_at(fd->get(), block.data(), block.size(), at, got);
    if (fault != 0) return tl::unexpected<Error>(file_error(fault, "read", file));
    if (got < block.size() || (first && block != header)) {
      return not_ours(file, "is damaged: its header does not match its lengths", Status::kDataLoss);
    }
    at += got;
    for (std::string_view rest = first ? std::string_view() : block; !rest.empty();) {
      digest.add(rest.substr(0, kChunkBytes));
      rest.remove_prefix(std::min(kChunkBytes, rest.size()));
    }
  }
  if (digest.text() != origin.digest) {
    return not_ours(file,
                    fmt::format("has changed since it was measured: its digest is {}, {} has {}", digest.text(),
                                origin_of(file).string(), origin.digest),
                    Status::kDataLoss);
  }
  return {};
}

/// Copies all chunks behind the header of `file`; a fault of reading goes to `unreadable`.
int copy_chunks(int fd, const std::string& header, const PartialLengths& partial, ChunkDigest& digest,
                std::optional<Error>& unreadable) {
  int fault = write_all_at(fd, header, 0);
  std::string block;
  uint64_t at = header.size();
  for (int64_t chunk = 0; fault == 0 && chunk < partial.chunks(); ++chunk) {
    const Result<std::optional<std::vector<int32_t>>> lengths = partial.read(chunk);
    if (!lengths || !*lengths) {
      unreadable = lengths ? Error(Status::kDataLoss,
                                   fmt::format("the lengths of sequences {} to {} read back differ from those written; "
                                               "start again to measure them again",
                                               partial.first(chunk), partial.first(chunk) + partial.size(chunk) - 1))
                           : lengths.error();
      return EIO;
    }
    const std::string_view bytes(reinterpret_cast<const char*>((*lengths)->data()),
                                 (*lengths)->size() * sizeof(int32_t));
    digest.add(bytes);
    block += bytes;
    if (block.size() < (size_t{1} << 20) && chunk + 1 < partial.chunks()) continue;
    fault = write_all_at(fd, block, at);
    at += block.size();
    block.clear();
  }
  return fault;
}

}  // namespace

Result<bool> stored_already(const fs::path& file, const Measure& measure) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) {
    const int fault = errno;
    if (fault == ENOENT) return false;
    const Error error = file_error(fault, "check", file);
    return failed(error.status(), error.message(), Origin::kInput);
  }
  if (!S_ISREG(found.st_mode)) {
    return failed(Status::kFailedPrecondition, fmt::format("{} is not a regular file", file.string()), Origin::kInput);
  }
  Result<LengthsOrigin> origin = read_origin(file);
  if (!origin) return failed(std::move(origin));
  if (Result<> same = check_measured_as(file, origin->measure, measure); !same) return failed(std::move(same));
  if (Result<> whole = check_contents(file, *origin); !whole) return failed(std::move(whole));
  return true;
}

Result<> store(const fs::path& file, const Measure& measure, const PartialLengths& partial) {
  ChunkDigest digest;
  std::optional<Error> unreadable;
  const auto fill = [&](int fd) { return copy_chunks(fd, npy_header(measure.count), partial, digest, unreadable); };
  const auto before_name = [&]() -> Result<> {
    const Json origin{
        {"format", kFormat}, {"count", measure.count}, {"identity", measure.identity}, {"digest", digest.text()}};
    return write_whole(origin_of(file), origin.dump(2) + "\n", true);
  };
  Result<> written = write_whole(file, WholeFile{fill, before_name, file.string() + ".part.npy"}, false);
  if (unreadable) return tl::unexpected<Error>(*unreadable);
  return written;
}

}  // namespace pliant::data
