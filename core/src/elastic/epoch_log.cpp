// Lines of epochs that have begun.
#include "elastic/epoch_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <boost/crc.hpp>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/durable_file.hpp"
#include "data/input_file.hpp"
#include "elastic/run_directory.hpp"

namespace pliant::elastic {

namespace {

constexpr int64_t kEpochsVersion = 1;
constexpr size_t kSumDigits = 8;

std::string sum_of(std::string_view text) {
  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  return fmt::format("{:08x}", crc.checksum());
}

std::array<int64_t, 5> counts_of(const BatchSize& size) {
  return {size.rows, size.sequences, size.tokens, size.loss_tokens, size.padding_rows};
}

BatchSize size_of_counts(const std::array<int64_t, 5>& counts) {
  return {counts[0], counts[1], counts[2], counts[3], counts[4]};
}

/// Its last line has no end: the disk was full, or the machine went down.
bool is_torn(int fd) {
  const off_t end = ::lseek(fd, 0, SEEK_END);
  char last = '\n';
  size_t got = 0;
  return end > 0 && read_at(fd, &last, 1, static_cast<uint64_t>(end) - 1, got) == 0 && last != '\n';
}

}  // namespace

std::string to_line(const BegunEpoch& epoch) {
  nlohmann::json line{{"version", kEpochsVersion},
                      {"epoch", epoch.epoch},
                      {"first_step", epoch.first_step},
                      {"position", epoch.position},
                      {"mean_batch", counts_of(epoch.mean_batch)},
                      {"epochs", epoch.epochs},
                      {"max_steps", epoch.max_steps},
                      {"length", nullptr}};
  if (epoch.length) line["length"] = {{"steps", epoch.length->steps}, {"size", counts_of(epoch.length->size)}};
  const std::string text = line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return fmt::format("{} {}\n", sum_of(text), text);
}

std::optional<BegunEpoch> begun_epoch_of(std::string_view line) {
  if (line.size() <= kSumDigits + 1 || line[kSumDigits] != ' ') return std::nullopt;
  const std::string_view text = line.substr(kSumDigits + 1);
  if (line.substr(0, kSumDigits) != sum_of(text)) return std::nullopt;
  try {
    const auto fields = nlohmann::json::parse(text);
    if (fields.at("version") != kEpochsVersion) return std::nullopt;
    BegunEpoch made;
    fields.at("epoch").get_to(made.epoch);
    fields.at("first_step").get_to(made.first_step);
    fields.at("position").get_to(made.position);
    made.mean_batch = size_of_counts(fields.at("mean_batch").get<std::array<int64_t, 5>>());
    fields.at("epochs").get_to(made.epochs);
    fields.at("max_steps").get_to(made.max_steps);
    if (const auto& length = fields.at("length"); !length.is_null()) {
      made.length.emplace();
      length.at("steps").get_to(made.length->steps);
      made.length->size = size_of_counts(length.at("size").get<std::array<int64_t, 5>>());
    }
    return made;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::vector<BegunEpoch> read_epochs(const std::filesystem::path& directory) {
  std::vector<BegunEpoch> epochs;
  const auto bytes = data::read_whole(directory / kEpochsFile);
  if (!bytes) return epochs;
  std::string_view left = (*bytes)->bytes();
  for (size_t end = 0; (end = left.find('\n')) != std::string_view::npos; left.remove_prefix(end + 1)) {
    if (auto epoch = begun_epoch_of(left.substr(0, end))) epochs.push_back(std::move(*epoch));
  }
  return epochs;
}

Result<> append_epoch(const std::filesystem::path& directory, const BegunEpoch& epoch) {
  const std::filesystem::path file = directory / kEpochsFile;
  const auto opened = open_file(file, O_RDWR | O_CREAT | O_APPEND, "write");
  if (!opened) return tl::unexpected<Error>(opened.error());
  const std::string line = (is_torn(opened->get()) ? "\n" : "") + to_line(epoch);
  const ssize_t written = ::write(opened->get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return {};
  return tl::unexpected<Error>(file_error(written < 0 ? errno : ENOSPC, "write", file));
}

Result<> drop_epochs_after(const std::filesystem::path& directory, int64_t step) {
  const std::vector<BegunEpoch> all = read_epochs(directory);
  std::string kept;
  size_t left = 0;
  for (const BegunEpoch& one : all) {
    if (one.first_step > step) continue;
    kept += to_line(one);
    ++left;
  }
  return left == all.size() ? Result<>() : write_file(directory / kEpochsFile, kept);
}

const BegunEpoch* epoch_before(const std::vector<BegunEpoch>& epochs, int64_t step) {
  const BegunEpoch* last = nullptr;
  for (const BegunEpoch& one : epochs) {
    if (one.first_step <= step && (last == nullptr || one.first_step >= last->first_step)) last = &one;
  }
  return last;
}

}  // namespace pliant::elastic
