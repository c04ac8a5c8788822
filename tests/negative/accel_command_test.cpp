// pliant accel: the list, the figures in all their forms, accelerators that lack something, and ranks that end.
#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "negative/pliant_process.hpp"

namespace {

using nlohmann::json;
using pliant::test::Outcome;
using pliant::test::read_all;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

std::vector<std::string> with_odd(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--plugin-dir", ODD_ACCELERATOR_DIR});
  return arguments;
}

/// One quick benchmark with `arguments`.
Outcome bench(const std::vector<std::string>& arguments) {
  const ScratchFolder folder;
  std::vector<std::string> words{"accel", "bench"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), {"--repeat", "2"});
  return run_pliant(folder, with_odd(words));
}

json bench_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Outcome outcome = bench(arguments);
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return json::parse(outcome.out);
}

void check_spread(const json& spread) {
  CHECK(spread.at("low_s").get<double>() >= 0);
  CHECK(spread.at("low_s") <= spread.at("median_s"));
  CHECK(spread.at("median_s") <= spread.at("high_s"));
  CHECK(spread.at("repetitions") == 2);
}

const json& entry_of(const json& section, const std::string& what, uint64_t bytes) {
  for (const json& one : section) {
    if (one.at("what") == what && one.at("bytes") == bytes) return one;
  }
  throw std::runtime_error("no " + what);
}

