#include "elastic/run_directory.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "base/environment.hpp"
#include "data/digest.hpp"

namespace pliant::elastic {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> cannot(const char* what, const fs::path& file, const std::string& reason) {
  const Status status = errno == ENOSPC || errno == EDQUOT ? Status::kResourceExhausted : Status::kFailedPrecondition;
  return failed(status, fmt::format("cannot {} {}: {}; free or change [run] log_dir, or pass --log-dir", what,
                                    file.string(), reason));
}

}  // namespace

Result<DirectoryLock> DirectoryLock::take(const RunDirectory& directory) {
  Result<FileDescriptor> fd = open_file(directory.path(), O_RDONLY | O_DIRECTORY, "open the run directory");
  if (!fd) return failed(std::move(fd));
  if (lock_for_writing(fd->get())) return DirectoryLock(std::move(*fd));
  return failed(Status::kFailedPrecondition, fmt::format("another `pliant run` is using {}", directory.path().string()),
                Origin::kInput);
}

std::string fresh_run_id() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y%m%d-%H%M%S}-{}", fmt::gmtime(now), random_hex());
}

std::string digest_of_config(std::string_view resolved) {
  data::Digest digest;
  digest.add(resolved);
  return fmt::format("{:016x}", digest.value());
}

std::string text_of(const JobFacts& facts) {
  nlohmann::json text{{"schema", "pliant.job/1"},
                      {"run_id", facts.run_id},
                      {"name", facts.name},
                      {"global_batch", facts.global_batch},
                      {"granule", facts.granule}};
  if (!facts.launcher.empty()) text["launcher"] = facts.launcher;
  return text.dump(2) + "\n";
}

std::string why_no_ledger(const fs::path& run) {
  std::error_code error;
  const std::string example = "give the directory of a run, such as pliant-runs/NAME/latest";
  if (!fs::is_directory(run, error)) return fmt::format("{} is not a directory; {}", run.string(), example);
  if (!fs::exists(run / "job.json", error)) return fmt::format("{} has no ledger.jsonl; {}", run.string(), example);
  fs::path newest;
  for (const auto& beside : fs::directory_iterator(fs::canonical(run, error).parent_path(), error)) {
    if (beside.is_symlink(error) || !fs::exists(beside.path() / "ledger.jsonl", error)) continue;
    newest = std::max(newest, beside.path());  // names of runs begin with the time
  }
  return fmt::format(
      "{} has no ledger.jsonl: it failed before its first step, or its program does not use the embedding API, and "
      "commits none; {}",
      run.string(), newest.empty() ? example : "the newest run beside it that has one is " + newest.string());
}

Result<> write_file(const fs::path& file, const std::string& text) {
  const fs::path partial = file.string() + fmt::format(".{}.partial", random_hex());
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return cannot("create", partial, std::strerror(errno));
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const bool whole = done == text.size() && ::fsync(fd) == 0;
  const int why = errno;
  ::close(fd);
  if (!whole || ::rename(partial.c_str(), file.c_str()) != 0) {
    const int reason = whole ? errno : why;
    ::unlink(partial.c_str());
    errno = reason;
    return cannot("write", file, std::strerror(reason));
  }
  return {};
}

Result<RunDirectory> RunDirectory::create(const fs::path& log_dir, const JobFacts& facts) {
  std::error_code error;
  const fs::path home = fs::absolute(log_dir) / facts.name;
  fs::create_directories(home, error);
  const fs::path resolved = error ? home : fs::canonical(home, error);
  if (error) {
    errno = error.value();
    return cannot("create", home, error.message());
  }
  const fs::path path = resolved / facts.run_id;
  if (::mkdir(path.c_str(), 0777) == 0) return RunDirectory(path);
  if (errno != EEXIST) return cannot("create", path, std::strerror(errno));
  return failed(
      Status::kFailedPrecondition,
      fmt::format("the run directory {} exists already and belongs to another run; start again", path.string()),
      Origin::kInput);
}

Result<RunDirectory> RunDirectory::open(const fs::path& directory) {
  std::error_code error;
  const fs::path resolved = fs::canonical(directory, error);
  if (!error && fs::is_directory(resolved, error)) return RunDirectory(resolved);
  return failed(Status::kNotFound,
                fmt::format("{} is not a run directory: {}; check the path, or omit it to resume the latest run",
                            directory.string(), error ? error.message() : "it is not a folder"),
                Origin::kInput);
}

Result<> RunDirectory::make_folders() const {
  for (const fs::path& folder : {logs(), snapshots()}) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (!error) continue;
    errno = error.value();
    return cannot("create", folder, error.message());
  }
  return {};
}

Result<> RunDirectory::fill(const JobFacts& pinned, const std::string& resolved_config) const {
  if (auto made = make_folders(); !made) return made;
  if (auto written = write_file(facts(), text_of(pinned)); !written) return written;
  return write_file(config(), resolved_config);
}

