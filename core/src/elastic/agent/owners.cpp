// Group: who owns which part of a state that is cut over the ranks, and who leaves.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "elastic/agent/group.hpp"
#include "elastic/snapshot_draft.hpp"

namespace pliant::elastic {

void Group::lose_shards() {
  give_up_parts();
  owners_.clear();
  needed_.clear();
  parts_.reset();
  for (auto& [id, member] : members_) {
    member.holds = 0;
    member.may_hold = false;
    member.is_void = false;
  }
}

void Group::take_over(const std::string& owners, int64_t bytes_moved) {
  const auto count = stay_ > 0 ? stay_ : static_cast<int64_t>(ranks_.size());
  for (const WorkerId id : owners_) {
    if (members_.contains(id)) members_.at(id).holds = 0;  // it may have had nothing to give, and no rank
  }
  owners_.assign(ranks_.begin(), ranks_.begin() + count);
  shares_ = owners;
  needed_.clear();
  const auto map = sharded::Ownership::load(shares_);
  for (int64_t i = 0; i < count; ++i) {
    const bool has_none = map && i < map->world_size() && map->chunks_of(static_cast<int32_t>(i)) == 0;
    if (!has_none) needed_.insert(owners_[static_cast<size_t>(i)]);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Member& member = members_.at(ranks_[i]);
    member.holds = static_cast<int64_t>(i) < count ? committed_ : 0;
    member.may_hold = member.is_void = false;
  }
  if (bytes_moved > 0) {
    bytes_moved_ += bytes_moved;
    actions_.event(fmt::format("{} bytes of the state moved to new owners ({})", bytes_moved, reason_.text), false);
  }
  dismiss_leavers();
}

std::string Group::announce_leavers(int64_t step) {
  std::string who;
  for (InjectedKill& one : options_.injections) {
    if (!one.leave || one.step != step || one.rank < 0 || one.rank >= static_cast<int64_t>(ranks_.size())) continue;
    const WorkerId id = ranks_[static_cast<size_t>(std::exchange(one.rank, -1))];
    const auto others = static_cast<int64_t>(that_stay(ranks_).size()) - 1;
    if (largest_world(others) == 0) {
      actions_.event(
          fmt::format("{} cannot leave: {} workers would be left, fewer than the smallest valid world size{}",
                      label(id), others, why_not(others)),
          true);
      continue;
    }
    members_.at(id).leaves = true;
    who += fmt::format("{}{} leaves", who.empty() ? "" : ", ", label(id));
  }
  return who;
}

void Group::keep_leavers() {
  for (auto& [id, member] : members_) {
    if (!member.leaves || member.told_to_stop || member.surely_holds() != committed_) continue;
    member.leaves = false;
    actions_.event(fmt::format("{} stays: no other worker holds the state", label(id)), true);
  }
}

void Group::dismiss_leavers() {
  for (auto& [id, member] : members_) {
    const bool owns = std::count(owners_.begin(), owners_.end(), id) > 0;
    if (!member.leaves || owns || member.told_to_stop || !member.fenced.empty()) continue;
    member.told_to_stop = true;
    actions_.send(id, Stop{});
  }
}

void Group::ask_for_parts(const std::string& file, const std::vector<WorkerId>& writers) {
  progress_at_ = time();
  for (const WorkerId id : writers) {
    if (actions_.is_stopped(id)) actions_.wake(id);
  }
  begin_parts(file, writers);
  for (const WorkerId id : writers) actions_.send(id, Save{committed_, file});
}

void Group::begin_parts(const std::string& file, const std::vector<WorkerId>& writers) {
  if (file.empty() || writers.empty()) return;
  const auto map = sharded::Ownership::load(shares_);
  parts_ = Parts{committed_, file, writers, generation_, {}, {}, {}, false};
  for (size_t i = 0; map && i < owners_.size(); ++i) {
    parts_->cuts[owners_[i]] = digest_of_cut(map->runs_of(static_cast<int32_t>(i)));
  }
}

}  // namespace pliant::elastic
