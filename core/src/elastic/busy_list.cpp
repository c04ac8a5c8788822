// BusyList, and the handle that programs hold.
#include "elastic/busy_list.hpp"

#include <algorithm>
#include <utility>

#include "pliant/session.hpp"

namespace pliant {
namespace elastic {
namespace {

// What is over its time says so at once: the agent refuses none.
constexpr double kLeastBusySeconds = 1e-3;
constexpr double kMostBusySeconds = 1e9;  // 30 years: more would not fit the clock

}  // namespace

int64_t BusyList::begin(std::string what, double at_most_s) {
  const std::lock_guard lock(mutex_);
  const std::chrono::duration<double> time(std::min(at_most_s, kMostBusySeconds));
  entries_.push_back({next_, std::move(what), Clock::now() + std::chrono::duration_cast<Clock::duration>(time)});
  tell_of_last();
  return next_++;
}

void BusyList::end(int64_t number) {
  const std::lock_guard lock(mutex_);
  const auto ended =
      std::find_if(entries_.begin(), entries_.end(), [number](const Entry& one) { return one.number == number; });
  if (ended == entries_.end()) return;
  const bool counted = std::next(ended) == entries_.end();
  entries_.erase(ended);
  if (counted) tell_of_last();
}

void BusyList::close() {
  const std::lock_guard lock(mutex_);
  tell_ = nullptr;
}

void BusyList::tell_of_last() const {
  if (!tell_) return;
  if (entries_.empty()) return tell_(BusyWith{});
  const Entry& last = entries_.back();
  const double left = std::chrono::duration<double>(last.until - Clock::now()).count();
  tell_(BusyWith{last.what, std::max(left, kLeastBusySeconds)});
}

}  // namespace elastic

Busy::Busy(std::shared_ptr<elastic::BusyList> list, int64_t number) : list_(std::move(list)), number_(number) {}
Busy::Busy(Busy&& other) noexcept : list_(std::move(other.list_)), number_(other.number_) {}
Busy& Busy::operator=(Busy&& other) noexcept {
  if (this == &other) return *this;
  end();
  list_ = std::move(other.list_);
  number_ = other.number_;
  return *this;
}
Busy::~Busy() {
  end();
}

void Busy::end() noexcept {
  try {
    if (const auto list = std::exchange(list_, nullptr)) list->end(number_);
  } catch (...) {  // NOLINT(bugprone-empty-catch): what the agent does not hear costs at_most, and no more
  }
}

}  // namespace pliant
