// Storage of checked option values.
#include "plugin/option_values.hpp"

#include <string_view>
#include <utility>

namespace pliant::plugin {

namespace {

std::string text_of(pliant_str text) {
  return text.data == nullptr ? std::string() : std::string(text.data, static_cast<size_t>(text.size));
}

pliant_value& given(std::vector<pliant_value>& rows, size_t index) {
  rows[index].is_set = 1;
  return rows[index];
}

}  // namespace

OptionValues::OptionValues() : state_(std::make_unique<State>()) {
  state_->reset({});
}
OptionValues::~OptionValues() = default;
OptionValues::OptionValues(OptionValues&&) noexcept = default;
OptionValues& OptionValues::operator=(OptionValues&&) noexcept = default;
const pliant_option_values& OptionValues::view() const {
  return state_->view;
}

void OptionValues::State::reset(const std::vector<pliant_option>& options) {
  rows.assign(options.size(), pliant_value{});
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].struct_size = sizeof(pliant_value);
    rows[i].type = options[i].type;
  }
  view = {sizeof(pliant_option_values), static_cast<uint32_t>(rows.size()), sizeof(pliant_value), rows.data()};
}

void OptionValues::State::set_integer(size_t index, int64_t value) {
  given(rows, index).integer = value;
}
void OptionValues::State::set_real(size_t index, double value) {
  given(rows, index).real = value;
}

void OptionValues::State::set_text(size_t index, std::string value) {
  const std::string& kept = texts.emplace_back(std::move(value));
  given(rows, index).text = {kept.data(), kept.size()};
}

void OptionValues::State::set_integers(size_t index, std::vector<int64_t> values) {
  const auto& kept = integers.emplace_back(std::move(values));
  given(rows, index).integers = kept.data();
  rows[index].count = kept.size();
}

void OptionValues::State::set_reals(size_t index, std::vector<double> values) {
  const auto& kept = reals.emplace_back(std::move(values));
  given(rows, index).reals = kept.data();
  rows[index].count = kept.size();
}

void OptionValues::State::set_texts(size_t index, const std::vector<std::string>& values) {
  auto& kept = views.emplace_back();
  for (const std::string& value : values) {
    const std::string& text = texts.emplace_back(value);
    kept.push_back({text.data(), text.size()});
  }
  given(rows, index).texts = kept.data();
  rows[index].count = kept.size();
}

void OptionValues::State::set_default(size_t index, const pliant_option& option) {
  const pliant_value* value = option.default_value;
  if (value == nullptr || value->is_set == 0) return;
  switch (option.type) {
    case PLIANT_BOOL:
    case PLIANT_INT:
      return set_integer(index, value->integer);
    case PLIANT_FLOAT:
      return set_real(index, value->real);
    case PLIANT_STRING:
      return set_text(index, text_of(value->text));
    case PLIANT_BOOL_LIST:
    case PLIANT_INT_LIST:
      return set_integers(index, {value->integers, value->integers + value->count});
    case PLIANT_FLOAT_LIST:
      return set_reals(index, {value->reals, value->reals + value->count});
    case PLIANT_STRING_LIST: {
      std::vector<std::string> list;
      for (uint64_t i = 0; i < value->count; ++i) list.push_back(text_of(value->texts[i]));
      return set_texts(index, list);
    }
    default:
      return;
  }
}

}  // namespace pliant::plugin
