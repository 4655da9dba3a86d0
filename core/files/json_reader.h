// Strict reading of JSON that people write by hand: all mistakes in a file are found and reported together, each as
//   FILE: /pointer: rule; got VALUE; what to change
// (core/files/json_data.h reads files of other programs, with the same wording, up to the first mistake.) Duplicate
// keys, comments, unknown keys, 3.7 or true for an integer and -1 for a count are all mistakes.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/files/json_type.h"

namespace shardline {

// A parsed text, where it came from, and the mistakes found so far (such as duplicate keys).
struct JsonDocument {
  nlohmann::json value;
  std::string file;                            // its name in messages
  std::map<std::string, std::string> origins;  // JSON pointer -> another source of that value, e.g. "--set a.b=1"
  std::vector<std::string> problems;           // complete messages
};

// Throws ConfigError "FILE:LINE:COLUMN: ..." if the text is not JSON. Duplicate keys become problems of the document.
JsonDocument parse_json(const std::string& text, const std::string& file);
// Throws ConfigError if the file cannot be read.
JsonDocument read_json_file(const std::string& path);

// Maps names from other programs to our keys ("tensor_model_parallel_size" -> "smp_options.tensor_..."). Names are
// looked up in lower case, without leading dashes, with _ for -.
using JsonHints = std::map<std::string, std::string>;

// Reads one object of a document and remembers which keys were requested. Children share its list of mistakes.
class JsonReader {
 public:
  // The document must outlive the reader and its children.
  explicit JsonReader(const JsonDocument& document, JsonHints hints = {});

  bool has(const std::string& key) const;
  // The value, if it exists and is of this type; otherwise null. A value of another type is reported.
  const nlohmann::json* find(const std::string& key, const JsonType& type);
  // The value, if it exists, unchecked.
  const nlohmann::json* peek(const std::string& key);
  // The object under this key, or an empty object if there is none. A value of another type is reported.
  JsonReader child(const std::string& key);

  // Reports a mistake about a key; the reader adds the key's value to the message.
  void fail(const std::string& key, const std::string& rule, const std::string& advice);
  // Reports all keys that were not requested, each with the most similar one that was. Returns whether there were any.
  bool report_unknown_keys();
  // Whether no mistake has been reported in or below this object.
  bool clean() const;
  // If there are any mistakes in the whole document, throws one ConfigError with all of them.
  void throw_problems() const;

  // The object itself; empty if there is none.
  nlohmann::json value() const;

 private:
  struct Report;
  JsonReader(std::shared_ptr<Report> report, std::string pointer, const nlohmann::json* object);
  void add_problem(const std::string& pointer, const nlohmann::json* value, const std::string& rule,
                   const std::string& advice);
  void check_choice(const std::string& key, const JsonType& type, const nlohmann::json& value, const std::string& word);

  std::shared_ptr<Report> report_;
  std::string pointer_;
  const nlohmann::json* object_;
  std::set<std::string> known_;
};

// The candidate with the smallest edit distance, if it is close enough to be what was meant; otherwise empty.
std::string nearest_word(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace shardline
