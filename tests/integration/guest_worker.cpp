// A worker whose program is somebody else's: it looks what its session does to the process, and writes that into
// guest.txt of the run, and what its log sink hears into heard.txt. It prints nothing.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pliant/exit_code.hpp"
#include "pliant/log.hpp"
#include "pliant/session.hpp"

namespace {

namespace fs = std::filesystem;

/// What a library leaves alone, a line for each part.
std::vector<std::string> look_at_process() {
  std::vector<std::string> lines;
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (int number = 1; number <= 64; ++number) {
    struct sigaction had {};
    if (::sigaction(number, nullptr, &had) != 0) continue;
    const auto handler = reinterpret_cast<uintptr_t>(had.sa_handler);
    lines.push_back("signal " + std::to_string(number) + ": handler " + std::to_string(handler) + ", flags " +
                    std::to_string(had.sa_flags) + ", " + (::sigismember(&mask, number) != 0 ? "blocked" : "open"));
  }
  for (char** at = ::environ; *at != nullptr; ++at) lines.emplace_back(*at);
  return lines;
}

class Guest {
 public:
  /// What is another than at first, after `call`.
  void look(const std::string& call) {
    const std::vector<std::string> now = look_at_process();
    for (size_t i = 0; i < std::max(now.size(), before_.size()); ++i) {
      const std::string was = i < before_.size() ? before_[i] : "nothing";
      const std::string is = i < now.size() ? now[i] : "nothing";
      if (was != is) found_ += "after " + call + ": " + is + " instead of " + was + "\n";
    }
  }
  [[nodiscard]] const std::string& found() const { return found_; }

 private:
  const std::vector<std::string> before_ = look_at_process();
  std::string found_;
};

class Model final : public pliant::TrainingState {
 public:
  [[nodiscard]] uint64_t gradient_size() const override { return 1; }
  [[nodiscard]] std::vector<pliant::StateArray> arrays() override {
    return {{"weight", pliant::DType::kF32, {}, &weight_}};
  }
  void apply(std::span<const float> gradient, double rate) { weight_ -= static_cast<float>(rate) * gradient.front(); }

 private:
  float weight_ = 1;
};

void train(Guest& guest, const fs::path& run) {
  pliant::Session session = pliant::Session::attach();
  guest.look("attach");
  const pliant::Config& config = session.config();
  if (config.app_bool("touches").value_or(false)) pliant::leave_stop_signals_to_agent();
  if (config.app_bool("hears").value_or(false)) {
    pliant::set_log_sink([heard = run / "heard.txt"](pliant::LogLevel, std::string_view logger, std::string_view line) {
      std::ofstream(heard, std::ios::app) << logger << ": " << line << "\n";
    });
  }
  fs::create_directory(run / "digests.jsonl");  // where the session keeps digests: it has something to warn of
  Model model;
  session.start({{5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8}, {}, {}, 0}, model);
  guest.look("start");
  while (pliant::Step* const step = session.next()) {
    guest.look("next");
    const std::array<float, 1> gradient{1};
    for (const pliant::RowRange rows : step->micro_batches()) step->add(rows, 1, gradient);
    if (const auto committed = step->commit()) model.apply(committed->gradient(), step->learning_rate());
    guest.look("commit");
  }
}

}  // namespace

int main() {
  Guest guest;
  const char* const run = std::getenv("PLIANT_RUN_DIR");
  if (run == nullptr) return 2;
  try {
    train(guest, run);
  } catch (const pliant::Error& error) {
    std::ofstream(fs::path(run) / "guest.txt") << error.message() << "\n";
    return static_cast<int>(pliant::exit_code_of(error));
  }
  guest.look("the end of the session");
  std::ofstream(fs::path(run) / "guest.txt") << guest.found();
  return 0;
}
