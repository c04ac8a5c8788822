// Ledgers and records to test with.
#pragma once

#include <doctest/doctest.h>

#include "elastic/ledger.hpp"

namespace pliant::test {

inline elastic::CommitRecord commit_of(int64_t step) {
  elastic::CommitRecord commit;
  commit.step = step;
  commit.generation = 1 + step / 3;
  commit.epoch = step / 4;
  commit.batch_index = step % 4;
  commit.shares = {{{0, 4}}, {{4, 1}, {6, 1}}, {{5, 1}}, {}};
  commit.size = {7, 9, 1000 + step, 990 + step, step % 2};
  commit.digest = 0xFEDCBA9876543210U + static_cast<uint64_t>(step);
  commit.loss = 1.0 / (3.0 + static_cast<double>(step));
  commit.learning_rate = 1e-3;
  return commit;
}

inline bool same(const elastic::CommitRecord& a, const elastic::CommitRecord& b) {
  return a.step == b.step && a.generation == b.generation && a.epoch == b.epoch && a.batch_index == b.batch_index &&
         a.shares == b.shares && a.size == b.size && a.digest == b.digest && a.loss == b.loss &&
         a.learning_rate == b.learning_rate;
}

/// A ledger with a generation and `commits` commits.
inline elastic::Ledger filled_ledger(const std::filesystem::path& file, int64_t commits) {
  auto ledger = elastic::Ledger::create(file, "run-1", "00ff");
  REQUIRE(ledger.has_value());
  REQUIRE(ledger->append(elastic::GenerationRecord{1, 3, 0, "start"}).has_value());
  for (int64_t step = 0; step < commits; ++step) REQUIRE(ledger->append(commit_of(step)).has_value());
  return std::move(*ledger);
}

}  // namespace pliant::test
