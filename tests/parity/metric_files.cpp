// Rows of DeepSpeed's metric files: written and read back, byte for byte.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "parity/parity.hpp"
#include "pliant/lengths.hpp"
#include "scratch_folder.hpp"

namespace pliant::parity {
namespace {

std::string hex_of(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Outcome check_metric_file(const Json& row, Plugins& /*plugins*/, const Options& /*options*/) {
  const test::ScratchFolder folder;
  write_metric_files(folder / "m", row.at("values").get<std::vector<int64_t>>());
  const Json actual{{"bin_hex", hex_of(test::read_all(folder / "m.bin"))},
                    {"idx_hex", hex_of(test::read_all(folder / "m.idx"))},
                    {"read_back", read_metric_files(folder / "m")}};
  return actual == row.at("out") ? Outcome::passed() : Outcome::failed(row.at("out").dump(), actual.dump());
}

}  // namespace

std::vector<RowKind> metric_file_rows() {
  return {
      {"seqlen_file", [](const Json& row) { return row.value("kind", "") == "seqlen_file"; }, {}, &check_metric_file}};
}

}  // namespace pliant::parity
