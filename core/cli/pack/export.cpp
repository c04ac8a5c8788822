// The rows as .npy files that any framework reads.
#include <fmt/format.h>
#include <algorithm>
#include <functional>
#include <string_view>
#include <system_error>

#include "base/durable_file.hpp"
#include "base/whole_file.hpp"
#include "pack/views.hpp"
#include "pliant/error.hpp"
#include "stop_signals.hpp"

namespace pliant::cli {

namespace {

namespace fs = std::filesystem;

/// The header of an array of `count` int64, 128 bytes: numpy's format version 1.
std::string npy_header(int64_t count) {
  std::string dictionary = fmt::format("{{'descr': '<i8', 'fortran_order': False, 'shape': ({},), }}", count);
  dictionary.resize(117, ' ');
  const auto size = static_cast<uint16_t>(dictionary.size() + 1);
  std::string header = "\x93NUMPY";
  header += {'\1', '\0', static_cast<char>(size & 0xffU), static_cast<char>(size >> 8U)};
  return header + dictionary + "\n";
}

/// Bytes one after the other; stops at the first errno value.
class Appender {
 public:
  explicit Appender(int fd) : fd_(fd) {}
  void add(std::string_view bytes) {
    if (fault_ == 0) fault_ = write_all_at(fd_, bytes, at_);
    at_ += bytes.size();
  }
  void add(const std::vector<int64_t>& numbers) {
    add(std::string_view(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)));
  }
  [[nodiscard]] int fault() const { return fault_; }

 private:
  int fd_;
  uint64_t at_ = 0;
  int fault_ = 0;
};

/// Appends numbers of a portion of the rows to `to`.
using Portion = std::function<void(const Batch& rows, std::vector<int64_t>& to)>;

class Exporter {
 public:
  Exporter(fs::path folder, const PackStudy& study, Batches& batches, ProgressLine& progress)
      : folder_(std::move(folder)), study_(study), batches_(batches), progress_(progress) {}

  ~Exporter() {
    if (done_) return;
    std::error_code ignored;
    for (const fs::path& file : written_) fs::remove(file, ignored);
    for (const fs::path& made : made_) fs::remove(made, ignored);
  }
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  void run() {
    make_folder();
    StopSignals::check();
    int64_t end = 0;
    write_rows("row_offsets.npy", {0}, study_.summary.rows + 1, [&end](const Batch& rows, std::vector<int64_t>& to) {
      for (size_t row = 1; row < rows.offsets.size(); ++row)
        to.push_back(end + static_cast<int64_t>(rows.offsets[row]));
      end += static_cast<int64_t>(rows.ids.size());
    });
    write_rows("ids.npy", {}, study_.entries, [](const Batch& rows, std::vector<int64_t>& to) {
      to.insert(to.end(), rows.ids.begin(), rows.ids.end());
    });
    if (study_.entries > study_.summary.sequences || study_.summary.truncated > 0) write_pieces();
    write("dropped.npy", batches_.dropped(study_.epoch));
    put("pack.json", [text = pack_json(study_)](int fd) { return write_all_at(fd, text, 0); });
    done_ = true;
  }

 private:
  void write_pieces() {
    write_rows("first_tokens.npy", {}, study_.entries, [](const Batch& rows, std::vector<int64_t>& to) {
      for (size_t i = 0; i < rows.ids.size(); ++i) to.push_back(rows.pieces.empty() ? 0 : rows.pieces[i].first);
    });
    const Lengths& lengths = batches_.dataset().lengths;
    write_rows("token_counts.npy", {}, study_.entries, [&lengths](const Batch& rows, std::vector<int64_t>& to) {
      for (size_t i = 0; i < rows.ids.size(); ++i) {
        to.push_back(rows.pieces.empty() ? lengths[static_cast<size_t>(rows.ids[i])] : rows.pieces[i].count);
      }
    });
  }
  void make_folder() {
    std::error_code failure;
    for (fs::path at = fs::absolute(folder_); !fs::exists(at, failure) && at.has_relative_path(); at = at.parent_path())
      made_.push_back(at);
    fs::create_directories(folder_, failure);
    if (!failure) return;
    throw Error(Status::kFailedPrecondition,
                fmt::format("--export: cannot create {}: {}", folder_.string(), failure.message()), Origin::kInput);
  }
  void write_rows(const std::string& name, std::vector<int64_t> head, int64_t count, const Portion& portion) {
    constexpr int64_t kRows = 65536;
    put(name, [&](int fd) {
      Appender out(fd);
      out.add(npy_header(count));
      std::vector<int64_t> numbers = std::move(head);
      for (int64_t first = 0; out.fault() == 0 && first < study_.summary.rows; first += kRows) {
        StopSignals::check();
        progress_.show("writing " + name, static_cast<double>(first) / static_cast<double>(study_.summary.rows));
        portion(batches_.rows(study_.epoch, first, std::min(kRows, study_.summary.rows - first)), numbers);
        out.add(numbers);
        numbers.clear();
      }
      return out.fault();
    });
  }
  void write(const std::string& name, const std::vector<int64_t>& numbers) {
    put(name, [&numbers](int fd) {
      Appender out(fd);
      out.add(npy_header(static_cast<int64_t>(numbers.size())));
      out.add(numbers);
      return out.fault();
    });
  }
  void put(const std::string& name, const std::function<int(int)>& fill) {
    written_.push_back(folder_ / name);
    const Result<> written = write_whole(folder_ / name, WholeFile{fill, {}, {}}, true);
    if (written) return;
    throw written.error().with_message("--export: " + written.error().message());
  }

  fs::path folder_;
  const PackStudy& study_;
  Batches& batches_;
  ProgressLine& progress_;
  std::vector<fs::path> written_;
  std::vector<fs::path> made_;  ///< folders, the innermost first
  bool done_ = false;
  StopSignals signals_;
};

}  // namespace

void check_export_folder(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return;
  const bool is_folder = fs::is_directory(folder, ignored);
  if (is_folder && fs::is_empty(folder, ignored)) return;
  throw Error(
      Status::kFailedPrecondition,
      fmt::format("--export: {} is {}; name a new folder", folder.string(), is_folder ? "not empty" : "not a folder"),
      Origin::kInput);
}

void export_pack(const fs::path& folder, const PackStudy& study, Batches& batches, ProgressLine& progress) {
  check_export_folder(folder);
  Exporter(folder, study, batches, progress).run();
}

}  // namespace pliant::cli
