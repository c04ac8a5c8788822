// read_lengths: which reader a file needs.
#include <fmt/format.h>

#include <fstream>
#include <system_error>

#include "data/input_file.hpp"
#include "data/lengths/formats.hpp"
#include "data/lengths_file.hpp"
#include "pliant/lengths.hpp"

namespace pliant {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDatasetMagic = "PLIANTDS";

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

Result<data::NumberArray> raw(const data::SharedFile& file, data::Number type, const std::string& name) {
  const uint64_t width = data::width_of(type);
  if (file->bytes().size() % width != 0) {
    return data::damaged(
        name, fmt::format("its {} bytes are not a whole number of {}-byte integers", file->bytes().size(), width));
  }
  return data::NumberArray{file, file->bytes(), type, false, name};
}

Result<Lengths> counts_of_a_run(const fs::path& file, const data::Counted& counted) {
  auto dataset = data::read_dataset(file);
  if (!dataset) {
    return tl::unexpected<Error>(dataset.error().with_origin(Origin::kInput));
  }
  const bool of_loss = counted.least == 0 && !dataset->loss_tokens.empty();
  return of_loss ? dataset->loss_tokens : dataset->lengths;
}

/// The numbers of a binary file.
Result<data::NumberArray> find_numbers(const data::SharedFile& file, const fs::path& path) {
  const std::string suffix = path.extension().string();
  if (suffix == ".npy" || file->bytes().starts_with("\x93NUMPY")) return data::find_in_npy(file, path.string());
  if (suffix == ".idx" || file->bytes().starts_with("MMIDIDX")) return data::find_in_index(file, path);
  if (suffix == ".i32") return raw(file, data::Number::kI32, path.string());
  if (suffix == ".i64") return raw(file, data::Number::kI64, path.string());
  return failed(
      Status::kInvalidArgument,
      fmt::format("{}: unknown file type; lengths are read from .npy, .idx, .bin, .i32, .i64, .jsonl and .txt",
                  path.string()),
      Origin::kInput);
}

}  // namespace

bool data::is_of_a_run(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return false;  // a pipe would be waited for
  std::string magic(kDatasetMagic.size(), '\0');
  std::ifstream(file, std::ios::binary).read(magic.data(), static_cast<std::streamsize>(magic.size()));
  return magic == kDatasetMagic;
}

Result<Lengths> data::read_counts(const fs::path& given, const std::string& column, const Counted& counted) {
  if (is_of_a_run(given)) return counts_of_a_run(given, counted);
  const fs::path path = file_to_read(given);
  const std::string suffix = path.extension().string();
  if (suffix == ".jsonl" || suffix == ".txt") {
    const Result<InputFile> lines = InputFile::open(path);
    if (!lines) return tl::unexpected<Error>(lines.error());
    if (suffix == ".txt") return read_text(*lines, counted, path.string());
    return read_jsonl(*lines, column, counted, path.string());
  }
  auto file = read_whole(path);
  if (!file) return failed(std::move(file));
  auto found = find_numbers(*file, path);
  if (!found) return failed(std::move(found));
  return lengths_in(*found, counted);
}

Lengths read_lengths(const fs::path& file, const std::string& column) {
  return or_throw(data::read_counts(file, column, {}));
}

std::vector<int64_t> read_metric_files(const fs::path& stem) {
  const fs::path path = stem.string() + ".idx";
  const data::SharedFile file = or_throw(data::read_whole(path));
  return or_throw(data::whole_numbers(or_throw(data::find_in_index(file, path))));
}

}  // namespace pliant
