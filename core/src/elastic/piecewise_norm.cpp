// Takes the chunks of pieces, and puts those together that pieces cut.
#include "elastic/piecewise_norm.hpp"

#include <algorithm>

#include "pliant/optimizer.hpp"

namespace pliant::elastic {

PiecewiseNorm::PiecewiseNorm(std::span<const uint64_t> parts) {
  Part next;
  for (const uint64_t size : parts) {
    parts_.push_back(next);
    next.first += size;
    next.first_chunk += norm_chunks(size);
  }
  parts_.push_back(next);
  chunks_.resize(next.first_chunk);
}

void PiecewiseNorm::clear() {
  std::fill(chunks_.begin(), chunks_.end(), 0.0);
  cut_.clear();
}

void PiecewiseNorm::add(uint64_t offset, std::span<const float> values) {
  const auto begins_after = [](uint64_t element, const Part& part) { return element < part.first; };
  auto part = std::upper_bound(parts_.begin(), parts_.end(), offset, begins_after);
  while (!values.empty()) {
    const Part& of = *(part - 1);
    const uint64_t count = std::min<uint64_t>(values.size(), part->first - offset);
    if (count > 0) add_to_part(of, part->first - of.first, offset - of.first, values.first(count));
    offset += count;
    values = values.subspan(count);
    ++part;
  }
}

void PiecewiseNorm::add_to_part(const Part& part, uint64_t size, uint64_t offset, std::span<const float> values) {
  while (!values.empty()) {
    const uint64_t chunk = offset / kNormChunk;
    const uint64_t past = offset % kNormChunk;
    const uint64_t length = std::min(kNormChunk, size - chunk * kNormChunk);
    uint64_t count = std::min<uint64_t>(values.size(), length - past);
    if (count == length) {
      // As many whole chunks as there are: the last of them may be the part's short one.
      count = values.size() == size - offset ? values.size() : values.size() / kNormChunk * kNormChunk;
      squared_norms(chunks_.data() + part.first_chunk + chunk, values.data(), count);
    } else {
      Cut& cut = cut_[part.first_chunk + chunk];
      cut.values.resize(length);
      std::copy_n(values.begin(), count, cut.values.begin() + static_cast<std::ptrdiff_t>(past));
      cut.there += count;
      if (cut.there == length) {
        squared_norms(chunks_.data() + part.first_chunk + chunk, cut.values.data(), length);
        cut_.erase(part.first_chunk + chunk);
      }
    }
    offset += count;
    values = values.subspan(count);
  }
}

double PiecewiseNorm::sum() const {
  NormTree tree;
  tree.add(chunks_);
  return tree.sum();
}

}  // namespace pliant::elastic
