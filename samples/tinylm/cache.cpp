// Files of the cache directory: atomic writes, a lock, a digest.
#include "cache.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <pliant/error.hpp>
#include <sstream>
#include <system_error>

namespace tinylm {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& file, const char* what) {
  throw pliant::Error(pliant::Status::kFailedPrecondition,
                      file.string() + ": " + what + ": " + std::system_category().message(errno));
}

void make_folder_of(const fs::path& file) {
  std::error_code problem;
  fs::create_directories(file.parent_path(), problem);
  if (problem) {
    throw pliant::Error(pliant::Status::kFailedPrecondition, "cannot make the folder " + file.parent_path().string() +
                                                                 ": " + problem.message() +
                                                                 "; XDG_CACHE_HOME chooses another cache directory");
  }
}

void write_all(int descriptor, std::string_view content, const fs::path& file) {
  while (!content.empty()) {
    const ssize_t wrote = ::write(descriptor, content.data(), content.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(file, "cannot write");
    content.remove_prefix(static_cast<size_t>(wrote));
  }
  if (::fsync(descriptor) != 0) fail(file, "cannot write");
}

}  // namespace

fs::path cache_directory() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return fs::path(cache) / "pliant";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return fs::path(home) / ".cache" / "pliant";
  throw pliant::Error(pliant::Status::kFailedPrecondition,
                      "no cache directory: set HOME or XDG_CACHE_HOME to an absolute path", pliant::Origin::kInput);
}

fs::path default_text() {
  return cache_directory() / "text" / "austen.txt";
}

std::string read_file(const fs::path& file) {
  std::error_code problem;
  if (fs::exists(file, problem) && !fs::is_regular_file(file, problem)) {
    throw pliant::Error(
        pliant::Status::kInvalidArgument,
        file.string() + (fs::is_directory(file, problem) ? ": is a folder, not a file" : ": is not a regular file"),
        pliant::Origin::kInput);
  }
  std::ifstream in(file, std::ios::binary);
  std::ostringstream content;
  if (in && in.peek() != std::ifstream::traits_type::eof()) content << in.rdbuf();
  if (!in.is_open() || in.bad() || content.bad()) fail(file, "cannot read");
  return std::move(content).str();
}

void write_atomically(const fs::path& file, std::string_view content) {
  make_folder_of(file);
  std::string beside = file.string() + ".XXXXXX";
  const int descriptor = ::mkostemp(beside.data(), O_CLOEXEC);
  if (descriptor < 0) fail(file, "cannot write");
  try {
    write_all(descriptor, content, file);
    if (::fchmod(descriptor, 0644) != 0 || ::rename(beside.c_str(), file.c_str()) != 0) fail(file, "cannot write");
  } catch (...) {
    ::unlink(beside.c_str());
    ::close(descriptor);
    throw;
  }
  ::close(descriptor);
}

uint64_t digest_of(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return hash;
}

FileLock::FileLock(const fs::path& file) {
  make_folder_of(file);
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail(file, "cannot make the lock file");
  while (::flock(descriptor_, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    const int reason = errno;
    ::close(descriptor_);
    errno = reason;
    fail(file, "cannot lock");
  }
}

FileLock::~FileLock() {
  ::close(descriptor_);
}

}  // namespace tinylm
