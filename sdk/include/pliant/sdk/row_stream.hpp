// Gives a sampler the extension pliant.row_stream/0: return row_stream_table<T>() from `extension` for
// PLIANT_ROW_STREAM.
#pragma once

#include <cstdint>
#include <vector>

#include "pliant/abi/row_stream.h"
#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sdk {

/// A sequence, or a piece of one, in a row.
struct Entry {
  int64_t id = 0;
  Piece piece;
  bool operator==(const Entry&) const = default;
};

namespace detail {

template <class T>
struct RowStreamAdapter {
  static T& plugin(void* self) { return SamplerAdapter<T>::instance(self)->plugin; }

  static int32_t open(void* self, const pliant_epoch_request* request, pliant_error* error) noexcept {
    return guarded(error, [&] { plugin(self).open_rows(SamplerAdapter<T>::request_of(request)); });
  }
  static int32_t next(void* self, uint64_t max_rows, uint64_t capacity, uint64_t* row_count, uint64_t* offsets,
                      int64_t* ids, int64_t* first_tokens, int64_t* token_counts, pliant_error* error) noexcept {
    return guarded(error, [&] {
      *row_count = 0;
      offsets[0] = 0;
      for (uint64_t row = 0; row < max_rows; ++row) {
        const std::vector<Entry>* entries = plugin(self).peek_row();
        if (entries == nullptr) return;
        uint64_t at = offsets[row];
        if (entries->size() > capacity - at) {
          if (row == 0) SamplerAdapter<T>::check_room(entries->size(), capacity);
          return;
        }
        for (const Entry& entry : *entries) {
          ids[at] = entry.id;
          first_tokens[at] = entry.piece.first;
          token_counts[at++] = entry.piece.count;
        }
        offsets[row + 1] = at;
        plugin(self).take_row();
        *row_count = row + 1;
      }
    });
  }
};

}  // namespace detail

/// The extension's table for sampler class T, which has
///   void open_rows(const EpochRequest&);            // opens an epoch, or goes on where a loaded state stopped
///   const std::vector<Entry>* peek_row();           // the next row, nullptr at the end; the same until it is taken
///   void take_row();
template <class T>
const pliant_row_stream* row_stream_table() noexcept {
  using Adapter = detail::RowStreamAdapter<T>;
  static const pliant_row_stream kTable{sizeof(pliant_row_stream), 0, &Adapter::open, &Adapter::next};
  return &kTable;
}

}  // namespace pliant::sdk
