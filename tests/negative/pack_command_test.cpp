// pliant pack: the numbers, several samplers, the figure, the arrays, and data that cannot be packed.
#include <doctest/doctest.h>

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "negative/pliant_process.hpp"
#include "negative/svg_elements.hpp"
#include "npy_file.hpp"

namespace {

using nlohmann::json;
using pliant::test::Outcome;
using pliant::test::path_numbers;
using pliant::test::read_all;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;
using pliant::test::svg_elements;
using pliant::test::SvgElement;

struct PackFolder : ScratchFolder {
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(*this / name, std::ios::binary) << bytes;
  }
  /// pliant.toml with lengths.txt, packed by `sampler` with `options`.
  void config(const std::string& sampler, const std::string& options, const std::string& more = "") const {
    write("pliant.toml", "config_version = 1\n[data]\nlengths = \"lengths.txt\"\n[sampler]\nuse = \"" + sampler +
                             "\"\n[sampler." + sampler + "]\n" + options + more);
  }
  [[nodiscard]] Outcome pack(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"pack", "pliant.toml"});
    return run_pliant(*this, arguments);
  }
  [[nodiscard]] json pack_json(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Outcome outcome = pack(std::move(arguments));
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return json::parse(outcome.out);
  }
  /// The int64 numbers of a .npy file.
  [[nodiscard]] std::vector<int64_t> npy(const std::string& name) const {
    const std::string bytes = read_all(*this / name);
    REQUIRE(bytes.size() >= 128);
    CHECK(bytes.rfind("\x93NUMPY", 0) == 0);
    std::vector<int64_t> numbers((bytes.size() - 128) / sizeof(int64_t));
    if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data() + 128, numbers.size() * sizeof(int64_t));
    CHECK(bytes.find("'shape': (" + std::to_string(numbers.size()) + ",)") != std::string::npos);
    return numbers;
  }
};

bool shows(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

std::string some_lengths() {
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += std::to_string(1 + i * 37 % 90) + "\n";
  return lines;
}

}  // namespace

TEST_CASE("pack counts packs, tokens, drops by reason and the fewest packs that there could be") {
  const PackFolder folder;
  folder.write("lengths.txt", "6\n4\n20\n5\n5\n9\n");
  folder.config("best_fit", "max_tokens = 10\nover_long = \"drop\"\n");
  const json packed = folder.pack_json({});
  CHECK(packed.at("schema") == "pliant.pack/1");
  CHECK(packed.at("sampler") == "best_fit");
  CHECK(packed.at("dataset_sequences") == 6);
  CHECK(packed.at("sequences") == 5);
  CHECK(packed.at("packs") == 3);
  CHECK(packed.at("lower_bound_packs") == 3);
  CHECK(packed.at("tokens") == 29);
  CHECK(packed.at("efficiency").get<double>() == doctest::Approx(29.0 / 30));
  CHECK(packed.at("dropped") == 1);
  CHECK(packed.at("dropped_by_reason") == json{{"too_long", 1}});
  CHECK(packed.at("seconds").get<double>() > 0);
  CHECK(packed.at("cpu_seconds").get<double>() > 0);
  const Outcome shown = folder.pack({});
  CHECK(shown.exit_code == 0);
  CHECK(shows(shown.out, "3 of up to 10 tokens; no packing has fewer than 3 (0.00 % above)"));
  CHECK(shows(shown.out, "dropped     1 too_long"));
  CHECK(shown.err.empty());
}

TEST_CASE("batches, rates and the time that ranks wait come from the plan where there is one") {
  const PackFolder folder;
  folder.write("lengths.txt", some_lengths());
  folder.config(
      "next_fit", "max_tokens = 100\n",
      "[elasticity]\nuse = \"exact\"\n[elasticity.exact]\nmax_train_batch_size = 16\nmicro_batch_sizes = [1, 2]\n"
      "[lr]\nuse = \"linear\"\nbase_lr = 0.001\n[balancer]\ncost_per_square = 1\n");
  const json packed = folder.pack_json({"--world-size", "4,8"});
  CHECK(packed.at("global_batch") == 12);
  CHECK(packed.at("longest_wait") == 0);
  const json& rate = packed.at("learning_rate");
  CHECK(rate.at("rule") == "linear");
  CHECK(rate.at("least").get<double>() < 0.001);
  CHECK(rate.at("most").get<double>() > 0.001);
  const json& lost = packed.at("rank_time_lost");
  REQUIRE(lost.size() == 10);
  const auto of = [&](const std::string& balancer, int size) {
    for (const json& one : lost) {
      if (one.at("balancer") == balancer && one.at("world_size") == size) return one.at("per_step").get<double>();
    }
    return -1.0;
  };
  CHECK(of("lpt", 4) > 0);
  CHECK(of("lpt", 4) < of("contiguous", 4));
  const Outcome wrong = folder.pack({"--world-size", "99"});
  CHECK(wrong.exit_code == 2);
  CHECK(shows(wrong.err, "world size 99 is not valid for global batch 12"));
  CHECK(shows(folder.pack({"--global-batch", "4"}).err, "--global-batch is for configs without [elasticity]"));
}

