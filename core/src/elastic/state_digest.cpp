#include "elastic/state_digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <ostream>
#include <streambuf>
#include <string_view>

#include "base/append_json.hpp"
#include "data/digest.hpp"
#include "pliant/error.hpp"

namespace pliant::elastic {
namespace {

using data::mix64;
using data::value_of_block;

/// What is written to it goes into the digest and nowhere else.
class DigestSink final : public std::streambuf {
 public:
  [[nodiscard]] uint64_t finish() { return digest_.finish(); }
  [[nodiscard]] uint64_t size() const { return size_; }

 protected:
  int_type overflow(int_type next) override {
    if (traits_type::eq_int_type(next, traits_type::eof())) return traits_type::not_eof(next);
    const char one = traits_type::to_char_type(next);
    xsputn(&one, 1);
    return next;
  }
  std::streamsize xsputn(const char* bytes, std::streamsize size) override {
    digest_.add(bytes, static_cast<uint64_t>(size));
    size_ += static_cast<uint64_t>(size);
    return size;
  }
  pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode) override {
    if (offset != 0 || from != std::ios_base::cur) return pos_type(off_type(-1));  // only tellp
    return pos_type(static_cast<off_type>(size_));
  }

 private:
  DigestOfBytes digest_;
  uint64_t size_ = 0;
};

class Collector {
 public:
  void take(std::string name, uint64_t digest, uint64_t bytes) {
    data::Digest label;
    label.add(name);
    label.add(bytes);
    digest = mix64(digest ^ label.value());
    whole_.root += digest;
    whole_.parts.emplace_back(std::move(name), digest);
  }
  [[nodiscard]] StateDigest result() { return std::move(whole_); }

 private:
  StateDigest whole_;
};

}  // namespace

void DigestOfBytes::add(const void* data, uint64_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    if (in_rest_ == 0 && bytes >= kBlockBytes) {
      sum_ += value_of_block(sdk::digest_of_block(at), block_++);
      at += kBlockBytes;
      bytes -= kBlockBytes;
      continue;
    }
    const auto n = static_cast<size_t>(std::min<uint64_t>(bytes, kBlockBytes - in_rest_));
    std::memcpy(rest_.data() + in_rest_, at, n);
    in_rest_ += n;
    at += n;
    bytes -= n;
    if (in_rest_ < kBlockBytes) return;
    sum_ += value_of_block(sdk::digest_of_block(rest_.data()), block_++);
    in_rest_ = 0;
  }
}

uint64_t DigestOfBytes::finish() {
  if (in_rest_ > 0) {
    std::memset(rest_.data() + in_rest_, 0, kBlockBytes - in_rest_);
    sum_ += value_of_block(sdk::digest_of_block(rest_.data()), block_++);
    in_rest_ = 0;
  }
  return sum_;
}

std::string digest_line(int64_t step, const StateDigest& digest) {
  std::string line = fmt::format(R"({{"step":{},"root":"{:016x}","parts":{{)", step, digest.root);
  for (size_t i = 0; i < digest.parts.size(); ++i) {
    const auto& [name, value] = digest.parts[i];
    if (i > 0) line += ',';
    append_json(line, name);
    fmt::format_to(std::back_inserter(line), ":\"{:016x}\"", value);
  }
  return line + "}}\n";
}

StateDigest digest_of_state(const StateArrays& arrays, const TrainingState& program, const std::string& lr_state,
                            data::ArrayDigests& digests) {
  digests.stream().synchronize();
  std::vector<DigestOfArray> taken;
  for (const StateArray& array : arrays.now()) {
    const uint64_t bytes = bytes_of(array);
    taken.push_back({array.name,
                     arrays.is_for_cpu(array) ? data::ArrayDigests::digest_here(array.data, bytes)
                                              : digests.digest_of(array.data, bytes),
                     bytes});
  }
  return digest_of_state(taken, program, lr_state);
}

StateDigest digest_of_state(const std::vector<DigestOfArray>& arrays, const TrainingState& program,
                            const std::string& lr_state) {
  Collector whole;
  for (const DigestOfArray& array : arrays) whole.take(array.name, array.digest, array.bytes);
  DigestSink rest;
  std::ostream out(&rest);
  program.save(out);
  if (!out) throw Error(Status::kInternal, "the program marked the stream as failed while it saved its state");
  whole.take("(rest)", rest.finish(), rest.size());
  DigestOfBytes lr;
  lr.add(lr_state.data(), lr_state.size());
  whole.take("(lr)", lr.finish(), lr_state.size());
  return whole.result();
}

}  // namespace pliant::elastic
