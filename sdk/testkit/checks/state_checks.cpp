// State of an instance, saved and loaded.
#include <string_view>

#include "pliant/abi/coordinator.h"
#include "testkit/checks/plugin_checks.hpp"
#include "testkit/exercise.hpp"
#include "testkit/plugin.hpp"

namespace pliant::testkit {

namespace {

void need_state(const OpenedPlugin& plugin) {
  if (plugin.record().save == nullptr) skip("it has no state: save and load are NULL");
}

SavedState saved(const OwnInstance& instance) {
  SavedState state;
  pliant_error error = blank_error();
  const int32_t status = state.save_from(instance, error);
  expect(status == PLIANT_OK, "save returned " + std::to_string(status) + ": " + error.message);
  return state;
}

}  // namespace

void state_returns(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  need_state(plugin);
  const OptionRow options(plugin, subject.settings);
  const OwnInstance used(plugin, options);
  exercise(used);
  SavedState state = saved(used);
  for (const size_t portion : {size_t{1}, size_t{7}, size_t{4096}}) {
    const OwnInstance fresh(plugin, options);
    prepare(fresh);
    state.portion = portion;
    pliant_error error = blank_error();
    const int32_t status = state.load_into(fresh, error);
    const std::string where = ", in portions of " + std::to_string(portion);
    expect(status == PLIANT_OK, "load returned " + std::to_string(status) + where + ": " + error.message);
    expect(state.at == state.bytes.size(), "load left " + std::to_string(state.bytes.size() - state.at) + " of " +
                                               std::to_string(state.bytes.size()) + " bytes unread" + where);
    expect(saved(fresh).bytes == state.bytes, "what was loaded" + where + " is saved as other bytes");
  }
}

void damaged_state(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  need_state(plugin);
  const OptionRow options(plugin, subject.settings);
  const OwnInstance instance(plugin, options);
  exercise(instance);
  const SavedState before = saved(instance);
  std::vector<std::string> damaged{before.bytes + "x"};
  for (size_t size = 0; size < before.bytes.size(); size += 1 + before.bytes.size() / 64) {
    damaged.push_back(before.bytes.substr(0, size));
  }
  for (const std::string& bytes : damaged) {
    SavedState state;
    state.bytes = bytes;
    pliant_error error = blank_error();
    const std::string what =
        "state of " + std::to_string(bytes.size()) + " bytes in place of " + std::to_string(before.bytes.size());
    expect(state.load_into(instance, error) != PLIANT_OK, what + " was accepted");
    expect(error.message[0] != '\0', what + " was refused without a message");
    expect(saved(instance).bytes == before.bytes, what + " was refused, but the instance has changed");
  }
}

}  // namespace pliant::testkit