TEST_CASE("several samplers stand in one table, and one that cannot pack says why") {
  const PackFolder folder;
  folder.write("lengths.txt", some_lengths());
  folder.config("best_fit", "max_tokens = 80\nover_long = \"split\"\n");
  const json compared = folder.pack_json({"--compare", "best_fit,next_fit,seqlen,best_fit"});
  CHECK(compared.at("schema") == "pliant.pack_compare/1");
  const json& samplers = compared.at("samplers");
  REQUIRE(samplers.size() == 3);
  CHECK(samplers[0].at("packs").get<int>() < samplers[1].at("packs").get<int>());
  CHECK(shows(samplers[2].at("error").get<std::string>(), "over_long"));
  const Outcome shown = folder.pack({"--compare", "best_fit,seqlen"});
  CHECK(shown.exit_code == 0);
  CHECK(shows(shown.out, "Not packed:\nseqlen: "));
  const Outcome unknown = folder.pack({"--compare", "best_fit,nix"});
  CHECK(unknown.exit_code == 3);
  CHECK(shows(unknown.err, "sampler plugin 'nix' is not installed"));
  CHECK(shows(folder.pack({"--compare", "a,,b"}).err, "give names separated by single commas"));
}

TEST_CASE("the exported arrays are the packs, pieces too, and a folder that is in use is left alone") {
  const PackFolder folder;
  folder.write("lengths.txt", some_lengths());
  folder.config("streaming", "max_tokens = 70\nover_long = \"split\"\n");
  REQUIRE(folder.pack({"--export", "out"}).exit_code == 0);
  const auto offsets = folder.npy("out/row_offsets.npy");
  const auto ids = folder.npy("out/ids.npy");
  const auto firsts = folder.npy("out/first_tokens.npy");
  const auto counts = folder.npy("out/token_counts.npy");
  CHECK(folder.npy("out/dropped.npy").empty());
  const json packed = json::parse(read_all(folder / "out/pack.json"));
  CHECK(static_cast<int64_t>(offsets.size()) == packed.at("packs").get<int64_t>() + 1);
  CHECK(offsets.back() == static_cast<int64_t>(ids.size()));
  REQUIRE(firsts.size() == ids.size());
  REQUIRE(counts.size() == ids.size());
  CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == packed.at("dataset_tokens").get<int64_t>());
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    CHECK(std::accumulate(counts.begin() + offsets[row], counts.begin() + offsets[row + 1], int64_t{0}) <= 70);
  }
  const Outcome again = folder.pack({"--export", "out"});
  CHECK(again.exit_code == 2);
  CHECK(shows(again.err, "out is not empty"));
  const Outcome no_folder = folder.pack({"--export", "lengths.txt"});
  CHECK(no_folder.exit_code == 2);
  CHECK(shows(no_folder.err, "--export: lengths.txt is not a folder"));
  CHECK(shows(folder.pack({"--export", ""}).err, "--export: the name is empty"));
  CHECK(shows(folder.pack({"--plot", ""}).err, "--plot: the name is empty"));
  CHECK(json::parse(read_all(folder / "out/pack.json")) == packed);
}

