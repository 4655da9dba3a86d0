// Runs independent checks of one config, so that all mistakes are reported together.
#pragma once
#include <functional>
#include <string>

#include "core/error.h"

namespace shardline {

class Findings {
 public:
  // Runs a check and keeps its error if that is a user's mistake.
  void check(const std::function<void()>& rule) {
    try {
      rule();
    } catch (const ConfigError& error) {
      in_config_ = true;
      add(error.what());
    } catch (const RunError& error) {
      add(error.what());
    }
  }
  // Throws one ConfigError with everything that was found, or one DataError if no check blamed the config. Returns if
  // nothing was found.
  void throw_all() const {
    if (in_config_) throw ConfigError(text_);
    if (!text_.empty()) throw DataError(text_);
  }

 private:
  void add(const char* what) { text_ += cat(text_.empty() ? "" : "\n", what); }

  std::string text_;
  bool in_config_ = false;
};

}  // namespace shardline
