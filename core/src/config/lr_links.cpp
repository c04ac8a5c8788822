// The links of the learning-rate chain beside `use`: what [lr] schedule and `then` name.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/selector.hpp"
#include "plugin/record_check.hpp"

namespace pliant::config {

void Selector::select_links(const Selection& used, bool needed) {
  const LrOptions& options = state_.core.lr;
  for (const auto* names : {&options.schedule, &options.then})
    links_.insert(links_.end(), names->begin(), names->end());
  state_.lr_schedule = links_of("schedule", used, needed);
  state_.lr_then = links_of("then", used, needed);
}

std::vector<Selection> Selector::links_of(std::string_view key, const Selection& used, bool needed) {
  const Effective* row = state_.core_tables.at("lr").find(key);
  std::vector<Selection> links;
  for (const Value& item : row->value.items) {
    if (item.type != Value::Type::kString) continue;  // reported already
    const std::string where = fmt::format("lr.{}", key);
    if (!plugin::valid_plugin_name(item.text)) {
      diagnostics_.error(item.origin, fmt::format("{} must list names of plugins, not {}", where, describe(item)),
                         {fmt::format("installed: {}", fmt::join(plugin::names(state_.search, *used.kind), ", "))});
      continue;
    }
    if (item.text == used.use || std::count(links_.begin(), links_.end(), item.text) > 1) {
      diagnostics_.error(item.origin, fmt::format("{} names '{}', which is already in the chain; a rule has one table "
                                                  "of options, so it can appear only once",
                                                  where, item.text));
      continue;
    }
    Selection link;
    link.kind = used.kind;
    link.use = item.text;
    link.use_origin = item.origin;
    if (!needed) {
      environment_.apply_below({std::string(link.kind->section), link.use}, state_.root);
      continue;
    }
    if (!open(link, false)) continue;
    configure(link);
    links.push_back(std::move(link));
  }
  return links;
}

bool Selector::is_link(const plugin::Kind& kind, std::string_view name) const {
  return kind.section == "lr" && std::find(links_.begin(), links_.end(), name) != links_.end();
}

}  // namespace pliant::config
