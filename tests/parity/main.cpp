// pliant-parity FILE.jsonl...: holds Pliant's plugins against rows that the reference wrote.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "parity/run.hpp"

namespace {

/// Plugins lie where they lie in the build tree and in an install tree: ../lib/pliant/plugins-1 from the program.
std::filesystem::path default_plugin_folder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / "lib" / "pliant" / "plugins-1";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Holds Pliant's plugins against golden rows. Exit code 0 when no row failed."};
  std::vector<std::string> files;
  std::string plugin_folder = default_plugin_folder().string();
  pliant::parity::RunOptions options;
  bool list = false;
  app.add_option("FILE", files, "rows, one JSON object a line; plain or gzip");
  app.add_option("--plugin-dir", plugin_folder, "where the plugins lie")->capture_default_str();
  app.add_flag("--list-rules", list, "print the rules by which rows may be skipped, and stop");
  CLI::Option* const lcm =
      app.add_flag("--lcm-may-exceed-max", options.rows.lcm_may_exceed_max,
                   "set that option of the elasticity policies and compare with out_seed where a row has it");
  app.add_flag("--import", options.rows.through_import,
               "write the config of each elasticity row as JSON and go through the TOML that import makes of it")
      ->excludes(lcm);
  app.add_option("--only", options.only, "look at rows of this kind only (repeatable)")->allow_extra_args(false);
  app.add_option("--show", options.show, "differing rows printed in full")->capture_default_str();
  app.add_option("--passed", options.passed, "fail unless exactly so many pass, as when a file is not whole");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : 2;
  }
  if (list) {
    pliant::parity::list_rules(std::cout);
    return EXIT_SUCCESS;
  }
  if (files.empty()) {
    std::cerr << "pliant-parity: give at least one file of rows\n";
    return 2;
  }
  setenv("PLIANT_LOG", "error", 0);  // a policy may warn about a row; the row's result says it all
  pliant::parity::Run run(options, std::filesystem::absolute(plugin_folder), std::cout);
  for (const std::string& file : files) run.file(file);
  run.summary();
  return run.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}
