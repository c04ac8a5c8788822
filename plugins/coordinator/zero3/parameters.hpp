// What is known of each parameter: whether it is whole, which gather brings it, which entered modules use it. What a
// visit asks of all its parameters is a bit each, so that it asks for up to 64 at once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layout.hpp"
#include "pliant/sdk/coordinator.hpp"

namespace pliant::coordinator::zero3 {

/// 64 neighbours, a bit each. A line of the cache.
struct alignas(64) ParameterBits {
  uint64_t whole = 0;       ///< on its way, or arrived
  uint64_t arrived = 0;     ///< waited for itself. One that is not may have come with another of its collective
  uint64_t registered = 0;  ///< in the list of those on their way, from its gather to its own wait
  uint64_t used = 0;        ///< by an entered module
  uint64_t shared = 0;      ///< by more than one
  uint64_t exclusive = 0;   ///< no other module may be its user than the one that lists it, which user_ says
  uint64_t persistent = 0;
  uint64_t external = 0;
};

/// see(number) for those of a word whose bit is set, ascending.
template <class See>
[[gnu::always_inline]] inline void each_of(uint32_t word, uint64_t bits, See&& see) {
  for (; bits != 0; bits &= bits - 1) see(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
}

class Parameters {
 public:
  Parameters() = default;
  explicit Parameters(const std::vector<sdk::Parameter>& given);

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(elements_.size()); }
  [[nodiscard]] uint64_t elements(uint32_t parameter) const { return elements_[parameter]; }
  [[nodiscard]] ParameterBits* words() { return words_.data(); }
  [[nodiscard]] const ParameterBits* words() const { return words_.data(); }
  [[nodiscard]] size_t word_count() const { return words_.size(); }

  [[nodiscard]] bool whole(uint32_t parameter) const { return has(parameter, &ParameterBits::whole); }
  [[nodiscard]] bool registered(uint32_t parameter) const { return has(parameter, &ParameterBits::registered); }
  [[nodiscard]] bool used(uint32_t parameter) const { return has(parameter, &ParameterBits::used); }
  [[nodiscard]] bool persistent(uint32_t parameter) const { return has(parameter, &ParameterBits::persistent); }
  [[nodiscard]] bool external(uint32_t parameter) const { return has(parameter, &ParameterBits::external); }
  [[nodiscard]] bool frozen(uint32_t parameter) const { return frozen_[parameter]; }
  void make_persistent(uint32_t parameter) { words_[parameter / 64].persistent |= bit(parameter); }
  /// Layout::listers(). Some may be used right now.
  void set_listers(std::span<const uint32_t> modules);

  // Collectives. The first wait for one of a collective makes all of it available, waited for or not.
  [[nodiscard]] uint32_t new_gather() {
    if (registered_ == 0) has_come_.clear();
    has_come_.push_back(0);
    return static_cast<uint32_t>(has_come_.size() - 1);
  }
  /// False when it is registered already, for another collective.
  [[nodiscard]] bool gather(uint32_t parameter, uint32_t number) {
    ParameterBits& word = words_[parameter / 64];
    word.whole |= bit(parameter);
    if ((word.registered & bit(parameter)) != 0) return false;
    word.registered |= bit(parameter);
    gather_[parameter] = number;
    ++registered_;
    return true;
  }
  /// How all parameters of a module stand.
  enum class Standing { kHere, kComing, kAway, kMixed };
  /// For a visit that enters: kHere and kComing, not yet waited for, only where no other module may be a user.
  [[nodiscard]] Standing standing(const ModuleUse& use) const {
    uint64_t odd = 0;
    uint64_t coming = 0;
    uint64_t here = 0;
    for (const Slice& slice : use.slices) {
      const ParameterBits& word = words_[slice.word];
      odd |= slice.bits & ~(word.whole & word.exclusive);
      coming |= slice.bits & word.registered;
      here |= slice.bits & ~word.registered;
    }
    if (odd != 0 || (coming != 0 && here != 0)) return Standing::kMixed;
    return coming != 0 ? Standing::kComing : Standing::kHere;
  }
  /// For a visit that is to come: kAway where none is whole or registered.
  [[nodiscard]] Standing standing_ahead(const ModuleUse& use) const {
    uint64_t away = 0;
    uint64_t near = 0;
    for (const Slice& slice : use.slices) {
      const ParameterBits& word = words_[slice.word];
      away |= slice.bits & ~word.whole;
      near |= slice.bits & (word.whole | word.registered);
    }
    return away == 0 ? Standing::kHere : near == 0 ? Standing::kAway : Standing::kMixed;
  }
  /// All of them, which are kAway.
  void gather_all(const ModuleUse& use, uint32_t number) {
    for (const Slice& slice : use.slices) {
      words_[slice.word].whole |= slice.bits;
      words_[slice.word].registered |= slice.bits;
    }
    uint32_t* const gather = gather_.data();
    for (const uint32_t parameter : use.numbers) gather[parameter] = number;
    registered_ += use.numbers.size();
  }
  /// All of them, which are kComing, arrive.
  void arrive_all(const ModuleUse& use) {
    uint8_t* const has_come = has_come_.data();
    const uint32_t* const gather = gather_.data();
    const uint32_t* const end = use.numbers.data() + use.numbers.size();
    for (const uint32_t* at = use.numbers.data(); at != end; ++at) has_come[gather[*at]] = 1;
    registered_ -= use.numbers.size();
    for (const Slice& slice : use.slices) {
      words_[slice.word].arrived |= slice.bits;
      words_[slice.word].registered &= ~slice.bits;
    }
  }
  /// The module that lists them, and no other may use, begins to.
  void use_all(const ModuleUse& use) {
    for (const Slice& slice : use.slices) words_[slice.word].used |= slice.bits;
  }
  /// It ends, and with `release` none is whole any more.
  void end_all(const ModuleUse& use, bool release) {
    for (const Slice& slice : use.slices) {
      ParameterBits& word = words_[slice.word];
      word.used &= ~slice.bits;
      if (release) this->release(word, slice.bits);
    }
  }
  [[nodiscard]] bool all_whole(const ModuleUse& use) const {
    for (const Slice& slice : use.slices) {
      if ((slice.bits & ~words_[slice.word].whole) != 0) return false;
    }
    return true;
  }
  [[nodiscard]] uint32_t gather_of(uint32_t parameter) const { return gather_[parameter]; }
  void leave_register(uint32_t parameter) {
    leave_register(words_[parameter / 64], parameter / 64, bit(parameter), [](uint32_t) {});
  }
  /// Those of one word; all are in it, and `see` is told each.
  template <class See>
  void leave_register(ParameterBits& word, uint32_t number, uint64_t bits, See&& see) {
    uint8_t* const has_come = has_come_.data();
    const uint32_t* const gather = gather_.data();
    uint64_t count = 0;
    each_of(number, bits, [&](uint32_t parameter) {
      has_come[gather[parameter]] = 1;
      ++count;
      see(parameter);
    });
    registered_ -= count;
    word.arrived |= bits & word.whole;
    word.registered &= ~bits;
  }
  [[nodiscard]] uint64_t registered() const { return registered_; }
  [[nodiscard]] bool available(uint32_t parameter) const {
    return available(words_[parameter / 64], parameter / 64, bit(parameter)) != 0;
  }
  /// Those of `bits`, of one word, that are.
  [[nodiscard]] uint64_t available(const ParameterBits& word, uint32_t number, uint64_t bits) const {
    uint64_t found = bits & word.arrived;
    each_of(number, bits & word.whole & ~word.arrived, [&](uint32_t parameter) {
      if (has_come_[gather_[parameter]] != 0) found |= bit(parameter);
    });
    return found;
  }
  void release(uint32_t parameter) { release(words_[parameter / 64], bit(parameter)); }
  static void release(ParameterBits& word, uint64_t bits) {
    word.whole &= ~bits;
    word.arrived &= ~bits;
  }

  // Entered modules that use a parameter: a set, so a module that is entered twice counts once.
  /// Of all that the module lists.
  void add_user(const ModuleUse& use, uint32_t module) {
    for (const Slice& slice : use.slices) {
      ParameterBits& word = words_[slice.word];
      const uint64_t maybe_others = slice.bits & ~word.exclusive;
      word.used |= slice.bits & word.exclusive;
      each_of(slice.word, maybe_others, [=, this](uint32_t parameter) { add_user(parameter, module); });
    }
  }
  /// One that does not list the parameter, too.
  void add_other_user(uint32_t parameter, uint32_t module) {
    words_[parameter / 64].exclusive &= ~bit(parameter);
    add_user(parameter, module);
  }
  void remove_user(uint32_t parameter, uint32_t module) {
    ParameterBits& word = words_[parameter / 64];
    if ((word.shared & bit(parameter)) != 0) {
      remove_one_of_several(parameter, module);
    } else if (user_[parameter] == module) {
      word.used &= ~bit(parameter);
    }
  }
  /// Those of one word, which the module lists.
  void remove_user(ParameterBits& word, uint32_t number, uint64_t bits, uint32_t module) {
    const uint64_t maybe_others = bits & word.used & ~word.exclusive;
    word.used &= ~(bits & word.exclusive);
    each_of(number, maybe_others, [=, this](uint32_t parameter) { remove_user(parameter, module); });
  }
  void remove_users(uint32_t parameter) {
    words_[parameter / 64].used &= ~bit(parameter);
    words_[parameter / 64].shared &= ~bit(parameter);
    more_users_[parameter].clear();
  }

  /// True when both are in the same state between two calls: stamps and numbers of collectives that have arrived do not
  /// count. Of both nothing is on its way, else false.
  [[nodiscard]] bool same_state(const Parameters& other) const;

  // Sets of one call.
  /// A stamp that no parameter has.
  [[nodiscard]] uint32_t new_stamp();
  [[nodiscard]] uint32_t stamp(uint32_t parameter) const { return stamps_[parameter]; }
  void set_stamp(uint32_t parameter, uint32_t stamp) { stamps_[parameter] = stamp; }

 private:
  static constexpr uint64_t bit(uint32_t parameter) { return uint64_t{1} << parameter % 64; }
  [[nodiscard]] bool has(uint32_t parameter, uint64_t ParameterBits::*set) const {
    return (words_[parameter / 64].*set & bit(parameter)) != 0;
  }
  void add_user(uint32_t parameter, uint32_t module) {
    ParameterBits& word = words_[parameter / 64];
    if ((word.used & bit(parameter)) == 0) {
      word.used |= bit(parameter);
      user_[parameter] = module;
    } else if (user_[parameter] != module) {
      add_one_more(parameter, module);
    }
  }
  void add_one_more(uint32_t parameter, uint32_t module);
  void remove_one_of_several(uint32_t parameter, uint32_t module);

  std::vector<ParameterBits> words_;
  std::vector<uint32_t> gather_;    ///< by parameter: the number of its collective, while it is on its way
  std::vector<uint32_t> user_;      ///< by parameter: one of them, while it is used
  std::vector<uint64_t> elements_;  ///< by parameter
  std::vector<uint32_t> stamps_;    ///< by parameter
  std::vector<bool> frozen_;        ///< by parameter
  std::vector<std::vector<uint32_t>> more_users_;
  std::vector<uint8_t> has_come_;  ///< by number of the collective: 1 = one of it was waited for
  uint64_t registered_ = 0;
  uint32_t stamp_ = 0;
};

}  // namespace pliant::coordinator::zero3
