// `shardline help`: what a key of the config means, which values it takes, what it needs, and an example.
#pragma once
#include <string>

namespace shardline {

// The sections and how many keys they have.
std::string sections_help();
// Help for a section, or for a key: "training.seed", "seed", an alias, or the name that another trainer has for it. A
// name that occurs in several sections is explained for each of them. Throws a ConfigError with the nearest names if
// there is none.
std::string key_help(const std::string& name);
// Whether `name` is a section, a key or a known spelling of one.
bool is_key_or_section(const std::string& name);

}  // namespace shardline
