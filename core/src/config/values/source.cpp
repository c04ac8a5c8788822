// A scanner that knows TOML's strings and comments, and nothing else of it.
#include "config/values/source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/durable_file.hpp"
#include "base/printable.hpp"

namespace pliant::config {

namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> unreadable(const fs::path& file, Status status, const std::string& why) {
  return tl::unexpected<Error>(Error(status, fmt::format("{}: error: {}", file.string(), why), Origin::kInput)
                                   .set_findings({{file.string(), 0, 0, why}}));
}

std::string too_large(uint64_t bytes) {
  return fmt::format("the file has {} bytes{}; a config may have at most {} MiB", bytes,
                     bytes == kLargestFile + 1 ? " or more" : "", kLargestFile >> 20);
}

/// As read(2); a pipe or terminal that has nothing yet is waited for as long as somebody may write to it.
ssize_t read_some(int fd, char* bytes, size_t size) {
  while (true) {
    const ssize_t got = ::read(fd, bytes, size);
    if (got >= 0 || (errno != EINTR && errno != EAGAIN)) return got;
    pollfd waited{fd, POLLIN, 0};
    if (errno == EAGAIN && ::poll(&waited, 1, -1) < 0 && errno != EINTR) return -1;
  }
}

/// The character that begins at `at`, which takes `size` bytes.
uint32_t code_point(std::string_view text, size_t at, size_t size) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  uint32_t point = size == 1 ? byte(0) : byte(0) & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) point = (point << 6U) | (byte(i) & 0x3FU);
  return point;
}

/// What is wrong with character `point` of more than one byte outside quotes and comments.
std::string foreign_character(uint32_t point) {
  const bool is_quote = point >= 0x2018 && point <= 0x201F;
  const bool is_blank = point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200F) ||
                        (point >= 0x2028 && point <= 0x202F) || (point >= 0x205F && point <= 0x206F) ||
                        point == 0x3000 || point == 0xFEFF;
  if (point < 0xA0) return fmt::format("control character U+{:04X} is not allowed", point);
  if (is_quote) return fmt::format("U+{:04X} is a typographic quote; write \" or '", point);
  if (is_blank) return fmt::format("U+{:04X} is a blank that TOML does not know; write a space", point);
  return "a letter outside ASCII must stand in quotes";
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::optional<Finding> run() {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;
    while (at_ < text_.size() && !finding_) step();
    return finding_;
  }

 private:
  enum class Inside { kCode, kComment, kBasic, kLiteral, kLongBasic, kLongLiteral };

  void step() {
    const size_t size = character_size(text_, at_);
    const char c = text_[at_];
    const auto byte = static_cast<unsigned char>(c);
    if (size == 0) return object(fmt::format("byte 0x{:02x} is not UTF-8 text; is this a binary file?", byte));
    if ((byte < 0x20 && c != '\n' && c != '\t' && c != '\r') || byte == 0x7f) {
      return object(fmt::format("control character 0x{:02x} is not allowed; is this a binary file?", byte));
    }
    size_t taken = size;
    if (inside_ == Inside::kCode) {
      if (size > 1) return object(foreign_character(code_point(text_, at_, size)));
      taken = code(c);
    } else if (inside_ != Inside::kComment) {
      taken = string(c, size);
    } else if (c == '\n') {
      inside_ = Inside::kCode;
    }
    advance(taken);
  }

  size_t code(char c) {
    const bool triple = text_.substr(at_, 3) == std::string(3, c);
    switch (c) {
      case '#':
        inside_ = Inside::kComment;
        return 1;
      case '"':
        inside_ = triple ? Inside::kLongBasic : Inside::kBasic;
        return triple ? 3 : 1;
      case '\'':
        inside_ = triple ? Inside::kLongLiteral : Inside::kLiteral;
        return triple ? 3 : 1;
      case '[':
        check_header();
        [[fallthrough]];
      case '{':
        ++brackets_;
        dots_ = 0;
        break;
      case ']':
      case '}':
        brackets_ = std::max(0, brackets_ - 1);
        dots_ = 0;
        break;
      case '.':
        ++dots_;
        break;
      case '\n':
      case '=':
      case ',':
        dots_ = 0;
        break;
      default:
        break;
    }
    if (brackets_ > kDeepest || dots_ >= kDeepest) object(fmt::format("nesting deeper than {} levels", kDeepest));
    return 1;
  }

  /// toml++ takes for granted that the name of a table begins behind its bracket.
  void check_header() {
    if (brackets_ > 0) return;
    size_t before = at_;
    while (before > 0 && (text_[before - 1] == ' ' || text_[before - 1] == '\t')) --before;
    const bool begins_line = before == 0 || text_[before - 1] == '\n' || (before == 3 && text_.front() == '\xEF');
    if (!begins_line) return;
    size_t name = at_ + 1;
    if (name < text_.size() && text_[name] == '[') ++name;
    while (name < text_.size() && (text_[name] == ' ' || text_[name] == '\t')) ++name;
    if (name == text_.size()) return;
    const char c = text_[name];
    const bool begins_name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                             c == '-' || c == '"' || c == '\'' || c == ']' || static_cast<unsigned char>(c) >= 0x80;
    if (begins_name) return;
    const bool ends_line = c == '\n' || c == '\r';
    if (!ends_line && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f))
      return;  // what it is, is said when it is met
    if (!ends_line) column_ += static_cast<uint32_t>(name - at_);
    object(ends_line ? "the name of a table must stand behind its bracket, as in [run]"
                     : fmt::format("the name of a table cannot begin with '{}'; names have letters, digits, _ and -, "
                                   "others stand in quotes",
                                   printable(std::string_view(&c, 1))));
  }

  size_t string(char c, size_t size) {
    const bool is_long = inside_ == Inside::kLongBasic || inside_ == Inside::kLongLiteral;
    const bool basic = inside_ == Inside::kBasic || inside_ == Inside::kLongBasic;
    if (c == '\n' && !is_long) inside_ = Inside::kCode;  // the parser will say that the string does not end
    if (basic && c == '\\' && at_ + 1 < text_.size() && (text_[at_ + 1] == '"' || text_[at_ + 1] == '\\')) return 2;
    const char quote = basic ? '"' : '\'';
    if (c != quote) return size;
    if (!is_long) {
      inside_ = Inside::kCode;
      return 1;
    }
    if (text_.substr(at_, 3) != std::string(3, quote)) return 1;
    size_t quotes = 3;
    while (quotes < 5 && at_ + quotes < text_.size() && text_[at_ + quotes] == quote) ++quotes;
    inside_ = Inside::kCode;
    return quotes;
  }

  void advance(size_t bytes) {
    for (size_t i = 0; i < bytes && at_ < text_.size(); ++i, ++at_) {
      if (text_[at_] == '\n') {
        ++line_;
        column_ = 1;
      } else if ((static_cast<unsigned char>(text_[at_]) & 0xC0U) != 0x80U) {
        ++column_;
      }
    }
  }

  void object(std::string message) {
    finding_.emplace();
    finding_->origin = {Layer::kFile, line_, column_, 1, ""};
    finding_->message = std::move(message);
  }

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  uint32_t column_ = 1;
  int brackets_ = 0;
  int dots_ = 0;
  Inside inside_ = Inside::kCode;
  std::optional<Finding> finding_;
};

}  // namespace

