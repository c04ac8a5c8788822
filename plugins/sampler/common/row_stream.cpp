// Rows in a saved position, and which options go with a stream of rows.
#include "row_stream.hpp"

#include "streaming_base.hpp"

namespace pliant::sampler {

void save_row(ByteWriter& out, const Row& row) {
  out.number(uint64_t{row.size()});
  for (const sdk::Entry& entry : row) {
    out.number(entry.id);
    out.number(entry.piece.first);
    out.number(entry.piece.count);
  }
}

Row load_row(ByteReader& in) {
  Row row(in.count(3 * sizeof(uint64_t)));
  for (sdk::Entry& entry : row) {
    entry.id = in.integer();
    entry.piece.first = in.integer();
    entry.piece.count = in.integer();
    if (entry.id < 0 || entry.piece.first < 0 || entry.piece.count < 1) damaged("an entry that is none");
  }
  return row;
}

std::string why_no_stream(const PackOptions& options) {
  if (options.order != "dataloader") return "order = \"dataloader\"";
  if (options.tail != "keep") return "tail = \"keep\"";
  if (options.min_sequences > 1) return "min_sequences up to 1";
  if (options.over_long == "drop") return "an over_long other than \"drop\"";
  if (options.same_sequences) return "same_sequences = false";
  if (options.cost_window != 0) return "cost_window = 0";
  return {};
}

FeedRule feed_rule(const PackOptions& options) {
  return {options.longest(), options.cost(), options.over_long, options.counts_loss()};
}

}  // namespace pliant::sampler
