// Common functions of the readers of tokenizer.json's components.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/files/json_data.h"

namespace shardline {

// Throws a DataError that names the type and what is supported.
[[noreturn]] void refuse_type(const JsonValue& component, const std::string& type, const char* supported);

// Calls `use` with a component or, for a Sequence, with each of its parts in order; `list` is the key of these parts.
// Throws DataError for more parts than any tokenizer has.
void for_each_component(const JsonValue& component, const char* list, const std::function<void(const JsonValue&)>& use);

// The only character of a text value.
char32_t one_character(const JsonValue& value);

// The bytes that the text encodes; nothing if it is not base64 with its padding.
std::optional<std::string> bytes_of_base64(std::string_view text);

}  // namespace shardline
