// The message of the error that a call throws.
#pragma once
#include <functional>
#include <string>

#include "core/error.h"

namespace shardline {

// "" if it throws no ConfigError.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace shardline
