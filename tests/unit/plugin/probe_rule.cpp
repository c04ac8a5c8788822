// A rule that logs, looks for an extension and has state, so that tests see the host from the plugin's side.
#include "pliant/sdk/lr_rule.hpp"

namespace {

using namespace pliant::sdk;

struct Probe {
  int64_t calls = 0;
  std::string note;
  bool loud = false;

  static void options(Options<Probe>& o) {
    o.add("loud", &Probe::loud, "Log a line of each level when made.");
    o.add("note", &Probe::note,
          "Part of the state; 'refuse' refuses to be made, 'hasty' does not read its state to the end.");
  }

  void start(const Host& host) {
    require(note != "refuse", "note must not be 'refuse'");
    if (loud) {
      host.debug("debug line");
      host.info("info line");
      host.warning("warning line");
      host.error("error line");
    }
    if (host.extension("pliant.nobody-has-this/0") != nullptr) note = "an extension that nobody has";
  }

  [[nodiscard]] double scale(const LrInput& input) {
    ++calls;
    return input.base_lr;
  }

  void save(const Writer& out) const {
    out.value(calls);
    out.text(note);
  }
  void load(const Reader& in) {
    const auto new_calls = in.value<int64_t>();
    std::string new_note = in.text();
    if (note != "hasty") in.expect_end();
    calls = new_calls;
    note = std::move(new_note);
  }
};

}  // namespace

PLIANT_LR_RULE(Probe, "probe", "0.1.0", "Shows what the host does.")
