// Heads of part files, written and compared.
#include "sharded/part_file.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "base/printable.hpp"
#include "data/digest.hpp"

namespace pliant::sharded {

namespace {

using nlohmann::ordered_json;

constexpr std::string_view kPartMagic = "\x89PLIPART";
constexpr uint32_t kPartFormat = 1;
constexpr uint64_t kMostHeaderBytes = uint64_t{64} << 20U;

void put_number(std::string& bytes, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i));
}

uint64_t number_at(std::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

uint64_t digest_of_text(std::string_view text) {
  data::Digest digest;
  digest.add(text);
  return digest.value();
}

uint64_t head_bytes_of(uint64_t header_bytes) {
  const uint64_t end = PartFile::kPrefixBytes + header_bytes;
  return (end + PartFile::kAlignment - 1) / PartFile::kAlignment * PartFile::kAlignment;
}

ordered_json header_of(const SnapshotContent& content, const ShardLayout& layout, int32_t rank) {
  ordered_json header{{"run", content.run_id},
                      {"step", content.step},
                      {"layout", fmt::format("{:016x}", layout.digest())},
                      {"ranks", content.ownership.world_size()},
                      {"rank", rank},
                      {"epoch", content.ownership.epoch()},
                      {"chunk_elements", layout.chunk_elements()},
                      {"kinds", content.kinds}};
  ordered_json& chunks = header["chunks"] = ordered_json::array();
  for (const OwnedRun& run : content.ownership.runs_of(rank)) {
    chunks.push_back({static_cast<int32_t>(run.chunks.first), run.chunks.count});
  }
  return header;
}

/// The header in a head whose sizes add up.
std::string_view header_in(std::string_view head) {
  return head.substr(PartFile::kPrefixBytes, static_cast<size_t>(number_at(head, 12, 4)));
}

}  // namespace

PartFile::PartFile(const SnapshotContent& content, const ShardLayout& layout, int32_t rank)
    : chunk_bytes_(static_cast<uint64_t>(layout.chunk_elements()) * sizeof(float)),
      kinds_(content.kinds.size()),
      chunks_(content.ownership.chunks_of(rank)),
      head_(kPartMagic) {
  const std::string header =
      header_of(content, layout, rank).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  put_number(head_, kPartFormat, 4);
  put_number(head_, header.size(), 4);
  put_number(head_, digest_of_text(header), 8);
  head_ += header;
  head_.resize(static_cast<size_t>(head_bytes_of(header.size())), '\0');
}

uint64_t PartFile::digest(const std::vector<uint64_t>& chunk_digests) const {
  data::Digest digest;
  digest.add(std::string_view(head_));
  digest.add(std::span<const uint64_t>(chunk_digests));
  return digest.value();
}

uint64_t PartFile::head_bytes(std::string_view prefix) {
  if (prefix.size() < kPrefixBytes || prefix.substr(0, kPartMagic.size()) != kPartMagic) return 0;
  const uint64_t header_bytes = number_at(prefix, 12, 4);
  return header_bytes > kMostHeaderBytes ? 0 : head_bytes_of(header_bytes);
}

Result<> PartFile::check(std::string_view head) const {
  if (head == head_) return {};
  const auto damaged = [](std::string reason) { return failed(Status::kDataLoss, std::move(reason)); };
  if (head_bytes(head) != head.size()) return damaged("it does not begin like a part");
  if (const uint64_t format = number_at(head, 8, 4); format != kPartFormat) {
    return damaged(fmt::format("its format version is {}, this release reads {}", format, kPartFormat));
  }
  if (digest_of_text(header_in(head)) != number_at(head, 16, 8)) return damaged("its header has another digest");
  const ordered_json there = ordered_json::parse(header_in(head), nullptr, false);
  const ordered_json here = ordered_json::parse(header_in(head_), nullptr, false);
  if (!there.is_object()) return damaged("its header is no JSON");
  constexpr std::array<std::pair<const char*, const char*>, 6> kFields{{{"run", "run"},
                                                                        {"step", "step"},
                                                                        {"rank", "rank"},
                                                                        {"ranks", "world size"},
                                                                        {"layout", "layout of the model"},
                                                                        {"kinds", "list of arrays"}}};
  for (const auto& [field, noun] : kFields) {
    const auto found = there.find(field);
    if (found != there.end() && *found == here.at(field)) continue;
    return failed(Status::kFailedPrecondition,
                  fmt::format("it is of the {} {}, not of {}", noun,
                              found == there.end() ? "none" : printable(found->dump()), here.at(field).dump()));
  }
  if (there == here) return damaged("its head has other bytes behind the header");
  return failed(Status::kFailedPrecondition, "it holds other chunks than its rank owned");
}

}  // namespace pliant::sharded
