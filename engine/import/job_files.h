// Files that describe a job for other programs: what kind of file it is, and its keys as one object.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/import/keys/vocabulary.h"

namespace shardline {

struct JobFile {
  std::string kind;   // such as "describe-training-job", for messages
  std::string place;  // before the names of its keys in messages, such as "arguments"; may be empty
  const Vocabulary& keys;
  nlohmann::json value;  // an object
};

// Reads the text of a file, whose name is for messages, and recognises it by its content: JSON, YAML, or a command line
// with its arguments. A command line is two files: the launcher's options, and the script's. Throws ConfigError.
std::vector<JobFile> read_job(const std::string& text, const std::string& file);

// The same for a text that must be an object with keys of `keys`; returns the object.
nlohmann::json read_object(const std::string& text, const std::string& file, const Vocabulary& keys);

// Arguments of a command line: {"learning_rate": "3e-5", "do_train": true, "report_to": ["a", "b"]}. Throws ConfigError
// for a word without a key before it and for keys that are given twice.
nlohmann::json object_of_arguments(const std::vector<std::string>& words, const std::string& file);

}  // namespace shardline
