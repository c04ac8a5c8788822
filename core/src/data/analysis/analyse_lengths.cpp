// analyse_lengths: threads that take chunks, measure them and put them into the partial file.
#include "pliant/analyse_lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "data/analysis/measure.hpp"
#include "data/analysis/partial_lengths.hpp"
#include "data/analysis/stored_lengths.hpp"

namespace pliant {

namespace {

namespace fs = std::filesystem;
using data::PartialLengths;

constexpr int64_t kMostThreads = 4096;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Status::kInvalidArgument, message, Origin::kInput);
}

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

void check(const LengthAnalysis& analysis) {
  if (analysis.count < 1)
    refuse(fmt::format("cannot measure the lengths of {} sequences; at least 1 is needed", analysis.count));
  // The .part of more would not fit the offsets of a file.
  if (analysis.count > std::numeric_limits<int64_t>::max() / 64) {
    refuse(fmt::format("the lengths of {} sequences do not fit a file", analysis.count));
  }
  if (!analysis.length_of) refuse("an analysis of lengths needs length_of");
  if (analysis.threads < 0 || analysis.threads > kMostThreads) {
    refuse(fmt::format("{} threads: allowed are 1 to {}, or 0 for one per processor", analysis.threads, kMostThreads));
  }
  if (analysis.identity.empty() || analysis.identity.size() > data::kLongestIdentity) {
    refuse(
        fmt::format("the identity has {} bytes; describe in 1 to {} bytes what the lengths depend on, such as "
                    "tokenizer and version of the data",
                    analysis.identity.size(), data::kLongestIdentity));
  }
  if (!is_utf8(analysis.identity)) refuse("the identity of the lengths is not UTF-8");
}

/// What `thrown` is to the caller of analyse_lengths.
Error from_length_of(int64_t sequence, const std::exception_ptr& thrown) {
  const auto text = [&](const char* what) {
    return fmt::format("cannot measure the length of sequence {}: {}", sequence, what);
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return {error.status(), text(error.what()), error.origin()};
  } catch (const std::exception& error) {
    return {Status::kAborted, text(error.what())};
  } catch (...) {
    return {Status::kAborted, text("length_of threw something other than a std::exception")};
  }
}

/// Measures all chunks that a partial file lacks. One run.
class Measuring {
 public:
  Measuring(const LengthAnalysis& analysis, const PartialLengths& partial) : analysis_(analysis), partial_(partial) {}

  /// Looks at what is there. Sequences of whole chunks.
  Result<int64_t> find_missing() {
    int64_t there = 0;
    for (int64_t chunk = 0; chunk < partial_.chunks(); ++chunk) {
      const Result<std::optional<std::vector<int32_t>>> lengths = partial_.read(chunk);
      if (!lengths) return tl::unexpected<Error>(lengths.error());
      if (*lengths) {
        there += partial_.size(chunk);
      } else {
        missing_.push_back(chunk);
      }
    }
    done_ = there;
    return there;
  }

  /// Throws what progress threw; else the error of the first sequence that failed.
  void run() {
    tell();
    const auto wanted = static_cast<size_t>(
        analysis_.threads > 0 ? analysis_.threads : std::max<int64_t>(1, std::thread::hardware_concurrency()));
    const size_t together = std::min(wanted, missing_.size());
    std::vector<std::thread> others;
    others.reserve(together);
    try {
      for (size_t i = 1; i < together; ++i) others.emplace_back([this] { work(); });
    } catch (const std::exception&) {  // no more threads are to be had: those that there are do it
    }
    work();
    for (std::thread& other : others) other.join();
    if (from_progress_) std::rethrow_exception(from_progress_);
    if (failure_) throw Error(*failure_);
    if (out_of_memory_) {
      throw Error(Status::kResourceExhausted,
                  "out of memory while measuring lengths; the lengths measured so far are kept");
    }
  }

 private:
  void work() noexcept {
    while (!stopped_) {
      const size_t at = next_++;  // once taken a chunk is finished: an error hides none of an earlier chunk
      if (at >= missing_.size()) return;
      try {
        const int64_t chunk = missing_[at];
        const Result<std::vector<int32_t>> lengths = measure(chunk);
        Result<> kept;
        if (lengths) kept = partial_.write(chunk, *lengths);
        if (!lengths || !kept) {
          fail(partial_.first(chunk), lengths ? kept.error() : lengths.error());
        } else {
          finish(partial_.size(chunk));
        }
      } catch (...) {
        stopped_ = out_of_memory_ = true;
      }
    }
  }

  Result<std::vector<int32_t>> measure(int64_t chunk) const {
    std::vector<int32_t> lengths;
    lengths.reserve(static_cast<size_t>(partial_.size(chunk)));
    for (int64_t i = partial_.first(chunk); i < partial_.first(chunk) + partial_.size(chunk); ++i) {
      int64_t length = 0;
      try {
        length = analysis_.length_of(i);
      } catch (...) {
        return tl::unexpected<Error>(from_length_of(i, std::current_exception()));
      }
      if (length < 1 || length > std::numeric_limits<int32_t>::max()) {
        return failed(Status::kInvalidArgument,
                      fmt::format("sequence {} has a length of {}; allowed: 1 to {} tokens", i, length,
                                  std::numeric_limits<int32_t>::max()),
                      Origin::kInput);
      }
      lengths.push_back(static_cast<int32_t>(length));
    }
    return lengths;
  }

  /// The error of the first chunk stays: the same one however the threads ran.
  void fail(int64_t first_sequence, const Error& error) {
    const std::lock_guard hold(lock_);
    stopped_ = true;
    if (failure_ && failed_at_ <= first_sequence) return;
    failed_at_ = first_sequence;
    failure_ = error;
  }

  void finish(int64_t sequences) {
    const std::lock_guard hold(lock_);
    done_ += sequences;
    tell();
  }

  void tell() {
    if (!analysis_.progress || from_progress_) return;
    try {
      analysis_.progress(done_, analysis_.count);
    } catch (...) {
      from_progress_ = std::current_exception();
      stopped_ = true;
    }
  }

  const LengthAnalysis& analysis_;
  const PartialLengths& partial_;
  std::vector<int64_t> missing_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> out_of_memory_{false};
  std::mutex lock_;  // of all below
  int64_t done_ = 0;
  int64_t failed_at_ = 0;
  std::optional<Error> failure_;
  std::exception_ptr from_progress_;
};

/// What a run leaves that is killed after `file` has its name.
void tidy_away(const fs::path& part, const data::Measure& measure) {
  std::error_code ignored;
  if (!fs::exists(part, ignored)) return;
  if (Result<PartialLengths> left = PartialLengths::open(part, measure)) left->remove();
}

}  // namespace

AnalysedLengths analyse_lengths(const fs::path& file, const LengthAnalysis& analysis) {
  check(analysis);
  const data::Measure measure{analysis.count, analysis.identity};
  const fs::path part = file.string() + ".part";
  if (or_throw(data::stored_already(file, measure))) {
    tidy_away(part, measure);
    return {};
  }
  PartialLengths partial = or_throw(PartialLengths::open(part, measure));
  AnalysedLengths made;
  if (!or_throw(data::stored_already(file, measure))) {  // else another process has ended since
    Measuring measuring(analysis, partial);
    made.resumed = or_throw(measuring.find_missing());
    measuring.run();
    made.measured = analysis.count - made.resumed;
    or_throw(data::store(file, measure, partial));
  }
  partial.remove();
  return made;
}

}  // namespace pliant
