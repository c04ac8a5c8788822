// A small analysis of lengths whose answers are known, and what it refuses with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "pliant/analyse_lengths.hpp"
#include "pliant/error.hpp"
#include "pliant/lengths.hpp"
#include "scratch_folder.hpp"

namespace pliant::test {

inline constexpr int64_t kCount = 3000;  // eleven chunks and a part of one

inline int64_t length_at(int64_t i) {
  return 1 + i * 7919 % 100003;
}

inline LengthAnalysis analysis_of(int64_t count = kCount, int64_t threads = 3) {
  LengthAnalysis analysis;
  analysis.count = count;
  analysis.length_of = length_at;
  analysis.identity = "tokenizer a, data 1";
  analysis.threads = threads;
  return analysis;
}

inline bool holds_all(const std::filesystem::path& file, int64_t count = kCount) {
  const auto lengths = read_lengths(file);
  if (static_cast<int64_t>(lengths.size()) != count) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (lengths[static_cast<size_t>(i)] != length_at(i)) return false;
  }
  return true;
}

struct Refusal {
  Status status = Status::kOk;
  Origin origin = Origin::kRun;
  std::string message;
};
inline Refusal refusal(const std::filesystem::path& file, const LengthAnalysis& analysis) {
  try {
    analyse_lengths(file, analysis);
  } catch (const Error& error) {
    return {error.status(), error.origin(), error.message()};
  }
  return {};
}
inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A run that ends with an error at sequence `at`; `file`.part stays.
inline Refusal stopped_at(const std::filesystem::path& file, int64_t at, int64_t threads = 1) {
  LengthAnalysis analysis = analysis_of(kCount, threads);
  analysis.length_of = [at](int64_t i) {
    if (i == at) throw std::runtime_error("no such document");
    return length_at(i);
  };
  return refusal(file, analysis);
}

}  // namespace pliant::test
