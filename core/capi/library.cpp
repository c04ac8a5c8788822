// The library itself: its version, and where its log lines go.
#include <string>

#include "handles.hpp"

namespace {

constexpr uint32_t kMajor = 1000000;
constexpr uint32_t kMinor = 1000;

std::string words_of(uint32_t version) {
  return std::to_string(version / kMajor) + "." + std::to_string(version / kMinor % (kMajor / kMinor)) + "." +
         std::to_string(version % kMinor);
}

}  // namespace

pliant::LogLevel pliant::capi::log_level_of(int32_t number) {
  if (number >= PLIANT_LEVEL_DEBUG && number <= PLIANT_LEVEL_ERROR) return static_cast<LogLevel>(number);
  throw wrong("there is no log level " + std::to_string(number));
}

const char* pliant_version() {
  static const std::string kVersion = words_of(PLIANT_VERSION);
  return kVersion.c_str();
}

int32_t pliant_check_version(uint32_t header) {
  return pliant::capi::answer(nullptr, [&] {
    constexpr uint32_t kOwn = PLIANT_VERSION;
    if (header / kMajor == kOwn / kMajor && header / kMinor <= kOwn / kMinor) return;
    throw pliant::Error(pliant::Status::kFailedPrecondition,
                        "the program was compiled with pliant.h " + words_of(header) + " and runs with libpliant " +
                            words_of(kOwn) + ", which serves headers of the same major version up to its own");
  });
}

int32_t pliant_set_log_sink(void (*sink)(void* context, int32_t level, const char* logger, const char* line),
                            void* context, int32_t least, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::LogLevel level_from = pliant::capi::log_level_of(least);
    if (sink == nullptr) return pliant::set_log_sink({});
    pliant::set_log_sink(
        [sink, context](pliant::LogLevel level, std::string_view logger, std::string_view line) {
          sink(context, static_cast<int32_t>(level), std::string(logger).c_str(), std::string(line).c_str());
        },
        level_from);
  });
}
