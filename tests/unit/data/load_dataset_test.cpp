// The data set that [data] names, and where its errors point.
#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "pliant/batches.hpp"
#include "pliant/error.hpp"
#include "scratch.hpp"

using namespace pliant;
using pliant::test::Scratch;

namespace {

std::string refusal(const Scratch& scratch, const std::string& toml) {
  try {
    static_cast<void>(load_dataset(scratch.config(toml)));
  } catch (const Error& error) {
    CHECK(error.origin() == Origin::kInput);
    return error.message();
  }
  return "nothing was refused";
}

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("lengths and loss tokens come from files beside the config, by column where they are JSON lines") {
  const Scratch scratch;
  std::ofstream(scratch.file("a.txt")) << "5\n6\n";
  std::ofstream(scratch.file("b.jsonl")) << "{\"n\": 5, \"loss\": 0}\n{\"n\": 6, \"loss\": [1, 2]}\n";
  const Dataset plain = load_dataset(scratch.config("[data]\nlengths = \"a.txt\"\n"));
  CHECK(plain.lengths == Lengths{5, 6});
  CHECK(plain.loss_tokens.empty());
  CHECK(plain.source == scratch.file("a.txt").string());
  const Dataset both =
      load_dataset(scratch.config("[data]\nlengths = \"b.jsonl\"\nlength_column = \"n\"\nloss_tokens = \"b.jsonl\"\n"
                                  "loss_tokens_column = \"loss\"\n"));
  CHECK(both.lengths == Lengths{5, 6});
  CHECK(both.loss_tokens == Lengths{0, 2});
}

TEST_CASE("what is wrong with the data points at the line of the config and at the place in the file") {
  const Scratch scratch;
  std::ofstream(scratch.file("a.txt")) << "5\n-6\n";
  std::ofstream(scratch.file("b.txt")) << "5\n6\n";
  std::ofstream(scratch.file("c.txt")) << "5\n7\n";
  std::ofstream(scratch.file("d.txt")) << "5\n";
  std::ofstream(scratch.file("empty.txt")) << "";
  CHECK(has(refusal(scratch, ""), "[data] lengths is missing; set it"));
  const std::string wrong = refusal(scratch, "[data]\nlengths = \"a.txt\"\n");
  CHECK(has(wrong, "pliant.toml:3:11: error:"));
  CHECK(has(wrong, "a.txt:2: '-6' is not a length"));
  CHECK(has(refusal(scratch, "[data]\nlengths = \"none.npy\"\n"), "cannot read"));
  CHECK(has(refusal(scratch, "[data]\nlengths = \"empty.txt\"\n"), "the data set is empty"));
  const std::string more = refusal(scratch, "[data]\nlengths = \"b.txt\"\nloss_tokens = \"c.txt\"\n");
  CHECK(has(more, "pliant.toml:4:15: error:"));
  CHECK(has(more, "sequence 1 has 7 loss tokens"));
  CHECK(has(refusal(scratch, "[data]\nlengths = \"b.txt\"\nloss_tokens = \"d.txt\"\n"), "2 lengths but 1 loss token"));
  CHECK(has(refusal(scratch, "[data]\nlengths = \"b.txt\"\nloss_tokens = \"a.txt\"\n"),
            "a number of loss tokens must be a whole number from 0"));
}
