// The threads of the software driver, its clock and its bookkeeping.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>

#include "soft.hpp"

namespace soft_ze {

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

int64_t fault(const char* name) {
  const int64_t faulty = setting("PLIANT_SOFT_ZE_FAULTS_OF", -1);
  const bool is_another = setting("LOCAL_RANK", -1) != faulty || setting("TORCHELASTIC_RESTART_COUNT", 0) != 0;
  return faulty >= 0 && is_another ? 0 : setting(name, 0);
}

namespace {

void report_to_file() {
  const char* const file = std::getenv("PLIANT_SOFT_ZE_REPORT_TO");
  const Counts& all = counts();
  if (file == nullptr || all.launched == 0) return;
  const std::string line = std::to_string(setting("LOCAL_RANK", -1)) + " " + std::to_string(all.launched_on) + " " +
                           std::to_string(all.digests) + " " + all.first_violation + "\n";
  std::ofstream(file, std::ios::app) << line;
}

}  // namespace

Counts& counts() {
  static auto* const kAll = [] {
    std::atexit(&report_to_file);
    return new Counts;
  }();
  return *kAll;
}

void violation(const std::string& what) {
  Counts& all = counts();
  if (all.violations++ != 0) return;
  const std::lock_guard lock(all.mutex);
  all.first_violation = what;
}

uint64_t ticks_now() {
  static const auto kBegin = std::chrono::steady_clock::now();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - kBegin);
  const uint64_t mask = (uint64_t{1} << kTickBits) - 1;
  return (mask - 1000 + static_cast<uint64_t>(ns.count()) * 12 / 625) & mask;  // 19.2 MHz
}

Context::Context() = default;

Context::~Context() {
  engines.clear();
}

List::List(Context& context, Engine& engine, const Device& device, bool computes)
    : context_(context), device_(device), computes_(computes), engine_(engine) {
  ++counts().lists;
}

List::~List() {
  std::unique_lock lock(context_.mutex);
  if (!context_.lost && pending_ != 0) violation("a command list was destroyed while it had work");
  context_.changed.wait(lock, [this] { return pending_ == 0; });
  --counts().lists;
}

ze_result_t List::append(Command command) {
  const std::lock_guard lock(context_.mutex);
  if (context_.lost) return ZE_RESULT_ERROR_DEVICE_LOST;
  ++counts().appended;
  if (++context_.appended == context_.lose_device_at) {
    command.work = [this] {
      const std::lock_guard inner(context_.mutex);
      if (!context_.lost) ++counts().lost;
      context_.lost = true;
      context_.changed.notify_all();
    };
  }
  command.list = this;
  ++pending_;
  for (Event* event : command.waits) ++event->in_use;
  if (command.signal != nullptr) ++command.signal->in_use;
  for (const auto& allocation : command.uses) ++allocation->in_use;
  engine_.push(std::move(command));
  return ZE_RESULT_SUCCESS;
}

Engine::Engine(Context& context, uint64_t number)
    : context_(context), random_(static_cast<uint64_t>(context.seed) * 1000003 + number), thread_([this] { loop(); }) {}

Engine::~Engine() {
  {
    const std::lock_guard lock(context_.mutex);
    closing_ = true;
    context_.changed.notify_all();
  }
  thread_.join();
}

void Engine::push(Command command) {
  queue_.push_back(std::move(command));
  context_.changed.notify_all();
}

/// Of the list whose command is first: that one if it is a barrier, else any before the list's first barrier.
size_t Engine::choose() {
  if (context_.seed < 0 || queue_.front().is_barrier) return 0;
  std::vector<size_t> free;
  for (size_t i = 0; i < queue_.size(); ++i) {
    if (queue_[i].list != queue_.front().list) continue;
    if (queue_[i].is_barrier) break;
    free.push_back(i);
  }
  return free[static_cast<size_t>(random_() % free.size())];
}

void Engine::finish(const Command& command) {
  for (Event* event : command.waits) --event->in_use;
  for (const auto& allocation : command.uses) --allocation->in_use;
  if (command.signal != nullptr) {
    Event& event = *command.signal;
    --event.in_use;
    if (!context_.lost) {
      if (event.is_signalled()) violation("a command signalled an event that was signalled");
      event.set_signalled(true);
      event.by_device = true;
      event.end_ticks = ticks_now();
    }
  }
  --command.list->pending_;
  context_.changed.notify_all();
}

void Engine::loop() {
  std::unique_lock lock(context_.mutex);
  for (;;) {
    context_.changed.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    if (context_.max_delay_us > 0) {
      const uint64_t delay = random_() % static_cast<uint64_t>(context_.max_delay_us + 1);
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(delay));  // the delay that the double was told to make
      lock.lock();
    }
    const size_t chosen = choose();
    Command command = std::move(queue_[chosen]);
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(chosen));
    context_.changed.wait(lock, [&] {
      return context_.lost || std::all_of(command.waits.begin(), command.waits.end(),
                                          [](const Event* one) { return one->is_signalled(); });
    });
    if (!context_.lost) {
      if (command.signal != nullptr) command.signal->start_ticks = ticks_now();
      lock.unlock();
      if (command.work) command.work();
      command.work = nullptr;  // whoever sees that it has run may destroy what it used
      lock.lock();
    }
    finish(command);
  }
}

}  // namespace soft_ze
