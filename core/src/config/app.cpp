// What a program checks about [app], the section that only the program understands.
#include <fmt/format.h>

#include "config/options.hpp"
#include "config/state.hpp"
#include "config/values/parse.hpp"
#include "pliant/config.hpp"

namespace pliant {

void Config::check_app_keys(const std::vector<std::string>& known) const {
  const config::Value* const app = state_->root.find("app");
  if (app == nullptr) return;
  config::Diagnostics found = *state_->diagnostics;
  for (const config::Member& member : app->members) {
    bool is_known = false;
    for (const std::string& key : known) is_known = is_known || key == member.key;
    if (!is_known) {
      config::report_unknown_key(member, {"app"}, known, found,
                                 {fmt::format("its keys are: {}", fmt::join(known, ", "))});
    }
  }
  if (found.failed()) throw found.to_error();
}

void Config::refuse_app(std::string_view key, std::string_view problem) const {
  config::Finding finding;
  const config::Value* const app = state_->root.find("app");
  const auto path = config::parse_key(key);
  const config::Value* const value = app == nullptr || !path ? nullptr : config::at(*app, *path);
  if (value != nullptr) finding.origin = value->origin;
  finding.message = fmt::format("app.{} {}", key, problem);
  throw Error(finding.status, state_->diagnostics->render(finding), finding.error_origin)
      .set_findings({state_->diagnostics->found(finding)});
}

}  // namespace pliant
