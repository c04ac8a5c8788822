// Error: what every call of the embedding API throws, with a status, a text for people, where it comes from, and what
// it is about.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

/// Where an error comes from, and so who can mend it. Where a call says kNotFound (kInput), it throws that status with
/// this origin. exit_code_of() (pliant/exit_code.hpp) makes a process exit code of it.
enum class Origin {
  kRun,        ///< something failed while it ran; also what is none of the others
  kInput,      ///< what the user gave: flags, config, files
  kPlugin,     ///< a plugin is missing, broken or answers wrongly
  kWorldSize,  ///< no valid world size is left; one that was asked for and is not valid is kInput
};

/// One thing that is wrong with a config, and where.
struct ConfigFinding {
  std::string place;    ///< what the value came from: the file, a `--set`, a variable of the environment
  int64_t line = 0;     ///< from 1; 0 where it is no place in a file
  int64_t column = 0;   ///< likewise, in characters
  std::string message;  ///< one line
  friend bool operator==(const ConfigFinding&, const ConfigFinding&) = default;
};

class Error : public std::exception {
 public:
  Error(Status status, std::string message, Origin origin = Origin::kRun)
      : status_(status), origin_(origin), message_(std::move(message)) {}
  [[nodiscard]] Status status() const noexcept { return status_; }
  [[nodiscard]] Origin origin() const noexcept { return origin_; }
  /// One or more lines, no final newline. Of an error with findings one block for each, which begins with
  /// `file:line:col: error: ` and its message; findings beyond the hundredth are counted only.
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
  /// The same error in other words, with lines behind its own, or of another origin: what it is about stays. Other
  /// words have no place in front.
  [[nodiscard]] Error with_message(std::string message) const {
    Error made = *this;
    made.message_ = std::move(message);
    made.findings_.reset();
    return made;
  }
  [[nodiscard]] Error with_lines(const std::string& lines) const {
    Error made = *this;
    made.message_ += lines;
    return made;
  }
  [[nodiscard]] Error with_origin(Origin origin) const {
    Error made = *this;
    made.origin_ = origin;
    return made;
  }
  /// All that is wrong with a config, sorted by place; empty for an error that is about none.
  [[nodiscard]] const std::vector<ConfigFinding>& findings() const {
    static const std::vector<ConfigFinding> kNone;
    return findings_ ? *findings_ : kNone;
  }
  /// The message begins with the place of a finding and "error: ": who shows it puts no name of a program before it.
  [[nodiscard]] bool is_located() const { return !findings().empty(); }
  Error& set_findings(std::vector<ConfigFinding> findings) {
    findings_ = std::make_shared<const std::vector<ConfigFinding>>(std::move(findings));
    return *this;
  }

 private:
  Status status_;
  Origin origin_;
  std::string message_;
  std::string options_;
  int32_t rank_ = -1;
  int32_t device_ = -1;
  std::shared_ptr<const std::vector<ConfigFinding>> findings_;
};

}  // namespace pliant
