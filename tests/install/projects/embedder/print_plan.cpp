// print_plan CONFIG: the smallest program that embeds Pliant.
#include <cstdio>
#include <pliant/exit_code.hpp>
#include <pliant/plan.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const pliant::ConfigNeeds needs{"elasticity"};
    const pliant::Plan plan = pliant::make_plan(pliant::Config::open(argv[1], needs));
    std::printf("global batch %lld, %lld world sizes\n", static_cast<long long>(plan.global_batch),
                static_cast<long long>(plan.count()));
    return 0;
  } catch (const pliant::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(pliant::exit_code_of(error));
  }
}
