// Instance: a plugin whose slots are called as any host calls them, with guards around what they write. For the kinds
// whose calls are few.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "testkit/plugin.hpp"

namespace pliant::testkit {

/// Bytes behind what a plugin has room for.
inline constexpr unsigned char kGuard = 0xA5;
using Guard = std::array<unsigned char, 64>;

inline Guard whole_guard() {
  Guard made;
  made.fill(kGuard);
  return made;
}

/// A struct that a slot fills, and behind it bytes that are not its own.
template <class Struct>
struct Room {
  Struct given;
  Guard behind = whole_guard();

  /// What the struct has in it before the call: `garbage` in every byte but those of struct_size.
  explicit Room(unsigned char garbage = 0) {
    std::memset(&given, garbage, sizeof(given));
    given.struct_size = sizeof(given);
  }
  /// What was written that is the host's; "" for nothing.
  [[nodiscard]] std::string spilled(const char* slot) const {
    if (given.struct_size == sizeof(given) && behind == whole_guard()) return {};
    return std::string(slot) + " wrote struct_size, or past what it says";
  }
};

/// An array that a slot fills, and behind it elements that are not its own.
template <class Element>
class Row {
 public:
  Row(size_t count, Element unwritten) : unwritten_(unwritten), elements_(count + kGuards, unwritten) {}
  [[nodiscard]] Element* data() { return elements_.data(); }
  [[nodiscard]] bool is_spilled() const {
    return !std::all_of(elements_.end() - kGuards, elements_.end(),
                        [this](const Element& one) { return one == unwritten_; });
  }
  /// Without the guards.
  [[nodiscard]] std::vector<Element> taken() const { return {elements_.begin(), elements_.end() - kGuards}; }

 private:
  static constexpr std::ptrdiff_t kGuards = 16;
  Element unwritten_;
  std::vector<Element> elements_;
};

/// What a slot answered.
struct Reply {
  int32_t status = PLIANT_OK;
  std::string message;
  std::string fault;  ///< of the error itself, as a host may rely on it; "" for none
  [[nodiscard]] bool ok() const { return status == PLIANT_OK; }
  [[nodiscard]] std::string text() const { return "status " + std::to_string(status) + ": " + message; }
};

/// What is wrong with an error of which the host knows `known` bytes; "" for nothing.
std::string error_fault(const OpenedPlugin& plugin, int32_t status, const pliant_error& error, size_t known);

/// Calls `call` with an error, every other time with one of an older host.
template <class Call>
Reply replied(const OpenedPlugin& plugin, bool is_older, const Call& call) {
  Room<pliant_error> room;
  sdk::make_blank(room.given);
  const size_t known = is_older ? sdk::bytes_to(&pliant_error::options) : sizeof(pliant_error);
  std::memset(reinterpret_cast<unsigned char*>(&room.given) + known, kGuard, sizeof(pliant_error) - known);
  room.given.struct_size = static_cast<uint32_t>(known);
  Reply made;
  made.status = call(&room.given);
  made.message = std::string(room.given.message, strnlen(room.given.message, sizeof(room.given.message)));
  made.fault = error_fault(plugin, made.status, room.given, known);
  if (made.fault.empty() && room.behind != whole_guard()) made.fault = "it wrote past the error";
  return made;
}

/// Fails the check unless `work` comes back.
template <class Work>
void on_another_thread(const Work& work) {
  std::thread other(work);
  other.join();
}

/// One instance with the slots of its kind. Its options are the default ones for index 0, and drawn ones for others.
template <class Table>
class Instance {
 public:
  /// `plugin` outlives this. Fails the check where the default options make no instance.
  Instance(const OpenedPlugin& plugin, const Subject& subject, uint64_t index)
      : plugin_(plugin), options_(plugin, subject.settings) {
    if (index > 0) {
      Draws draws(subject.seed, (index << 20U) + 1);
      options_.draw(plugin, subject.settings, draws);
    }
    made_ = std::make_unique<OwnInstance>(plugin, options_);
    expect(index > 0 || made_->status() == PLIANT_OK, "create returned " + made_->text());
    table_ = sdk::widened<Table>(plugin.record().vtable);
  }

  /// False where create refused the options.
  [[nodiscard]] bool is_made() const { return made_->status() == PLIANT_OK && made_->self() != nullptr; }
  [[nodiscard]] const OwnInstance& own() const { return *made_; }
  [[nodiscard]] const OpenedPlugin& plugin() const { return plugin_; }
  [[nodiscard]] const Table& table() const { return table_; }
  [[nodiscard]] void* self() const { return made_->self(); }
  [[nodiscard]] bool has_state() const { return plugin_.record().save != nullptr; }

  /// `call` gets the pliant_error to hand over.
  template <class Call>
  Reply ask(const Call& call) {
    is_older_ = !is_older_;
    return replied(plugin_, is_older_, call);
  }
  /// Fails the check where it cannot be saved.
  [[nodiscard]] std::string saved() const {
    SavedState state;
    pliant_error error = blank_error();
    const int32_t status = state.save_from(*made_, error);
    expect(status == PLIANT_OK, "save returned " + std::to_string(status) + ": " + error.message);
    return state.bytes;
  }
  void load(const std::string& bytes) const {
    SavedState state;
    state.bytes = bytes;
    pliant_error error = blank_error();
    const int32_t status = state.load_into(*made_, error);
    expect(status == PLIANT_OK, "load returned " + std::to_string(status) + ": " + error.message);
  }

 private:
  const OpenedPlugin& plugin_;
  OptionRow options_;
  std::unique_ptr<OwnInstance> made_;
  Table table_{};
  bool is_older_ = false;
};

}  // namespace pliant::testkit
