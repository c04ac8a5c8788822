// Choosing, opening and configuring the plugin of each section.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/state.hpp"
#include "config/values/diagnostics.hpp"
#include "config/values/overrides.hpp"
#include "pliant/config.hpp"

namespace pliant::config {

/// A path from the working directory.
std::filesystem::path absolute_here(const std::filesystem::path& path);
/// A path that a config value holds: from the file's directory when the file holds it, else from the working directory.
std::filesystem::path absolute_from(const Value& value, const std::filesystem::path& file_dir);

class Selector {
 public:
  Selector(detail::ConfigState& state, Environment& environment, Diagnostics& diagnostics)
      : state_(state), environment_(environment), diagnostics_(diagnostics) {}

  /// Puts what `kind`'s section names into state.selections; opens it when `needs` says so, or when the section is
  /// there and `every_section` is set. Returns how many of the errors that it reports are about names of tables only,
  /// which it has read as what they were meant to be.
  size_t select(const plugin::Kind& kind, const ConfigNeeds& needs, bool every_section);

 private:
  [[nodiscard]] const Value* section(const plugin::Kind& kind) const;
  /// Sets use and use_origin; false when there is no name to go on with.
  bool choose(Selection& selection, bool needed);
  void report_no_choice(const plugin::Kind& kind);
  /// `by_path`: what [section] path says counts.
  bool open(Selection& selection, bool by_path);
  /// The other links of [lr]: what its schedule and `then` name, beside `use`.
  void select_links(const Selection& used, bool needed);
  std::vector<Selection> links_of(std::string_view key, const Selection& used, bool needed);
  [[nodiscard]] bool is_link(const plugin::Kind& kind, std::string_view name) const;
  void configure(Selection& selection);
  /// Makes the paths of files of rows absolute.
  void find_row_files(CheckedTable& table) const;
  static KeyPath table_path(const Selection& selection);
  /// That nothing reads the table `member` of the section of `selection`.
  static std::string nothing_reads(const Selection& selection, const Member& member);
  /// The table of `name` in `section` where its header lacks the quotes that a dot needs; nullptr when there is none.
  static const Member* unquoted_table(const Value& section, std::string_view name);
  /// The table of `selection` in `section` under a misspelt name, where the plugin has options that must be given.
  [[nodiscard]] const Member* misspelt_table(const Value& section, const Selection& selection) const;
  /// The table of `selection`, whose plugin is open, be it spelt right or not, which is reported; nullptr when there is
  /// none.
  const Member* table_of(const Selection& selection);
  void check_keys(const Selection& selection);
  /// Tables of plugins that are not in use: checked when their plugin is installed, else worth a warning.
  void check_unused_tables(const Selection& selection, bool needed);
  void check_unused_table(const plugin::Kind& kind, const Member& member);
  void report_idle_table(const Selection& selection, const Member& member, const std::vector<std::string>& known);
  void report(const ValueOrigin& origin, const Error& error);

  std::vector<std::string> links_;  ///< names in [lr] schedule and then
  std::vector<std::string> meant_;  ///< misspelt names of tables of the section in hand that were read all the same
  size_t understood_ = 0;           ///< see select
  detail::ConfigState& state_;
  Environment& environment_;
  Diagnostics& diagnostics_;
};

}  // namespace pliant::config