/// The children of a process, as the kernel lists them.
std::vector<pid_t> children_of(pid_t process) {
  const std::string name = std::to_string(process);
  std::ifstream file("/proc/" + name + "/task/" + name + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace

TEST_CASE("accel list shows devices with memory and capabilities, and says who has none") {
  const ScratchFolder folder;
  const Outcome listed = run_pliant(folder, with_odd({"accel", "list"}));
  CHECK(listed.exit_code == 0);
  CHECK(has(listed.out, "device 0: host"));
  CHECK(has(listed.out, "collectives, host_visible, fixed_order"));
  CHECK(has(listed.out, "0 devices"));
  CHECK(has(listed.out, "no collectives, host_visible"));
  const Outcome as_json = run_pliant(folder, with_odd({"accel", "list", "--json"}));
  const json list = json::parse(as_json.out);
  CHECK(list.at("schema") == "pliant.accel_list/1");
  CHECK(list.at("searched").front().at("named_by") == "--plugin-dir");
  for (const json& one : list.at("accelerators")) {
    CHECK(one.at("status") == "ok");
    if (one.at("name") == "level_zero" || one.at("name") == "cuda") continue;  // has what the machine has
    CHECK(one.at("devices").size() == (one.at("name") == "empty" ? 0 : 1));
    CHECK(one.at("collectives") == (one.at("name") != "bare"));
    if (one.at("name") != "host") continue;
    CHECK(one.at("devices").front().at("memory_bytes").get<uint64_t>() > 0);
    CHECK(one.at("devices").front().at("capabilities") ==
          json{"host_visible", "fixed_order", "exchange_memory", "window_memory"});
  }
}

TEST_CASE("accel list warns of a file that is no plugin and lists the others") {
  const ScratchFolder folder;
  std::ofstream(folder.path() / "accelerator-broken.pliant.so") << "no library";
  const Outcome listed = run_pliant(folder, {"accel", "list", "--plugin-dir", folder.path().string()});
  CHECK(listed.exit_code == 0);
  CHECK(has(listed.err, "warning: "));
  CHECK(has(listed.err, "accelerator-broken.pliant.so"));
  CHECK(has(listed.out, "refused"));
  CHECK(has(listed.out, "device 0: host"));
}

TEST_CASE("a config that names its accelerator by path is listed with the others, and any of them can be measured") {
  const ScratchFolder folder;
  folder.write("pliant.toml", std::string("config_version = 1\n[accelerator]\nuse = \"bare\"\npath = \"") +
                                  ODD_ACCELERATOR_DIR + "/accelerator-bare.pliant.so\"\n");
  const Outcome listed = run_pliant(folder, {"accel", "list", "--config", "pliant.toml"});
  CHECK(listed.err.empty());
  CHECK(has(listed.out, "bare "));
  CHECK(has(listed.out, "device 0: host"));
  CHECK(listed.out.find("refused") == std::string::npos);
  for (const char* name : {"bare", "host"}) {
    const Outcome shown =
        run_pliant(folder, {"accel", "bench", name, "--config", "pliant.toml", "--only", "latency", "--repeat", "1"});
    CAPTURE(shown.err);
    CHECK(shown.exit_code == 0);
  }
}

TEST_CASE("accel bench measures every part, as JSON with every documented key") {
  const json all = bench_json({"host", "--sizes", "4KiB,64", "--ranks", "2"});
  CHECK(all.at("schema") == "pliant.accel_bench/1");
  CHECK(all.at("accelerator") == "host");
  CHECK(all.at("device") == 0);
  CHECK(all.at("devices") == 1);
  CHECK(all.at("device_name") == "host");
  CHECK(all.at("memory_bytes").get<uint64_t>() > 0);
  CHECK(all.at("ranks") == 2);
  CHECK(all.at("limit_by") == "memcpy");
  CHECK(all.at("calls_in_a_row").get<int>() > 1);
  CHECK(all.at("copy").size() == 8);
  CHECK(all.at("latency").size() == 8);
  CHECK(all.at("alloc").size() == 6);
  CHECK(all.at("reduce").size() == 16);
  CHECK(all.at("collectives").size() == 17);
  CHECK(all.at("collectives").back().at("what") == "broadcast, windows");
  CHECK(all.at("overlap").size() == 2);
  for (const char* const section : {"copy", "latency", "alloc", "reduce", "collectives", "overlap"}) {
    for (const json& one : all.at(section)) {
      CAPTURE(one.dump());
      check_spread(one.at("time"));
      const bool moves = std::string(section) != "latency" && std::string(section) != "alloc" &&
                         std::string(section) != "overlap" && one.at("what") != "barrier";
      CHECK(one.at("bytes_per_s").is_number() == moves);
    }
  }
  for (const json& one : all.at("collectives")) {
    check_spread(one.at("in_a_row"));
    if (one.at("what") == "barrier") {
      CHECK(one.at("bytes").is_null());
      CHECK(one.at("limit").is_null());
      continue;
    }
    check_spread(one.at("limit"));
    CHECK(one.at("part_of_limit").get<double>() > 0);
  }
  for (const json& one : all.at("overlap")) {
    CHECK(one.at("what") == "gather_beside_compute");
    check_spread(one.at("gather"));
    check_spread(one.at("compute"));
    CHECK(one.at("hidden").get<double>() >= 0);
    CHECK(one.at("hidden").get<double>() <= 1);
  }
  // What a rank must at least read and write, halved: of 2 ranks and 4 KiB.
  CHECK(entry_of(all.at("collectives"), "all_gather", 4096).at("limit_bytes") == 4096);
  CHECK(entry_of(all.at("collectives"), "reduce_scatter", 4096).at("limit_bytes") == 3072);
  CHECK(entry_of(all.at("collectives"), "all_reduce", 4096).at("limit_bytes") == 5120);
  CHECK(entry_of(all.at("collectives"), "broadcast", 4096).at("limit_bytes") == 4096);
}

TEST_CASE("a collective and its limit are repeated as often as asked for, however many turns they take") {
  const ScratchFolder folder;
  const Outcome outcome = run_pliant(folder, {"accel", "bench", "host", "--only", "collectives", "--sizes", "64",
                                              "--ranks", "2", "--repeat", "7", "--json"});
  REQUIRE(outcome.exit_code == 0);
  const json told = json::parse(outcome.out);
  for (const json& one : told.at("collectives")) {
    CHECK(one.at("time").at("repetitions") == 7);
    CHECK(one.at("in_a_row").at("repetitions") == 7);
    if (one.at("what") != "barrier") CHECK(one.at("limit").at("repetitions") == 7);
  }
}

TEST_CASE("accel bench shows the parts asked for, in a table, and draws what has a bandwidth") {
  const ScratchFolder folder;
  const Outcome shown = run_pliant(folder, {"accel", "bench", "host", "--only", "collectives,copy", "--sizes",
                                            "4096,1MiB", "--ranks", "3", "--repeat", "1", "--plot", "bandwidth.svg"});
  CHECK(shown.exit_code == 0);
  CHECK(shown.err.empty());
  CHECK(has(shown.out, "device 0 of 1: host, "));
  CHECK(has(shown.out, "\n  host to device "));
  CHECK(has(shown.out, "collectives, 3 ranks"));
  CHECK(has(shown.out, "of limit"));
  CHECK(shown.out.find("latency") == std::string::npos);
  CHECK(shown.out.find("copy") < shown.out.find("collectives"));
  const std::string svg = read_all(folder.path() / "bandwidth.svg");
  CHECK(has(svg, "<svg "));
  CHECK(has(svg, "Collectives of 3 ranks"));
  CHECK(has(svg, ">all gather, windows<"));
  CHECK(has(svg, "</svg>"));
  CHECK(svg.find("nan") == std::string::npos);
}

TEST_CASE("sizes that no whole element of every rank fits into become the nearest ones that do") {
  const json odd = bench_json({"host", "--only", "collectives", "--sizes", "1,1003", "--ranks", "3"});
  CHECK(entry_of(odd.at("collectives"), "all_gather", 12).at("bytes") == 12);
  CHECK(entry_of(odd.at("collectives"), "all_gather", 996).at("bytes") == 996);
}

TEST_CASE("one rank alone can be measured") {
  CHECK(has(bench({"host", "--only", "collectives", "--sizes", "64", "--ranks", "1"}).out, "collectives, 1 rank "));
  CHECK(bench_json({"host", "--only", "collectives", "--sizes", "64", "--ranks", "1"}).at("ranks") == 1);
}

TEST_CASE("an accelerator without collectives is measured with generic ones, and it is said") {
  const Outcome shown = bench({"bare", "--only", "collectives", "--sizes", "4KiB", "--ranks", "2"});
  CHECK(shown.exit_code == 0);
  CHECK(has(shown.out, "generic collectives, 2 ranks"));
  const json measured = bench_json({"bare", "--only", "collectives", "--sizes", "4096", "--ranks", "2"});
  CHECK(measured.at("collectives_by") == "host");
  CHECK(entry_of(measured.at("collectives"), "all_gather", 4096).at("bytes") == 4096);
  CHECK(bench_json({"host", "--only", "collectives", "--sizes", "64", "--ranks", "2"}).at("collectives_by") == "host");
}

TEST_CASE(
    "by a virtual clock a gather hides behind a computation of its length, and the times are those of the model") {
  const ScratchFolder folder;
  const Outcome outcome = run_pliant(folder, {"accel",
                                              "bench",
                                              "sim",
                                              "--plugin-dir",
                                              PLIANT_TESTKIT_PLUGIN_DIR,
                                              "--only",
                                              "overlap",
                                              "--sizes",
                                              "4000,4MiB",
                                              "--ranks",
                                              "2",
                                              "--repeat",
                                              "3",
                                              "--set",
                                              "accelerator.sim.clock=virtual",
                                              "--set",
                                              "accelerator.sim.collective_us=10",
                                              "--set",
                                              "accelerator.sim.collective_gbps=1",
                                              "--json"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const json told = json::parse(outcome.out);
  REQUIRE(told.at("overlap").size() == 2);
  for (const json& one : told.at("overlap")) {
    CAPTURE(one.dump());
    const double seconds = 10e-6 + one.at("bytes").get<double>() * 1e-9;
    for (const char* const what : {"time", "gather", "compute"}) {
      CHECK(one.at(what).at("median_s").get<double>() == doctest::Approx(seconds));
    }
    CHECK(one.at("hidden").get<double>() == doctest::Approx(1));
  }
}

TEST_CASE("a gather beside compute is shown as a table, with the part that hides") {
  for (const char* const name : {"host", "bare"}) {
    const Outcome shown = bench({name, "--only", "overlap", "--sizes", "4KiB", "--ranks", "2"});
    CAPTURE(shown.err);
    CHECK(shown.exit_code == 0);
    CHECK(has(shown.out, "overlap, 2 ranks"));
    CHECK(has(shown.out, "\n  gather beside compute  "));
    CHECK(has(shown.out, " %"));
  }
}

TEST_CASE("what accel bench cannot do is refused with what is allowed") {
  const std::vector<std::tuple<std::vector<std::string>, int, std::string>> cases{
      {{"hots"}, 3, "did you mean 'host'?"},
      {{"empty"}, 1, "accelerator 'empty' finds no device on this machine"},
      {{"host", "--device", "3"}, 2, "--device 3: accelerator 'host' has one device on this machine: 0"},
      {{"host", "--ranks", "0"}, 2, "--ranks"},
      {{"host", "--sizes", "4Q"}, 2, "--sizes '4Q': give sizes from 1 B to 16 GiB"},
      {{"host", "--sizes", "0"}, 2, "--sizes '0'"},
      {{"host", "--sizes", "17GiB"}, 2, "--sizes '17GiB'"},
      {{"host", "--sizes", "99999999999999999999"}, 2, "--sizes '99999999999999999999'"},
      {{"host", "--sizes", "4KiB,,1MiB"}, 2, "--sizes"},
      {{"host", "--only", "copies"}, 2, "did you mean 'copy'?"},
      {{"host", "--min-time", "1"}, 2, "--repeat"},
      // Before anything is measured: this one would die.
      {{"deadly", "--only", "collectives", "--ranks", "3", "--plot", "nowhere/b.svg"}, 2, "nowhere/b.svg"},
      {{"host", "--set", "accelerator.host.chunk_bytes=1"}, 2, "chunk_bytes"},
      {{"wrong", "--only", "collectives", "--sizes", "64"}, 3, "all_gather gave "},
  };
  for (const auto& [arguments, exit_code, words] : cases) {
    const Outcome refused = bench(arguments);
    const std::string wanted = words;  // clang 14 captures no structured binding
    CAPTURE(wanted);
    CHECK(refused.exit_code == exit_code);
    CHECK(refused.out.empty());
    CHECK(has(refused.err, "error: "));
    CHECK(has(refused.err, words));
  }
}

TEST_CASE("a rank that dies while accel bench measures is named with its end") {
  const Outcome died = bench({"deadly", "--only", "collectives", "--ranks", "3", "--sizes", "64"});
  CHECK(died.exit_code == 1);
  CHECK(has(died.err, "joining the communicator, rank 1 of 3 (pid "));
  CHECK(has(died.err, "was killed by signal 9"));
  CHECK(died.err.find("rank 0") == std::string::npos);
}

TEST_CASE("Ctrl-C ends accel bench with 130, without a word on stdout and without leaving a process") {
  const ScratchFolder folder;
  std::vector<pid_t> ranks;
  const Outcome stopped = run_pliant(
      folder,
      {"accel", "bench", "host", "--only", "collectives", "--ranks", "3", "--sizes", "64KiB", "--min-time", "100"}, {},
      [&](pid_t command) {
        while (ranks.size() < 3 && ::kill(command, 0) == 0) {
          ranks = children_of(command);
          ::sched_yield();
        }
        ::kill(command, SIGINT);
      });
  CHECK(stopped.exit_code == 130);
  CHECK(stopped.out.empty());
  REQUIRE(ranks.size() == 3);
  for (const pid_t rank : ranks) {
    CHECK(::kill(rank, 0) != 0);
    CHECK(errno == ESRCH);
  }
}

TEST_CASE("a config of accel may come through a pipe, which is read once") {
  const ScratchFolder folder;
  folder.write("x.toml", "config_version = 1\n[accelerator]\nuse = \"host\"\n");
  const std::string pliant = std::string(PLIANT_BIN_DIR) + "/pliant accel ";
  for (const std::string& command :
       {pliant + "bench host --only collectives --ranks 2 --sizes 4KiB --repeat 2 --config <(cat x.toml)",
        pliant + "list --config <(cat x.toml)"}) {
    const Outcome outcome = run_pliant(folder, {"-c", command}, {}, {}, "/bin/bash");
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 0);
    CHECK(has(outcome.out, "host"));
  }
}