Result<> RunDirectory::change_config(const std::string& before, const std::string& resolved) const {
  if (before == resolved) return {};
  if (!before.empty()) {
    const fs::path kept = config_before(digest_of_config(before));
    std::error_code error;
    fs::create_directories(kept.parent_path(), error);
    if (error) {
      errno = error.value();
      return cannot("create", kept.parent_path(), error.message());
    }
    if (auto written = write_file(kept, before); !written) return written;
  }
  return write_file(config(), resolved);
}

std::vector<std::pair<int64_t, fs::path>> RunDirectory::of_workers(std::string_view prefix) const {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(logs(), error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    int64_t worker = 0;
    const char* const last = name.data() + name.size();
    const auto number = std::from_chars(name.data() + prefix.size(), last, worker);
    if (number.ec == std::errc{} && number.ptr == last && worker >= 0) found.emplace_back(worker, entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void RunDirectory::remove_of_workers(std::string_view prefix) const {
  std::error_code ignored;  // one that stays costs room only
  for (const auto& [worker, file] : of_workers(prefix)) fs::remove(file, ignored);
}

std::vector<std::pair<int64_t, fs::path>> RunDirectory::traces() const {
  return of_workers(kTrace);
}
void RunDirectory::remove_traces() const {
  remove_of_workers(kTrace);
}
void RunDirectory::remove_visits() const {
  remove_of_workers(kVisits);
}

std::string shell_words(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  std::string made;
  for (const std::string& word : words) {
    if (!made.empty()) made += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      made += word;
      continue;
    }
    made += '\'';
    for (const char c : word) made += c == '\'' ? std::string("'\\''") : std::string(1, c);
    made += '\'';
  }
  return made;
}

std::string resume_with(const RunDirectory& directory, const std::string& program) {
  const std::string run =
      "pliant run " + shell_words({directory.config().string(), "--resume", directory.path().string()});
  return program.empty() ? run : run + " -- " + program;
}

std::string resume_command(const RunDirectory& directory, const std::vector<std::string>& program) {
  return resume_with(directory, shell_words(program));
}

std::string resume_command_of_worker(const RunDirectory& directory) {
  const char* const program = environment_variable(kProgramVariable);
  return resume_with(directory, program == nullptr ? "" : program);
}

Result<> RunDirectory::become_latest() const {
  std::error_code error;
  const fs::path latest = path_.parent_path() / "latest";
  const fs::path link = latest.string() + "." + random_hex();
  fs::create_symlink(path_.filename(), link, error);
  if (!error) fs::rename(link, latest, error);
  if (!error) return {};
  const int reason = error.value();
  fs::remove(link, error);
  errno = reason;
  return cannot("point at the new run", latest, std::strerror(reason));
}

Result<RunDirectory> RunDirectory::latest(const fs::path& log_dir, const std::string& name) {
  std::error_code error;
  const fs::path link = fs::absolute(log_dir) / name / "latest";
  const fs::path found = fs::canonical(link, error);
  if (error || !fs::exists(found / "job.json", error)) {
    return failed(
        Status::kNotFound,
        fmt::format("nothing to resume: {} is not a run; start one without --resume, or name a run with --resume DIR",
                    link.string()),
        Origin::kInput);
  }
  return RunDirectory(found);
}

Result<JobFacts> RunDirectory::read_facts() const {
  std::error_code absent;
  std::stringstream text;
  if (fs::is_regular_file(facts(), absent)) text << std::ifstream(facts()).rdbuf();  // to open a FIFO may never end
  if (text.str().empty()) {
    return failed(Status::kNotFound, fmt::format("{} is not a run directory: job.json is missing", path_.string()),
                  Origin::kInput);
  }
  try {
    const auto json = nlohmann::json::parse(text.str());
    JobFacts read;
    read.run_id = json.at("run_id").get<std::string>();
    read.name = json.at("name").get<std::string>();
    read.global_batch = json.at("global_batch").get<int64_t>();
    read.granule = json.at("granule").get<int64_t>();
    read.launcher = json.value("launcher", std::string());
    return read;
  } catch (const std::exception& damage) {
    return failed(Status::kDataLoss, fmt::format("{} is damaged: {}", facts().string(), damage.what()));
  }
}

std::optional<PinnedBatch> batch_kept_by(const fs::path& config_file) {
  const RunDirectory run(config_file.parent_path());
  if (config_file.filename() != run.config().filename()) return std::nullopt;
  const Result<JobFacts> facts = run.read_facts();
  if (!facts || facts->global_batch < 1 || facts->granule < 1) return std::nullopt;
  return PinnedBatch{facts->global_batch, facts->granule};
}

}  // namespace pliant::elastic
