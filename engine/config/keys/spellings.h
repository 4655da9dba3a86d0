// Settings that have several spellings: those of transformers, SageMaker's library and shardline. Each is a key with
// its aliases, and shorthands, which are keys of their own. Two spellings in one file must not contradict each other.
#pragma once
#include <functional>
#include <string>

#include "core/files/json_reader.h"
#include "engine/config/keys/options.h"
#include "engine/config/keys/registry.h"

namespace shardline {

// The reader of a section.
using SectionReader = std::function<JsonReader&(const std::string& section)>;

// The spelling of a key that the file uses, or its name. Reports two spellings with different values. A null under an
// older spelling is the same as not given.
std::string spelling_in_file(JsonReader& section, const Key& key);

// Where the file says something about a setting ("section.key"): that key, or a spelling or shorthand of it.
struct Place {
  std::string section, key;
};
Place place_in_file(const std::string& setting, const SectionReader& reader);

// Reports contradictions between keys of one setting; every section was read without a mistake.
void check_spellings(const Config& config, const SectionReader& reader);

}  // namespace shardline