TEST_CASE("an export that a signal stops leaves nothing behind") {
  const PackFolder folder;
  folder.write("lengths.i32", std::string(size_t{4} * 4000000, '\1'));
  folder.write("pliant.toml", "config_version = 1\n[data]\nlengths = \"lengths.i32\"\n[sampler]\nuse = \"fixed\"\n");
  const auto stop = [&](pid_t process) {
    const auto begun = [&] { return std::filesystem::exists(folder / "new/out"); };
    siginfo_t ended{};
    while (!begun() && ended.si_pid == 0) {
      ::waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    ::kill(process, SIGTERM);
  };
  const Outcome stopped = run_pliant(folder, {"pack", "pliant.toml", "--export", "new/out"}, {}, stop);
  CHECK(stopped.exit_code == 128 + SIGTERM);
  CHECK(shows(stopped.err, "stopped by signal 15"));
  CHECK_FALSE(std::filesystem::exists(folder / "new"));
}

TEST_CASE("the figure has the lengths, the fill, and the rates where there are some") {
  const PackFolder folder;
  folder.write("lengths.txt", some_lengths());
  folder.config("best_fit", "max_tokens = 100\n", "[lr]\nuse = \"sqrt\"\n");
  REQUIRE(folder.pack({"--plot", "f.svg", "--global-batch", "8"}).exit_code == 0);
  const std::string figure = read_all(folder / "f.svg");
  CHECK(shows(figure, "<svg xmlns"));
  CHECK(shows(figure, "Lengths of 500 sequences"));
  CHECK(shows(figure, "Fill of "));
  CHECK(shows(figure, "Learning rate, by sqrt"));
  CHECK(shows(folder.pack({"--plot", "no/such/f.svg"}).err, "--plot: cannot write no/such/f.svg"));
}

TEST_CASE("counts have a label, whole ticks that differ, and room above the tallest bar") {
  const PackFolder folder;
  folder.write("lengths.txt", "1\n2\n3\n");
  folder.config("best_fit", "max_tokens = 3\n");
  REQUIRE(folder.pack({"--plot", "f.svg"}).exit_code == 0);
  const std::string figure = read_all(folder / "f.svg");
  CHECK(shows(figure, ">sequences</text>"));
  CHECK(shows(figure, ">packs</text>"));
  std::vector<std::string> labels;
  double top = 1e9;  // of the first panel: its highest tick
  for (const SvgElement& one : svg_elements(figure, "text")) {
    if (one.of("text-anchor") != "end" || one.number("y") > 250) continue;
    labels.push_back(one.text);
    top = std::min(top, one.number("y"));
  }
  CHECK(labels == std::vector<std::string>{"0", "1", "2"});
  std::vector<SvgElement> bars;
  for (const SvgElement& one : svg_elements(figure, "rect")) {
    if (one.of("fill") == "#0072B2") bars.push_back(one);
  }
  REQUIRE(bars.size() == 3);  // one for each length, side by side
  const double width = bars[1].number("x") - bars[0].number("x");
  CHECK(bars[2].number("x") - bars[1].number("x") == doctest::Approx(width).epsilon(0.01));
  for (const SvgElement& bar : bars) CHECK(bar.number("y") > top + 20);
}

TEST_CASE("the rate of a short last batch does not set the scale of the others") {
  const PackFolder folder;
  folder.write("lengths.txt", "100\n100\n104\n104\n102\n102\n100\n");
  folder.config("fixed", "order = \"seqlen\"\n", "[lr]\nuse = \"sqrt\"\nunit = \"tokens\"\n");
  REQUIRE(folder.pack({"--plot", "f.svg", "--global-batch", "2"}).exit_code == 0);
  const std::string figure = read_all(folder / "f.svg");
  CHECK(shows(figure, "triangle: last batch (1 of 2 packs), "));
  CHECK(shows(figure, "axis begins at 0.00"));
  double bottom = 0;  // of the last panel: its lowest bar of the grid
  for (const SvgElement& one : svg_elements(figure, "line")) bottom = std::max(bottom, one.number("y1"));
  const auto paths = svg_elements(figure, "path");
  const auto triangle =
      std::find_if(paths.begin(), paths.end(), [](const SvgElement& one) { return one.of("fill") == "#fff"; });
  REQUIRE(triangle != paths.end());
  CHECK(std::abs(path_numbers(triangle->of("d"))[1] - bottom) < 6);  // at the edge: it lies below
  for (const SvgElement& one : paths) {
    if (one.of("stroke") != "#009E73" || one.of("fill") != "none") continue;
    const std::vector<double> numbers = path_numbers(one.of("d"));
    CHECK(numbers[1] < bottom - 20);  // the others have the panel for themselves
  }
}

TEST_CASE("the rates of a later epoch stand at its steps") {
  const PackFolder folder;
  folder.write("lengths.txt", some_lengths());
  folder.config("best_fit", "max_tokens = 100\n", "[lr]\nuse = \"sqrt\"\n");
  REQUIRE(folder.pack({"--plot", "f.svg", "--global-batch", "8", "--epoch", "2"}).exit_code == 0);
  const std::string figure = read_all(folder / "f.svg");
  CHECK(shows(figure, ">step, from "));
  double right = 0;
  for (const SvgElement& one : svg_elements(figure, "line")) right = std::max(right, one.number("x2"));
  for (const SvgElement& one : svg_elements(figure, "path")) {
    if (one.of("stroke") == "#009E73") CHECK(path_numbers(one.of("d"))[0] < right);
  }
}

TEST_CASE("several samplers are drawn over each other, and those that are equal are both seen") {
  const PackFolder folder;
  folder.write("lengths.txt", "5\n5\n5\n5\n5\n5\n");
  folder.config("best_fit", "max_tokens = 10\n", "[lr]\nuse = \"sqrt\"\n");
  const Outcome compared = folder.pack({"--compare", "next_fit,best_fit", "--plot", "f.svg"});
  CAPTURE(compared.err);
  REQUIRE(compared.exit_code == 0);
  CHECK(shows(compared.out, "next_fit"));
  const std::string figure = read_all(folder / "f.svg");
  CHECK(shows(figure, ">next_fit</tspan>"));
  CHECK(shows(figure, ">best_fit</tspan>"));
  CHECK(shows(figure, "fill equal to next_fit"));
  std::vector<SvgElement> outlines;
  for (const SvgElement& one : svg_elements(figure, "path")) {
    if (one.of("stroke") == "#0072B2" || one.of("stroke") == "#D55E00") outlines.push_back(one);
  }
  REQUIRE(outlines.size() == 4);  // fill and rates of each
  CHECK(outlines[0].of("d") == outlines[1].of("d"));
  CHECK(outlines[0].number("stroke-width") > outlines[1].number("stroke-width"));
  CHECK(outlines[0].of("stroke-dasharray").empty());
  CHECK_FALSE(outlines[1].of("stroke-dasharray").empty());
  const Outcome none = folder.pack({"--compare", "next_fit,concat_with_a_typo", "--plot", "g.svg"});
  CHECK(none.exit_code == 3);
  CHECK_FALSE(std::filesystem::exists(folder / "g.svg"));
}

TEST_CASE("data that cannot be packed is refused with its place, and nothing is written") {
  const PackFolder folder;
  folder.config("best_fit", "max_tokens = 10\n");
  CHECK(shows(folder.pack({}).err, "cannot read"));
  folder.write("lengths.txt", "5\n0\n");
  const Outcome zero = folder.pack({"--export", "out"});
  CHECK(zero.exit_code == 2);
  CHECK(shows(zero.err, "pliant.toml:3:11: error: "));
  CHECK(shows(zero.err, "lengths.txt:2: '0' is not a length"));
  folder.write("lengths.txt", "5\n11\n");
  const Outcome over = folder.pack({"--export", "out"});
  CHECK(over.exit_code == 2);
  CHECK(shows(over.err, "1 of 2 sequences have more than 10 tokens"));
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
  folder.write("lengths.txt", "");
  CHECK(shows(folder.pack({}).err, "the data set is empty"));
  folder.write("pliant.toml", "config_version = 1\n[sampler]\nuse = \"fixed\"\n");
  CHECK(shows(folder.pack({}).err, "[data] lengths is missing; set it"));
  folder.write("lengths.txt", "7\n");
  folder.config("best_fit", "max_tokens = 10\n");
  CHECK(folder.pack_json({}).at("packs") == 1);
}

TEST_CASE("packs that were exported are read again as rows, with costs of their own") {
  const PackFolder folder;
  folder.write("lengths.txt", some_lengths());
  folder.config("best_fit", "max_tokens = 100\n");
  const json packed = folder.pack_json({"--export", "packs"});
  const std::string rows =
      "offsets = \"packs/row_offsets.npy\"\nids = \"packs/ids.npy\"\nmax_tokens = 100\n"
      "[elasticity]\nuse = \"exact\"\n[elasticity.exact]\nmax_train_batch_size = 16\nmicro_batch_sizes = [1]\n";
  pliant::test::write_npy(folder / "costs.npy", std::vector<int64_t>(packed.at("packs").get<size_t>(), 3));
  folder.config("rows", rows, "[balancer]\nrow_costs = \"costs.npy\"\n");
  const json again = folder.pack_json({"--world-size", "4", "--export", "again"});
  CHECK(again.at("sampler") == "rows");
  CHECK(again.at("packs") == packed.at("packs"));
  CHECK(again.at("efficiency") == packed.at("efficiency"));
  CHECK(folder.npy("again/ids.npy") == folder.npy("packs/ids.npy"));
  CHECK(folder.npy("again/row_offsets.npy") == folder.npy("packs/row_offsets.npy"));
  CHECK(shows(folder.pack({"--world-size", "4"}).out, "Cost of a sequence: as given;"));
  folder.config("rows", rows, "[balancer]\nrow_costs = \"lost.npy\"\n");
  std::filesystem::remove(folder / "packs/ids.npy");
  const Outcome checked = run_pliant(folder, {"config", "check", "pliant.toml"});
  CHECK(checked.exit_code == 2);
  CHECK(shows(checked.err, "sampler.rows.ids: there is no "));
  CHECK(shows(checked.err, "balancer.row_costs: there is no "));
  CHECK_FALSE(shows(checked.err, "sampler.rows.offsets: there is no "));
}
