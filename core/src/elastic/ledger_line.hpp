// Ledger lines: one record as one line of JSON that ends in its own checksum, and back.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "elastic/ledger.hpp"

namespace pliant::elastic {

/// With the final newline. Text that is not UTF-8 is mended, so that decode_line always reads what this wrote.
std::string encode_line(const LedgerRecord& record);

/// `line` without its newline, any bytes. kDataLoss with only the reason ("its checksum does not match") when it is not
/// whole.
Result<LedgerRecord> decode_line(std::string_view line);

}  // namespace pliant::elastic
