#include "core/model/name_pattern.h"

#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <regex>
#include <utility>

#include "core/error.h"
#include "core/files/json_reader.h"

namespace shardline {
namespace {

constexpr size_t kLongest = 1024;                 // characters; std::regex uses stack for each of them
constexpr const char* kOnlyRegex = "\\()|+^${}";  // occur in no name, and have no meaning in shell patterns

bool looks_like_regex(const std::string& text) {
  return text.starts_with(".*") || text.find_first_of(kOnlyRegex) != std::string::npos;
}

std::string replaced(const std::string& text, const char* regex, const char* by) {
  return std::regex_replace(text, std::regex(regex), by);
}

// "^h\\.[^0-3]\\.mlp.*$" -> "h.[!0-3].mlp*"; empty if one pattern cannot express it.
std::string as_shell_pattern(std::string regex) {
  for (const auto& [from, to] : {std::pair{R"(^\^|\$$)", ""},
                                 {R"(\.[*+])", "*"},
                                 {R"(\[\^)", "[!"},
                                 {R"(\\d)", "[0-9]"},
                                 {R"(\[0-9\][*+])", "[0-9]*"},
                                 {R"(\\\.)", "."}})
    regex = replaced(regex, from, to);
  return looks_like_regex(regex) ? "" : regex;
}

// "wte" -> "*wte*"
std::string anywhere(const std::string& pattern, bool from_start = false, bool to_end = false) {
  return replaced(cat(from_start ? "" : "*", pattern, to_end ? "" : "*"), R"(\*+)", "*");
}

std::string shell_spellings(const std::string& regex) {
  const std::string whole = as_shell_pattern(regex);
  if (whole.empty()) return "write a pattern for each alternative, such as \"h.[0-3]\" and \"h.1?\"";
  const std::string found = anywhere(whole, regex.starts_with('^'), regex.ends_with('$'));
  return cat("write \"", whole, '"',
             found == whole ? "" : cat(", or \"", found, "\" for all names in which it is found"));
}

void check_sets(const std::string& pattern) {
  for (size_t open = 0; (open = pattern.find('[', open)) != std::string::npos;) {
    const size_t first = open + (pattern.compare(open, 2, "[!") == 0 ? 2 : 1);
    const size_t close = pattern.find(']', first + 1);  // a bracket that comes first is in the set
    if (close == std::string::npos)
      throw ConfigError(cat("\"", pattern, "\" has a [ without a ]; write a set of characters as \"h.[0-3]\""));
    if (std::regex_search(pattern.substr(first, close - first), std::regex(R"(\d\d-\d|\d-\d\d)")))
      throw ConfigError(cat("\"", pattern,
                            "\" has a set of characters that looks like a range of numbers; write 0 to "
                            "12 as two patterns, \"h.[0-9]\" and \"h.1[0-2]\""));
    open = close + 1;
  }
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t shown = 4;
  std::string all;
  for (size_t i = 0; i < std::min(names.size(), shown); ++i) all += cat(i == 0 ? "" : ", ", names[i]);
  return names.size() <= shown ? all : cat(all, ", ..., ", names.back());
}

bool matches_any(const NamePattern& pattern, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const auto& name) { return pattern.matches(name); });
}

std::string advice_for(const std::string& text, const std::vector<std::string>& names) {
  if (names.empty()) return "there are none";
  const std::string regex = as_shell_pattern(text);  // for text that could be both, such as "ln_.*weight"
  for (const auto& other : {anywhere(text), regex, anywhere(regex)})
    if (!other.empty() && matches_any(other, names)) return cat("patterns match whole names: write \"", other, '"');
  const std::string near = nearest_word(text, names);
  const std::string list = cat("he names are ", some_of(names));
  return near.empty() ? "t" + list : cat("did you mean \"", near, "\"? T", list);
}

