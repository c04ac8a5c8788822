// The slow ways into the table of decisions.
#include "releases.hpp"

#include <algorithm>

namespace pliant::coordinator::zero3 {

Decision* Releases::look_up(uint64_t key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  if (last_ < made_.size()) made_[last_].next = found->second;
  last_ = found->second;
  return &made_[last_];
}

Decision& Releases::add(uint32_t module, uint64_t step) {
  const auto number = static_cast<uint32_t>(made_.size());
  if (last_ < made_.size()) made_[last_].next = number;
  Decision& made = made_.emplace_back();
  made.key = key_of(module, step);
  made.next = UINT32_MAX;
  by_key_[made.key] = number;
  ++changes_;
  last_ = number;
  return made;
}

void Releases::clear() {
  made_.clear();
  by_key_.clear();
  ++changes_;
  last_ = UINT32_MAX;
}

void Releases::align(Decision& decision, std::span<const Slice> used, uint32_t version) {
  decision.version = version;
  decision.released.clear();
  auto member = decision.members.begin();
  for (const Slice& slice : used) {
    uint64_t members = 0;
    member = std::lower_bound(member, decision.members.end(), slice.word * 64);
    for (; member != decision.members.end() && *member / 64 == slice.word; ++member)
      members |= uint64_t{1} << *member % 64;
    decision.released.push_back(members & slice.bits);
  }
}

void Releases::add_member(Decision& decision, uint32_t parameter) {
  const auto at = std::lower_bound(decision.members.begin(), decision.members.end(), parameter);
  if (at != decision.members.end() && *at == parameter) return;
  decision.members.insert(at, parameter);
  ++changes_;
}

}  // namespace pliant::coordinator::zero3
