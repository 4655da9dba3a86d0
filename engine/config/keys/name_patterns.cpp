#include "engine/config/keys/name_patterns.h"

#include <fnmatch.h>

#include <regex>
#include <utility>

#include "core/error.h"

namespace shardline {
namespace {

constexpr const char* kOnlyRegex = "\\()|+^${}";  // occur in no name, and have no meaning in a shell pattern

std::string replaced(const std::string& text, const char* regex, const char* by) {
  return std::regex_replace(text, std::regex(regex), by);
}

// "h\\.[^0-3]\\.mlp.*" -> "h.[!0-3].mlp*"; empty if one pattern cannot express it.
std::string as_shell_pattern(std::string regex) {
  for (const auto& [from, to] : {std::pair{R"(^\^|\$$)", ""},
                                 {R"(\.[*+])", "*"},
                                 {R"(\[\^)", "[!"},
                                 {R"(\\d)", "[0-9]"},
                                 {R"(\[0-9\][*+])", "[0-9]*"},
                                 {R"(\\\.)", "."}})
    regex = replaced(regex, from, to);
  return regex.find_first_of(kOnlyRegex) == std::string::npos ? regex : "";
}

// "*.ln_[!f]*.weight" -> "\\.ln_[^f].*\\.weight", which is searched for anywhere in a name.
std::string as_regex(std::string pattern) {
  for (const auto& [from, to] : {std::pair{R"(^\*+|\*+$)", ""}, {R"(\.)", R"(\.)"}, {R"(\*)", ".*"}, {R"(\[!)", "[^"}})
    pattern = replaced(pattern, from, to);
  return pattern;
}

}  // namespace

void check_layer_pattern(const std::string& pattern) {
  if (!pattern.starts_with(".*") && pattern.find_first_of(kOnlyRegex) == std::string::npos) return;
  const auto equivalent = as_shell_pattern(pattern);
  throw ConfigError(cat("\"", pattern,
                        "\" is a regular expression, but layers are named with * ? and [] as in a shell; ",
                        equivalent.empty() ? "write an entry for each alternative, such as \"h.[0-3]\" and \"h.1?\""
                                           : cat("write \"", equivalent, '"')));
}

void check_parameter_pattern(const std::string& pattern) {
  const bool is_shell_pattern = pattern.starts_with('*') || pattern.find("[!") != std::string::npos;
  if (!is_shell_pattern) {
    try {
      const std::regex read(pattern);
      return;
    } catch (const std::regex_error&) {
    }
  }
  const auto advice = is_shell_pattern ? cat("write \"", as_regex(pattern), "\", which is found anywhere in a name")
                                       : std::string("write them as [\"wte\", \"ln_.*weight\"]");
  throw ConfigError(
      cat("\"", pattern, "\" is ", is_shell_pattern ? "a shell pattern, " : "", "not a regular expression; ", advice));
}

bool names_layer(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace shardline
