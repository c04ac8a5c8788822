// Sizes, times and rates on a command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pliant::cli {

/// "64MiB", "64M" (as MiB), "64MB" (a million each) or "67108864": bytes, 1 or more, without a unit 1024 or more.
/// Throws (exit 2), naming `flag`.
uint64_t bytes_in(std::string_view flag, const std::string& word);

/// "20us", "1.5ms", "2s" or "300ns": nanoseconds, 0 or more. Throws (exit 2), naming `flag`.
uint64_t nanoseconds_in(std::string_view flag, const std::string& word);

/// "25GB/s", "25GB", "24GiB/s" or "25e9": bytes a second, 1000 or more. Throws (exit 2), naming `flag`.
double bytes_per_second_in(std::string_view flag, const std::string& word);

/// "100T", "1.5P" or "1e14": a number above 0. Throws (exit 2), naming `flag`.
double number_in(std::string_view flag, const std::string& word);

/// 1610612736 as "1.5 GiB", 4096 as "4 KiB": three digits or more of it.
std::string text_of_bytes(double bytes);

/// 0.0123 as "12.3 ms".
std::string text_of_seconds(double seconds);

}  // namespace pliant::cli
