// says(): whether a message holds a text; a failed check shows the message.
#pragma once

#include <doctest/doctest.h>

#include <string>

namespace pliant::sharded {

inline bool says(const std::string& message, const std::string& text) {
  const bool is_there = message.find(text) != std::string::npos;
  if (!is_there) MESSAGE(message);
  return is_there;
}

}  // namespace pliant::sharded
