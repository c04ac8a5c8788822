// prove_plans SUBJECT COUNT [FIRST]: holds that many random configs against brute force. Ends with 1 at the first
// counterexample, which it prints as a pliant.toml.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "proof.hpp"

int main(int argc, char** argv) {
  const auto& subjects = proof::subjects();
  if (argc < 3 || argc > 4 || std::find(subjects.begin(), subjects.end(), argv[1]) == subjects.end()) {
    std::fputs("usage: prove_plans v0.1|v0.2|exact|extreme COUNT [FIRST]\n", stderr);
    return 2;
  }
  const std::string subject = argv[1];
  const uint64_t count = std::strtoull(argv[2], nullptr, 10);
  const uint64_t first = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  const uint64_t tenth = std::max<uint64_t>(count / 10, 1);
  uint64_t planned = 0;
  for (uint64_t done = 0; done < count; ++done) {
    const proof::Outcome outcome = proof::check(subject, first + done);
    if (!outcome.counterexample.empty()) {
      std::printf("counterexample: %s", outcome.counterexample.c_str());
      return 1;
    }
    planned += outcome.planned ? 1 : 0;
    if ((done + 1) % tenth == 0) {
      std::fprintf(stderr, "%s: %llu of %llu\n", subject.c_str(), static_cast<unsigned long long>(done + 1),
                   static_cast<unsigned long long>(count));
    }
  }
  std::printf("%s: %llu configs from %llu, %llu planned, the others rightly refused, no counterexample\n",
              subject.c_str(), static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(planned));
  return 0;
}
