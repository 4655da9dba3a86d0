// The patterns that select layers ("h.3"), units ("h.3.attn") and parameters ("h.3.attn.qkv.weight") by name. They are
// shell patterns that match whole names, as in the tensor-parallel plans of transformers:
//   *              any text, even empty or with dots: "h.*" selects everything in blocks
//   ?              one character
//   [0-3], [!0-3]  one character in, or not in, the set; "[0-12]", meant as a range of numbers, is refused
// Every other character matches itself. Regular expressions are not supported: what looks like one is refused, and the
// error shows it as a shell pattern.
#pragma once
#include <functional>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

class NamePattern {
 public:
  NamePattern() = default;  // "*"
  // Throws ConfigError("RULE; ADVICE").
  NamePattern(const std::string& text);  // NOLINT(google-explicit-constructor): "h.*" is a pattern
  NamePattern(const char* text) : NamePattern(std::string(text)) {}

  const std::string& text() const { return text_; }
  bool matches(const std::string& name) const;
  // Whether it matches the name or a path that contains it, as "encoder" contains "encoder.layer.3".
  bool contains(const std::string& name) const;
  bool operator==(const NamePattern&) const = default;

 private:
  std::string text_ = "*";
};

std::ostream& operator<<(std::ostream& out, const NamePattern& pattern);
void to_json(nlohmann::json& json, const NamePattern& pattern);
void from_json(const nlohmann::json& json, NamePattern& pattern);

// Throws ConfigError("PLACE: RULE; ADVICE") unless the pattern matches one of the names. The advice is a pattern that
// matches, or the most similar name. kind: what the names refer to ("layer").
void require_match(const NamePattern& pattern, const std::vector<std::string>& names, const std::string& place,
                   const std::string& kind);
// Like require_match, but a pattern that contains one of the names is accepted, too. For a path inside a named module,
// the error is inside_text().
void require_contained(const NamePattern& pattern, const std::vector<std::string>& names, const std::string& place,
                       const std::string& kind);

// The error for a path inside the module `name`: "PLACE: "h.3.mlp" is inside h.3, and no part of a KIND can be
// named".
std::string inside_text(const NamePattern& pattern, const std::string& name, const std::string& place,
                        const std::string& kind);

// Returns, for each name, the index of the first pattern that selects it, if any. Throws ConfigError, with PLACE/INDEX
// as the place, if a pattern is not the first to select any name. `selects` decides whether a pattern selects the name
// with this index; by default, a pattern selects the names that it contains.
using SelectsName = std::function<bool(const NamePattern& pattern, size_t name)>;
std::vector<std::optional<size_t>> first_matches(const std::vector<NamePattern>& patterns,
                                                 const std::vector<std::string>& names, const std::string& place,
                                                 const std::string& kind, const SelectsName& selects = {});

}  // namespace shardline
