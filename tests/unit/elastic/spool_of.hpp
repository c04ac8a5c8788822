// A spool with given bytes.
#pragma once

#include <ostream>
#include <string>

#include "base/result.hpp"
#include "elastic/spool.hpp"

namespace pliant::test {

inline elastic::Spool spool_of(const std::filesystem::path& folder, const std::string& bytes) {
  return or_throw(elastic::Spool::of(folder, [&bytes](std::ostream& out) { out << bytes; }));
}

}  // namespace pliant::test
