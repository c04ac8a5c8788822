#include "elastic/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

namespace pliant::elastic {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> cannot(const char* what, const fs::path& file, const std::string& reason) {
  const Status status = errno == ENOSPC || errno == EDQUOT ? Status::kResourceExhausted : Status::kFailedPrecondition;
  return failed(status, fmt::format("cannot {} {}: {}; free or change [run] log_dir, or pass --log-dir", what,
                                    file.string(), reason));
}

}  // namespace

Result<> write_file(const fs::path& file, const std::string& text) {
  const fs::path partial = file.string() + fmt::format(".{}.partial", ::getpid());
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
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

Result<RunDirectory> RunDirectory::create(const fs::path& log_dir, const JobFacts& facts,
                                          const std::string& resolved_config) {
  std::error_code error;
  const fs::path home = fs::absolute(log_dir) / facts.name;
  RunDirectory made(home / facts.run_id);
  for (const fs::path& folder : {made.logs(), made.snapshots()}) {
    fs::create_directories(folder, error);
    if (error) {
      errno = error.value();
      return cannot("create", folder, error.message());
    }
  }
  const nlohmann::json text{{"schema", "pliant.job/1"},
                            {"run_id", facts.run_id},
                            {"name", facts.name},
                            {"global_batch", facts.global_batch},
                            {"granule", facts.granule}};
  if (auto written = write_file(made.facts(), text.dump(2) + "\n"); !written) return failed(std::move(written));
  if (auto written = write_file(made.config(), resolved_config); !written) return failed(std::move(written));
  const fs::path link = home / fmt::format("latest.{}", ::getpid());
  fs::remove(link, error);
  fs::create_symlink(facts.run_id, link, error);
  if (!error) fs::rename(link, home / "latest", error);
  if (error) {
    errno = error.value();
    return cannot("point at the new run", home / "latest", error.message());
  }
  return made;
}

Result<RunDirectory> RunDirectory::latest(const fs::path& log_dir, const std::string& name) {
  std::error_code error;
  const fs::path link = fs::absolute(log_dir) / name / "latest";
  const fs::path found = fs::canonical(link, error);
  if (error || !fs::exists(found / "job.json", error)) {
    return failed(
        Status::kNotFound,
        fmt::format("nothing to resume: {} is no run; start one without --resume, or name its folder with --resume DIR",
                    link.string()),
        ExitCode::kUsage);
  }
  return RunDirectory(found);
}

Result<JobFacts> RunDirectory::read_facts() const {
  std::ifstream in(facts());
  std::stringstream text;
  text << in.rdbuf();
  if (!in) {
    return failed(Status::kNotFound, fmt::format("{} is no run directory: job.json is missing", path_.string()),
                  ExitCode::kUsage);
  }
  try {
    const auto json = nlohmann::json::parse(text.str());
    JobFacts read;
    read.run_id = json.at("run_id").get<std::string>();
    read.name = json.at("name").get<std::string>();
    read.global_batch = json.at("global_batch").get<int64_t>();
    read.granule = json.at("granule").get<int64_t>();
    return read;
  } catch (const std::exception& damage) {
    return failed(Status::kDataLoss, fmt::format("{} is damaged: {}", facts().string(), damage.what()));
  }
}

}  // namespace pliant::elastic
