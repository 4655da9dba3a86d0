// Texts about a key for the reference, `shardline help` and the JSON schema.
#pragma once
#include <string>

#include "engine/config/keys/registry.h"

namespace shardline {

std::string full_name(const Section& section, const Key& key);  // "training.seed", or "task" at the top level
// "an integer >= 1", "one of "a", "b" (not available: c)"
std::string type_text(const Key& key);
// The default as JSON, or "unset".
std::string default_text(const Key& key);
// In Markdown: what the key means or, if it is not honoured, the reason and what to do instead. Does not name its
// aliases.
std::string meaning_text(const Key& key);
// "see [sizes](#sizes)" -> "see sizes"; code marks are removed, too.
std::string without_markdown(const std::string& text);
std::string plain_meaning(const Key& key);
// A value that someone might give the key; null for keys that are not honoured.
nlohmann::json example_value(const Section& section, const Key& key);

}  // namespace shardline
