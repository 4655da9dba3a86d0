// Settings that have several spellings: those of transformers, SageMaker's library and shardline. A setting is a key
// with its aliases, and shorthands, which are separate keys. Two spellings in one file must not contradict each other.
#pragma once
#include <functional>
#include <string>

#include "core/files/json_reader.h"
#include "engine/config/keys/options.h"
#include "engine/config/keys/registry.h"

namespace shardline {

// Returns the reader of a section.
using SectionReader = std::function<JsonReader&(const std::string& section)>;

// The spelling of a key that the file uses, or the key's name. Reports two spellings with different values. A null
// under an alias counts as not given.
std::string spelling_in_file(JsonReader& section, const Key& key);

// The key, spelling or shorthand by which the file sets a setting ("section.key").
struct Place {
  std::string section, key;
};
Place place_in_file(const std::string& setting, const SectionReader& reader);

// Reports contradictions between keys of one setting. Every section must have been read without a mistake.
void check_spellings(const Config& config, const SectionReader& reader);

}  // namespace shardline
