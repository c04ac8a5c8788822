// Stands where Gloo's headers were missing when this was built.
#include "common/gloo/gloo_link.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

// NOLINTNEXTLINE(performance-unnecessary-value-param): as the other one is declared
std::unique_ptr<Link> make_gloo_link(Group&, const NetworkId&, const NetworkSettings&, std::shared_ptr<UniqueFd>) {
  throw sdk::Failure(PLIANT_UNIMPLEMENTED,
                     "transport = \"gloo\" is not in this build: it was made without the headers of Gloo (Debian: "
                     "libgloo-dev); build again with them, or set transport = \"shared_memory\"");
}

}  // namespace pliant::accelerator
