// Options<T>: binds the members of a plugin class to rows of its option table.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "pliant/abi/options.h"
#include "pliant/sdk/failure.hpp"
#include "pliant/sdk/sized.hpp"

namespace pliant::sdk {

namespace detail {

template <class V>
struct OptionType;  // the types an option may have; std::optional<V> of them = may stay unset
template <>
struct OptionType<bool> {
  static constexpr int32_t kType = PLIANT_BOOL;
};
template <>
struct OptionType<int64_t> {
  static constexpr int32_t kType = PLIANT_INT;
};
template <>
struct OptionType<double> {
  static constexpr int32_t kType = PLIANT_FLOAT;
};
template <>
struct OptionType<std::string> {
  static constexpr int32_t kType = PLIANT_STRING;
};
template <>
struct OptionType<std::vector<bool>> {
  static constexpr int32_t kType = PLIANT_BOOL_LIST;
};
template <>
struct OptionType<std::vector<int64_t>> {
  static constexpr int32_t kType = PLIANT_INT_LIST;
};
template <>
struct OptionType<std::vector<double>> {
  static constexpr int32_t kType = PLIANT_FLOAT_LIST;
};
template <>
struct OptionType<std::vector<std::string>> {
  static constexpr int32_t kType = PLIANT_STRING_LIST;
};
template <class V>
struct OptionType<std::optional<V>> : OptionType<V> {};

template <class V>
struct IsOptional : std::false_type {};
template <class V>
struct IsOptional<std::optional<V>> : std::true_type {};

inline void assign(const pliant_value& from, bool& to) {
  to = from.integer != 0;
}
inline void assign(const pliant_value& from, int64_t& to) {
  to = from.integer;
}
inline void assign(const pliant_value& from, double& to) {
  to = from.real;
}
inline void assign(const pliant_value& from, std::string& to) {
  to = std::string(view(from.text));
}
inline void assign(const pliant_value& from, std::vector<bool>& to) {
  to.clear();
  for (uint64_t i = 0; i < from.count; ++i) to.push_back(from.integers[i] != 0);
}
inline void assign(const pliant_value& from, std::vector<int64_t>& to) {
  to.assign(from.integers, from.integers + from.count);
}
inline void assign(const pliant_value& from, std::vector<double>& to) {
  to.assign(from.reals, from.reals + from.count);
}
inline void assign(const pliant_value& from, std::vector<std::string>& to) {
  to.clear();
  for (uint64_t i = 0; i < from.count; ++i) to.emplace_back(view(from.texts[i]));
}
template <class V>
void assign(const pliant_value& from, std::optional<V>& to) {
  if (from.is_set == 0) {
    to.reset();
    return;
  }
  assign(from, to.emplace());
}

/// Keeps alive what the default values of a table point to.
class DefaultPool {
 public:
  const pliant_value* keep(bool value) { return integer(PLIANT_BOOL, value ? 1 : 0); }
  const pliant_value* keep(int64_t value) { return integer(PLIANT_INT, value); }
  const pliant_value* keep(double value) {
    pliant_value& row = make(PLIANT_FLOAT);
    row.real = value;
    return &row;
  }
  const pliant_value* keep(const std::string& value) {
    pliant_value& row = make(PLIANT_STRING);
    row.text = str(texts_.emplace_back(value));
    return &row;
  }
  const pliant_value* keep(const std::vector<bool>& value) {
    return integers(PLIANT_BOOL_LIST, std::vector<int64_t>(value.begin(), value.end()));
  }
  const pliant_value* keep(const std::vector<int64_t>& value) { return integers(PLIANT_INT_LIST, value); }
  const pliant_value* keep(const std::vector<double>& value) {
    pliant_value& row = make(PLIANT_FLOAT_LIST);
    row.count = value.size();
    row.reals = reals_.emplace_back(value).data();
    return &row;
  }
  const pliant_value* keep(const std::vector<std::string>& value) {
    pliant_value& row = make(PLIANT_STRING_LIST);
    std::vector<pliant_str>& views = views_.emplace_back();
    for (const std::string& text : value) views.push_back(str(texts_.emplace_back(text)));
    row.count = value.size();
    row.texts = views.data();
    return &row;
  }
  template <class V>
  const pliant_value* keep(const std::optional<V>& value) {
    return value ? keep(*value) : nullptr;
  }

 private:
  pliant_value& make(int32_t type) {
    pliant_value& row = values_.emplace_back();
    row.struct_size = sizeof(pliant_value);
    row.type = type;
    row.is_set = 1;
    return row;
  }
  const pliant_value* integer(int32_t type, int64_t value) {
    pliant_value& row = make(type);
    row.integer = value;
    return &row;
  }
  const pliant_value* integers(int32_t type, const std::vector<int64_t>& value) {
    pliant_value& row = make(type);
    row.count = value.size();
    row.integers = integers_.emplace_back(value).data();
    return &row;
  }