bool fits(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// Whether the pattern matches the name, and what is before its last dot what is before the name's last dot: "blocks.*"
// matches "blocks.0.q", but not as the path of a module.
bool fits_path(const std::string& pattern, const std::string& name) {
  const size_t of_pattern = pattern.rfind('.'), of_name = name.rfind('.');
  const bool has_dot = of_pattern != std::string::npos;
  if (!fits(pattern, name) || has_dot != (of_name != std::string::npos)) return false;
  return !has_dot || fits(pattern.substr(0, of_pattern), name.substr(0, of_name));
}

// The name whose module contains the pattern's path: "h.3" for "h.3.mlp"; empty if there is none.
std::string name_around(const NamePattern& pattern, const std::vector<std::string>& names) {
  const std::string& text = pattern.text();
  for (size_t dot = text.find('.'); dot != std::string::npos; dot = text.find('.', dot + 1)) {
    const std::string start = text.substr(0, dot);
    if (std::ranges::count(start, '[') != std::ranges::count(start, ']')) continue;  // the dot is in a set
    const auto found = std::ranges::find_if(names, [&](const auto& name) { return fits_path(start, name); });
    if (found != names.end()) return *found;
  }
  return "";
}

}  // namespace

NamePattern::NamePattern(const std::string& text) : text_(text) {
  if (text.size() > kLongest)
    throw ConfigError(cat("a pattern of ", text.size(), " characters is longer than any name; use at most ", kLongest));
  if (looks_like_regex(text))
    throw ConfigError(cat("\"", text,
                          "\" is a regular expression, but names are selected by * ? and [] as in a shell; ",
                          shell_spellings(text)));
  check_sets(text);
}

bool NamePattern::matches(const std::string& name) const {
  return fits(text_, name);
}

bool NamePattern::contains(const std::string& name) const {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    if (matches(name.substr(0, dot))) return true;
  return matches(name);
}

std::ostream& operator<<(std::ostream& out, const NamePattern& pattern) {
  return out << pattern.text();
}

void to_json(nlohmann::json& json, const NamePattern& pattern) {
  json = pattern.text();
}

void from_json(const nlohmann::json& json, NamePattern& pattern) {
  pattern = json.get<std::string>();
}

void require_match(const NamePattern& pattern, const std::vector<std::string>& names, const std::string& place,
                   const std::string& kind) {
  if (matches_any(pattern, names)) return;
  throw ConfigError(cat(place, ": \"", pattern, "\" matches no ", kind, "; ", advice_for(pattern.text(), names)));
}

void require_contained(const NamePattern& pattern, const std::vector<std::string>& names, const std::string& place,
                       const std::string& kind) {
  if (std::ranges::any_of(names, [&](const auto& name) { return pattern.contains(name); })) return;
  const std::string around = name_around(pattern, names);
  if (!around.empty()) throw ConfigError(inside_text(pattern, around, place, kind));
  require_match(pattern, names, place, kind);
}

std::string inside_text(const NamePattern& pattern, const std::string& name, const std::string& place,
                        const std::string& kind) {
  return cat(place, ": \"", pattern, "\" is inside ", name, ", and no part of a ", kind, " can be named; write \"",
             name, '"');
}

std::vector<std::optional<size_t>> first_matches(const std::vector<NamePattern>& patterns,
                                                 const std::vector<std::string>& names, const std::string& place,
                                                 const std::string& kind, const SelectsName& selects) {
  const auto does_select = [&](const NamePattern& pattern, size_t name) {
    return selects ? selects(pattern, name) : pattern.contains(names[name]);
  };
  std::vector<std::optional<size_t>> firsts(names.size());
  std::vector<bool> used(patterns.size()), selected(patterns.size());
  for (size_t name = 0; name < names.size(); ++name)
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (!does_select(patterns[i], name)) continue;
      selected[i] = true;
      if (firsts[name]) continue;
      firsts[name] = i;
      used[i] = true;
    }
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (used[i]) continue;
    if (!selected[i]) require_contained(patterns[i], names, cat(place, "/", i), kind);
    throw ConfigError(cat(place, "/", i, ": \"", patterns[i], "\" matches no ", kind,
                          " that earlier entries have not matched; put it before them, or leave it out"));
  }
  return firsts;
}

}  // namespace shardline