Result<std::string> read_text(const fs::path& file) {
  // Without waiting for a pipe's writer, who may never come.
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (opened.get() < 0) {
    const int reason = errno;
    return unreadable(file, reason == ENOENT ? Status::kNotFound : Status::kFailedPrecondition,
                      reason == ENOENT ? "there is no such file" : std::generic_category().message(reason));
  }
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0)
    return unreadable(file, Status::kInternal, std::generic_category().message(errno));
  if (S_ISDIR(status.st_mode)) {
    return unreadable(
        file, Status::kInvalidArgument,
        fmt::format("this is a directory; name the file in it, such as {}", (file / "pliant.toml").string()));
  }
  if (S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) > kLargestFile) {
    return unreadable(file, Status::kInvalidArgument, too_large(static_cast<uint64_t>(status.st_size)));
  }
  std::string text;
  while (text.size() <= kLargestFile) {
    const size_t before = text.size();
    text.resize(std::min(before + (size_t{64} << 10), kLargestFile + 1));
    const ssize_t got = read_some(opened.get(), text.data() + before, text.size() - before);
    if (got < 0) return unreadable(file, Status::kFailedPrecondition, std::generic_category().message(errno));
    text.resize(before + static_cast<size_t>(got));
    if (got == 0 && text.empty() && S_ISFIFO(status.st_mode)) {
      return unreadable(file, Status::kFailedPrecondition,
                        "this is a pipe without a writer; name a file, or start the writer first");
    }
    if (got == 0) return text;
  }
  return unreadable(file, Status::kInvalidArgument, too_large(text.size()));
}

std::optional<Finding> text_objection(std::string_view text) {
  return Scanner(text).run();
}

}  // namespace pliant::config
