// Peak memory of a sampler that plans one epoch and gives out its rows in portions: bytes a sequence beside the
// lengths. pack_memory SAMPLER wikipedia|lognormal BUDGET SEQUENCES [ORDER|stream]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pack_setup.hpp"
#include "pliant/abi/row_stream.h"

namespace {

using namespace pliant;

/// The most memory of the process since the last call, in bytes.
int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (status >> word) {
    if (word == "VmHWM:") status >> kib;
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return kib * 1024;
}

void must(int32_t answer, const pliant_error& error) {
  if (answer != PLIANT_OK) throw std::runtime_error(error.message);
}

/// Numbers of rows and sequences that come out.
std::pair<uint64_t, uint64_t> plan(plugin::Instance& sampler, const pliant_epoch_request& request) {
  constexpr uint64_t kRows = 4096;
  pliant_error error = plugin::fresh_error();
  pliant_epoch epoch{};
  epoch.struct_size = sizeof(epoch);
  const auto& slots = sampler.table<pliant_batch_sampler>();
  must(slots.begin_epoch(sampler.self(), &request, &epoch, &error), error);
  std::vector<uint64_t> offsets(kRows + 1);
  std::vector<int64_t> ids;
  uint64_t sequences = 0;
  for (uint64_t row = 0; row < epoch.row_count; row += kRows) {
    const uint64_t count = std::min(kRows, epoch.row_count - row);
    must(slots.rows(sampler.self(), row, count, offsets.data(), nullptr, 0, &error), error);
    ids.resize(offsets[count]);
    must(slots.rows(sampler.self(), row, count, offsets.data(), ids.data(), ids.size(), &error), error);
    sequences += ids.size();
  }
  return {epoch.row_count, sequences};
}

std::pair<uint64_t, uint64_t> stream(plugin::Instance& sampler, const pliant_epoch_request& request) {
  constexpr uint64_t kEntries = uint64_t{1} << 16U;
  const auto& slots =
      *static_cast<const pliant_row_stream*>(sampler.plugin().record().extension(sampler.self(), PLIANT_ROW_STREAM));
  pliant_error error = plugin::fresh_error();
  must(slots.open(sampler.self(), &request, &error), error);
  std::vector<uint64_t> offsets(kEntries + 1);
  std::vector<int64_t> ids(kEntries);
  std::vector<int64_t> firsts(kEntries);
  std::vector<int64_t> counts(kEntries);
  uint64_t rows = 0;
  uint64_t sequences = 0;
  for (uint64_t some = 1; some != 0; rows += some) {
    must(slots.next(sampler.self(), 4096, kEntries, &some, offsets.data(), ids.data(), firsts.data(), counts.data(),
                    &error),
         error);
    sequences += offsets[some];
  }
  return {rows, sequences};
}

void measure(const std::string& name, const std::string& lengths_of, int64_t budget, size_t n,
             const std::string& order) {
  const std::vector<int32_t> lengths =
      lengths_of == "wikipedia" ? bench::wikipedia(n, budget) : bench::lognormal(n, budget);
  plugin::Instance sampler = bench::make(name, budget, order == "stream" ? "" : order, 1);
  const pliant_epoch_request request = bench::request_of(lengths);
  (void)peak_bytes();
  const int64_t before = peak_bytes();
  const auto [rows, sequences] = order == "stream" ? stream(sampler, request) : plan(sampler, request);
  const int64_t peak = peak_bytes();
  std::printf("%s %s %lld %zu %s: %llu rows, %llu sequences, %.3f bytes a sequence (%.1f MiB), peak %.1f MiB\n",
              name.c_str(), lengths_of.c_str(), static_cast<long long>(budget), n, order.c_str(),
              static_cast<unsigned long long>(rows), static_cast<unsigned long long>(sequences),
              static_cast<double>(peak - before) / static_cast<double>(n), static_cast<double>(peak - before) / 1048576,
              static_cast<double>(peak) / 1048576);
}

}  // namespace

int main(int count, char** words) {
  if (count < 5) return 2;
  measure(words[1], words[2], std::atoll(words[3]), std::strtoull(words[4], nullptr, 10), count > 5 ? words[5] : "");
  return 0;
}
