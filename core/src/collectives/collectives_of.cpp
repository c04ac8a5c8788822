// Finds the carrier and makes the generic collectives.
#include "collectives/collectives_of.hpp"

#include <string>
#include <utility>

#include "collectives/generic_collectives.hpp"
#include "plugin/option_values.hpp"

namespace pliant::collectives {

struct CollectivesOf::Generic {
  sdk::detail::Plain<GenericCollectives> self;
};

CollectivesOf::CollectivesOf(const plugin::Instance& device, std::vector<plugin::SearchDir> search)
    : device_(device), search_(std::move(search)), native_(Called(device).collectives), asks_(asks()) {}

CollectivesOf::~CollectivesOf() = default;

bool CollectivesOf::asks() const {
  if (!native_.has(&pliant_collectives::device_key)) return false;
  return plugin::find(search_, device_.plugin().kind(), kCarrier).has_value();
}

bool CollectivesOf::are_there() const {
  return are_native() || plugin::find(search_, device_.plugin().kind(), kCarrier).has_value();
}

sdk::Calls<pliant_collectives> CollectivesOf::calls() {
  if (are_native() && !asks_) return native_;
  const bool has_pieces =
      !asks_ || (native_.has(&pliant_collectives::gather_pieces) && native_.has(&pliant_collectives::scatter_pieces));
  return {GenericCollectives::table(has_pieces), &generic().self};
}

CollectivesOf::Generic& CollectivesOf::generic() {
  std::call_once(made_, [this] {
    generic_ = std::unique_ptr<Generic>(
        new Generic{{{device_, make_carrier(), asks_ ? native_ : sdk::Calls<pliant_collectives>{}}}});
  });
  return *generic_;
}

void CollectivesOf::throw_failure(pliant_stream* stream, int32_t status) {
  if (generic_ != nullptr) generic_->self.plugin.throw_failure(stream, status);
}

void CollectivesOf::forget(pliant_stream* stream) {
  if (generic_ != nullptr) generic_->self.plugin.forget(stream);
}

plugin::Instance CollectivesOf::make_carrier() const {
  const plugin::Kind& kind = device_.plugin().kind();
  const auto file = plugin::find(search_, kind, kCarrier);
  if (!file) {
    throw file.error().with_message(
        "accelerator \"" + std::string(device_.plugin().record().name) +
        "\" has no native collectives, and the accelerator that generic collectives need is missing: " +
        file.error().message());
  }
  auto opened = or_throw(plugin::Plugin::open(*file, kind));
  plugin::OptionValues defaults;
  defaults.state().reset(opened->options());
  for (size_t i = 0; i < opened->options().size(); ++i) defaults.state().set_default(i, opened->options()[i]);
  return or_throw(plugin::Instance::create(std::move(opened), defaults));
}

}  // namespace pliant::collectives
