// Streams<T, Engine>: the row stream, its saved position and the extension, for samplers that keep the order.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "pliant/abi/row_stream.h"
#include "row_stream.hpp"

namespace pliant::sampler {

/// T has
///   FeedRule feed_rule() const; Engine make_engine() const; std::string text() const; static constexpr kName;
///   std::string why_no_stream() const: which option needs the whole epoch, empty when none does.
template <class T, class Engine>
class Streams {
 public:
  void open_rows(const sdk::EpochRequest& request) {
    const std::string reason = self().why_no_stream();
    if (!reason.empty()) throw sdk::Failure(PLIANT_UNIMPLEMENTED, "rows one after the other need " + reason);
    RowStream<Engine> opened = stream_at(loaded_);
    opened.open(request);
    stream_ = std::move(opened);
    loaded_.clear();
  }
  const Row* peek_row() {
    if (!stream_) throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "no epoch is open; call open first");
    return stream_->peek();
  }
  void take_row() { stream_->take(); }

  void save(const sdk::Writer& out) const {
    save_position(out, tag(), self().text(), stream_ ? stream_->save() : loaded_);
  }
  /// Replaces the open epoch: the next open_rows goes on where the state was saved.
  void load(const sdk::Reader& in) {
    std::string position = load_position(in, tag(), self().text());
    (void)stream_at(position);
    loaded_ = std::move(position);
    stream_.reset();
  }
  const void* extension(const char* id) const {
    return std::strcmp(id, PLIANT_ROW_STREAM) == 0 ? sdk::row_stream_table<T>() : nullptr;
  }

 private:
  [[nodiscard]] const T& self() const { return static_cast<const T&>(*this); }
  /// At the beginning of an epoch where `position` is empty.
  [[nodiscard]] RowStream<Engine> stream_at(const std::string& position) const {
    if (position.empty()) return {self().feed_rule(), self().make_engine()};
    return RowStream<Engine>::load(self().feed_rule(), self().make_engine(), position);
  }
  static std::string tag() { return std::string("sampler ") + T::kName + ", state 2"; }

  std::optional<RowStream<Engine>> stream_;
  std::string loaded_;  ///< a position that was read, for the next epoch; empty = none
};

/// For packing samplers: what their options must be.
std::string why_no_stream(const PackOptions& options);
FeedRule feed_rule(const PackOptions& options);

}  // namespace pliant::sampler
