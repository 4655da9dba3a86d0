// Converts a config file to the options of a run, and back.
#pragma once
#include <string>
#include <vector>

#include "engine/config/keys/options.h"

namespace shardline {

// Training needs data; the other commands check what they need themselves.
enum class Purpose { training, other };

// Reads FILE; `overrides` ("training.max_steps=10": path=VALUE, VALUE is JSON or a bare string) are applied first.
// Fills in defaults that depend on other keys. Throws one ConfigError that lists every mistake.
Config read_config(const std::string& path, const std::vector<std::string>& overrides = {},
                   Purpose purpose = Purpose::training);
// The same for a text; `file` is its name in messages.
Config parse_config(const std::string& text, const std::string& file, const std::vector<std::string>& overrides = {},
                    Purpose purpose = Purpose::training);

// A config file with every honoured key written out: reading it again gives an equal Config. `derived` (such as sizes)
// is stored under the key "derived", which reading ignores.
nlohmann::json resolved(const Config& config, const nlohmann::json& derived = nullptr);

// The overrides ("training.max_steps=10") that turn one config into the other.
std::vector<std::string> settings_between(const Config& from, const Config& to);

// Notes for the user, one per line: keys of the config that have no effect on CPUs (or on accelerators), and why.
std::vector<std::string> notes(const Config& config, bool on_accelerators);

// docs/config.md: every key with type, default, status and meaning.
std::string config_reference_markdown();

}  // namespace shardline