  std::deque<pliant_value> values_;
  std::deque<std::string> texts_;
  std::deque<std::vector<pliant_str>> views_;
  std::deque<std::vector<int64_t>> integers_;
  std::deque<std::vector<double>> reals_;
};

}  // namespace detail

/// The option table of plugin class T. The default of an option is the value that the member has in `T{}`.
/// A std::optional member without a value makes an option that may stay unset.
template <class T>
class Options {
 public:
  /// One row, to be refined: `o.add("cap", &Policy::cap, "rows at most").range(1, 1 << 20).unit("rows")`.
  class Row {
   public:
    Row(Options& table, size_t index) : table_(table), index_(index) {}
    Row& unit(const char* text) {
      row().unit = text;
      return *this;
    }
    /// Inclusive; for each element of a list.
    Row& range(int64_t low, int64_t high) { return at_least(low).at_most(high); }
    Row& range(int low, int high) { return range(int64_t{low}, int64_t{high}); }
    Row& range(double low, double high) {
      row().flags |= PLIANT_OPTION_HAS_MIN | PLIANT_OPTION_HAS_MAX;
      row().float_min = low;
      row().float_max = high;
      return *this;
    }
    Row& at_least(int64_t low) {
      row().flags |= PLIANT_OPTION_HAS_MIN;
      row().int_min = low;
      row().float_min = static_cast<double>(low);
      return *this;
    }
    Row& at_most(int64_t high) {
      row().flags |= PLIANT_OPTION_HAS_MAX;
      row().int_max = high;
      row().float_max = static_cast<double>(high);
      return *this;
    }
    /// Number of elements of a list; high 0 = no limit.
    Row& elements(uint64_t low, uint64_t high) {
      row().list_min = low;
      row().list_max = high;
      return *this;
    }
    Row& choices(std::vector<const char*> allowed) {
      const auto& kept = table_.choices_.emplace_back(std::move(allowed));
      row().choices = kept.data();
      row().choice_count = static_cast<uint32_t>(kept.size());
      return *this;
    }
    /// A string that names a .npy file, which the host reads: EpochRequest::row_offsets. For samplers.
    Row& row_offsets() {
      row().flags |= PLIANT_OPTION_ROW_OFFSETS;
      return *this;
    }
    /// Likewise: EpochRequest::row_ids.
    Row& row_ids() {
      row().flags |= PLIANT_OPTION_ROW_IDS;
      return *this;
    }
    /// The user must give it.
    Row& required() {
      row().flags |= PLIANT_OPTION_REQUIRED;
      row().default_value = nullptr;
      return *this;
    }

   private:
    pliant_option& row() { return table_.rows_[index_]; }
    Options& table_;
    size_t index_;
  };

  /// Adds option `key`, bound to `member`. `doc`: one sentence. Strings must outlive the plugin: use literals.
  template <class V>
  Row add(const char* key, V T::*member, const char* doc) {
    pliant_option row{};
    row.struct_size = sizeof(pliant_option);
    row.type = detail::OptionType<V>::kType;
    row.key = key;
    row.doc = doc;
    row.unit = "";
    row.int_min = std::numeric_limits<int64_t>::min();
    row.int_max = std::numeric_limits<int64_t>::max();
    row.default_value = defaults_.keep(prototype_.*member);
    rows_.push_back(row);
    setters_.push_back(std::make_unique<Setter<V>>(member));
    return Row(*this, rows_.size() - 1);
  }

  [[nodiscard]] const std::vector<pliant_option>& rows() const noexcept { return rows_; }

  /// Stores checked values in `target`.
  void apply(const pliant_option_values& given, T& target) const {
    const auto values = taken(&given, &pliant_option_values::values, "pliant_option_values");
    if (values.count != rows_.size()) {
      throw Failure(PLIANT_INTERNAL, "the host passed " + std::to_string(values.count) + " option values for " +
                                         std::to_string(rows_.size()) + " options");
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.values);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const auto value =
          taken(reinterpret_cast<const pliant_value*>(bytes + i * values.stride), &pliant_value::texts, "pliant_value");
      if (value.type != rows_[i].type)
        throw Failure(PLIANT_INTERNAL, std::string("wrong type for option ") + rows_[i].key);
      setters_[i]->set(value, target);
    }
  }

 private:
  struct AnySetter {
    virtual ~AnySetter() = default;
    virtual void set(const pliant_value& value, T& target) const = 0;
  };
  template <class V>
  struct Setter final : AnySetter {
    explicit Setter(V T::*where) : member(where) {}
    void set(const pliant_value& value, T& target) const override { detail::assign(value, target.*member); }
    V T::*member;
  };

  T prototype_{};
  detail::DefaultPool defaults_;
  std::deque<std::vector<const char*>> choices_;
  std::vector<pliant_option> rows_;
  std::vector<std::unique_ptr<AnySetter>> setters_;
};

}  // namespace pliant::sdk
