// read_lengths: which reader a file needs.
#include <fmt/format.h>

#include <system_error>

#include "data/lengths/formats.hpp"
#include "data/lengths/mapped_file.hpp"
#include "pliant/lengths.hpp"

namespace pliant {
namespace {

namespace fs = std::filesystem;

/// DeepSpeed's metric index in a folder, or the file itself; the .idx for a .bin.
fs::path file_to_read(const fs::path& given) {
  std::error_code ignored;
  if (fs::is_directory(given, ignored)) {
    for (const char* inside : {"seqlen/seqlen_sample_to_metric.idx", "seqlen_sample_to_metric.idx"}) {
      if (fs::exists(given / inside, ignored)) return given / inside;
    }
    return given;
  }
  return given.extension() == ".bin" ? fs::path(given).replace_extension(".idx") : given;
}

Result<std::vector<int64_t>> raw(std::string_view bytes, data::Number type, const std::string& name) {
  const uint64_t width = data::width_of(type);
  if (bytes.size() % width != 0) {
    return data::damaged(name,
                         fmt::format("its {} bytes are no whole number of {}-byte integers", bytes.size(), width));
  }
  return data::numbers(bytes, type, false, name);
}

Result<std::vector<int64_t>> read(const fs::path& given, const std::string& column) {
  const fs::path file = file_to_read(given);
  const Result<data::MappedFile> mapped = data::MappedFile::open(file);
  if (!mapped) return tl::unexpected<Error>(mapped.error());
  const std::string_view bytes = mapped->bytes();
  const std::string name = file.string();
  const std::string suffix = file.extension().string();
  if (suffix == ".npy" || bytes.starts_with("\x93NUMPY")) return data::read_npy(bytes, name);
  if (suffix == ".idx" || bytes.starts_with("MMIDIDX")) return data::read_index(file, bytes);
  if (suffix == ".i32") return raw(bytes, data::Number::kI32, name);
  if (suffix == ".i64") return raw(bytes, data::Number::kI64, name);
  if (suffix == ".jsonl") return data::read_jsonl(bytes, column, name);
  if (suffix == ".txt") return data::read_text(bytes, name);
  return failed(Status::kInvalidArgument,
                fmt::format("{}: lengths are read from .npy, .idx, .bin, .i32, .i64, .jsonl and .txt", name),
                ExitCode::kUsage);
}

}  // namespace

std::vector<int64_t> read_lengths(const fs::path& file, const std::string& column) {
  std::vector<int64_t> lengths = or_throw(read(file, column));
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] >= 1) continue;
    throw Error(Status::kInvalidArgument,
                fmt::format("{}: sequence {} has a length of {}; every sequence needs at least 1 token", file.string(),
                            i, lengths[i]),
                ExitCode::kUsage);
  }
  return lengths;
}

std::vector<int64_t> read_metric_files(const fs::path& stem) {
  const fs::path file = stem.string() + ".idx";
  const data::MappedFile mapped = or_throw(data::MappedFile::open(file));
  return or_throw(data::read_index(file, mapped.bytes()));
}

}  // namespace pliant
