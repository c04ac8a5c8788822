// What a plugin gets from the host: a log that goes where the program says, and no extension that nobody has.
#include <doctest/doctest.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "negative/pliant_process.hpp"
#include "pliant/log.hpp"
#include "unit/plugin/probe.hpp"

using pliant::test::make_probe;
using pliant::test::ScratchFolder;

namespace {

/// What goes to stderr while `body` runs.
template <class Body>
std::string stderr_of(Body&& body) {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.write("stderr", "");
  const int kept = ::dup(STDERR_FILENO);
  const int opened = ::open(file.c_str(), O_WRONLY | O_APPEND);
  REQUIRE(::dup2(opened, STDERR_FILENO) >= 0);
  ::close(opened);
  body();
  REQUIRE(::dup2(kept, STDERR_FILENO) >= 0);
  ::close(kept);
  return pliant::test::read_all(file);
}

std::string log_at(const char* level) {
  if (level != nullptr) ::setenv("PLIANT_LOG", level, 1);
  pliant::log_to_stderr();
  const std::string said = stderr_of([] { CHECK(make_probe("", true)); });
  pliant::set_log_sink({});
  ::unsetenv("PLIANT_LOG");
  return said;
}

}  // namespace

TEST_CASE("plugins log under their own name, warnings and errors only") {
  CHECK(log_at(nullptr) == "pliant.plugin.probe: warning: warning line\npliant.plugin.probe: error: error line\n");
}

TEST_CASE("nothing is printed until the program asks for it") {
  CHECK(stderr_of([] { CHECK(make_probe("", true)); }).empty());
}

TEST_CASE("a program's sink gets the lines of plugins that were opened before it, from its level on") {
  const auto before = pliant::test::open_probe();
  std::vector<std::string> lines;
  pliant::set_log_sink(
      [&lines](pliant::LogLevel level, std::string_view logger, std::string_view line) {
        lines.push_back(fmt::format("{} {} {}", static_cast<int>(level), logger, line));
      },
      pliant::LogLevel::kError);
  CHECK(make_probe("", true));
  CHECK(lines == std::vector<std::string>{"3 pliant.plugin.probe error line"});
  pliant::set_log_sink([](auto, auto, auto) { throw std::runtime_error("a sink that fails"); });
  CHECK(make_probe("", true));
  pliant::set_log_sink({});
  CHECK(make_probe("", true));
  CHECK(lines.size() == 1);
}

TEST_CASE("PLIANT_LOG sets the level of lines on stderr") {
  CHECK(log_at("off").empty());
  CHECK(log_at("error") == "pliant.plugin.probe: error: error line\n");
  CHECK(log_at("debug").find("pliant.plugin.probe: debug: debug line\n") == 0);
  CHECK(log_at("nonsense") == log_at("warning"));
}

TEST_CASE("an extension that this host does not have is NULL") {
  const auto made = make_probe("plain");
  REQUIRE(made);
  CHECK(made->save().value().find("nobody") == std::string::npos);
}

TEST_CASE("the host survives a level and a message that make no sense") {
  const auto probe = pliant::test::open_probe();
  const pliant_host& host = probe->host();
  pliant::log_to_stderr();
  const std::string said = stderr_of([&] {
    host.log(host.context, 99, {"x", 1});
    host.log(host.context, -1, {"x", 1});
    host.log(host.context, PLIANT_LOG_ERROR, {nullptr, 0});
    host.log(host.context, PLIANT_LOG_ERROR, {"{} {0} %s", 9});
  });
  pliant::set_log_sink({});
  CHECK(said == "pliant.plugin.probe: error: {} {0} %s\n");
}
