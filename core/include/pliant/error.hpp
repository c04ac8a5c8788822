// Error: what every call of the embedding API throws, with a status, a text for people, the process exit code it
// asks for, and what it is about.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace pliant {

/// Same numbers as the ABI's status codes (pliant/abi/base.h).
enum class Status : int32_t {
  kOk = 0,
  kInvalidArgument = 1,
  kOutOfRange = 2,
  kNotFound = 3,
  kFailedPrecondition = 4,
  kResourceExhausted = 5,
  kUnimplemented = 6,
  kInternal = 7,
  kAborted = 8,
  kPeerLost = 9,
  kDataLoss = 10,
  kIncompatibleWorldSize = 11,
  kDeadlineExceeded = 12,
};

/// Process exit codes of the CLI, and of a worker that lets an Error escape.
enum class ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kPlugin = 3, kNoWorldSize = 75 };

class Error : public std::exception {
 public:
  Error(Status status, std::string message, ExitCode exit_code = ExitCode::kFailed)
      : status_(status), exit_code_(exit_code), message_(std::move(message)) {}
  [[nodiscard]] Status status() const noexcept { return status_; }
  [[nodiscard]] ExitCode exit_code() const noexcept { return exit_code_; }
  /// One or more lines, no final newline. Config errors carry one `file:line:col: error: ...` block per finding.
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }
  /// Keys of a plugin's options that it is about, the likeliest first, with a space between; empty when it is about
  /// none.
  [[nodiscard]] const std::string& options() const noexcept { return options_; }
  Error& about(std::string options) {
    options_ = std::move(options);
    return *this;
  }
  /// The rank of a communicator and the device that it is about; -1: none, or it is not known.
  [[nodiscard]] int32_t rank() const noexcept { return rank_; }
  [[nodiscard]] int32_t device() const noexcept { return device_; }
  Error& about_rank(int32_t rank) {
    rank_ = rank;
    return *this;
  }
  Error& about_device(int32_t device) {
    device_ = device;
    return *this;
  }
  /// The same error told in other words, with lines behind its own, or asking for another exit code: what it is about
  /// stays. Other words have no place in front.
  [[nodiscard]] Error with_message(std::string message) const {
    Error made = *this;
    made.message_ = std::move(message);
    made.is_located_ = false;
    return made;
  }
  [[nodiscard]] Error with_lines(const std::string& lines) const {
    Error made = *this;
    made.message_ += lines;
    return made;
  }
  [[nodiscard]] Error with_exit_code(ExitCode exit_code) const {
    Error made = *this;
    made.exit_code_ = exit_code;
    return made;
  }
  /// The message begins with its place and "error: ": who shows it puts no name of a program before it.
  [[nodiscard]] bool is_located() const noexcept { return is_located_; }
  Error& set_located() {
    is_located_ = true;
    return *this;
  }

 private:
  Status status_;
  ExitCode exit_code_;
  std::string message_;
  std::string options_;
  int32_t rank_ = -1;
  int32_t device_ = -1;
  bool is_located_ = false;
};

}  // namespace pliant
