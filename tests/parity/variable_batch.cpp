// Rows of variable_batch.jsonl: which kinds of them are implemented.
#include "parity/parity.hpp"

namespace pliant::parity {

std::vector<RowKind> variable_batch_rows() { return {}; }

}  // namespace pliant::parity
