// Bytes of a saved position.
#include "stream_state.hpp"

#include <algorithm>

namespace pliant::sampler {

namespace {

uint64_t checksum(std::string_view text, uint64_t state) {
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3U;  // FNV-1a
  return state;
}

uint64_t state_checksum(const std::string& tag, const std::string& options, const std::string& position) {
  return checksum(position, checksum(options, checksum(tag, 0xcbf29ce484222325U)));
}

}  // namespace

void damaged(const std::string& how) {
  throw sdk::Failure(PLIANT_DATA_LOSS, "the state is damaged: " + how);
}

void save_position(const sdk::Writer& out, const std::string& tag, const std::string& options,
                   const std::string& position) {
  constexpr size_t kPortion = size_t{1} << 20U;  // the longest text that a Reader takes
  out.text(tag);
  out.text(options);
  out.value(static_cast<uint64_t>((position.size() + kPortion - 1) / kPortion));
  for (size_t at = 0; at < position.size(); at += kPortion) out.text(position.substr(at, kPortion));
  out.value(state_checksum(tag, options, position));
}

std::string load_position(const sdk::Reader& in, const std::string& tag, const std::string& options) {
  if (in.text() != tag) throw sdk::Failure(PLIANT_DATA_LOSS, "this is not a state of " + tag);
  const std::string saved = in.text();
  std::string position;
  for (auto portions = in.value<uint64_t>(); portions > 0; --portions) position += in.text();
  const auto sum = in.value<uint64_t>();
  in.expect_end();
  if (sum != state_checksum(tag, saved, position)) damaged("its checksum is wrong");
  if (saved != options) {
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "the state was saved with other options (" + saved +
                                                       ") than those set now (" + options +
                                                       "); use the saved ones to resume");
  }
  return position;
}

}  // namespace pliant::sampler
