// Configs of other systems, for C.
#include "pliant/import.hpp"

#include "handles.hpp"
#include "structs.hpp"

struct pliant_imported_t : pliant::capi::Handle<pliant::capi::Tag::kImported> {
  static constexpr const char* kName = "imported config";
  explicit pliant_imported_t(pliant::ImportedConfig made) : imported(std::move(made)) {
    for (const auto& one : imported.carried) {
      from.push_back(one.from.c_str());
      to.push_back(one.to.c_str());
    }
    for (const auto& one : imported.not_carried) {
      not_carried.push_back(one.key.c_str());
      reasons.push_back(one.reason.c_str());
    }
  }

  const pliant::ImportedConfig imported;
  std::vector<const char*> from, to, not_carried, reasons;
};

int32_t pliant_import_deepspeed(const char* json, uint64_t bytes, const char* name, const char* target,
                                pliant_imported_t** imported, pliant_error_t* error) {
  return pliant::capi::hand_out(imported, error, [&] {
    const auto text = pliant::capi::given_array(json, bytes, "json");
    return std::make_unique<pliant_imported_t>(pliant::import_deepspeed(
        {text.data(), text.size()}, name == nullptr ? "ds_config.json" : name, target == nullptr ? "FILE" : target));
  });
}

int32_t pliant_imported_free(pliant_imported_t* imported) {
  return pliant::capi::free_any(imported);
}

int32_t pliant_imported_look(const pliant_imported_t* imported, pliant_imported_view_t* view, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_imported_t& known = pliant::capi::given(imported);
    pliant_imported_view_t made{};
    made.toml = known.imported.toml.c_str();
    made.bytes = known.imported.toml.size();
    made.carried_count = known.from.size();
    made.carried_from = known.from.data();
    made.carried_to = known.to.data();
    made.not_carried_count = known.not_carried.size();
    made.not_carried = known.not_carried.data();
    made.reasons = known.reasons.data();
    pliant::capi::write(view, made, "view");
  });
}
