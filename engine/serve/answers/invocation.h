// The body of a request and of its answer, according to their content types.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/files/json_data.h"

namespace shardline {

inline constexpr int64_t kMostInputs = 10000;             // per request
inline constexpr int64_t kMostValues = 32 * kMostInputs;  // in its JSON or CSV; each takes up to 100 bytes

// The contents of a request.
struct Invocation {
  nlohmann::json document = nlohmann::json::object();  // {"inputs": ..., "parameters": {...}}, as parsed
  bool is_lines = false;                               // each input came as a line, and each answer is one

  // Names of values, as messages show them, begin with "the request: /inputs/3".
  JsonValue inputs() const;
  // An object, empty if there is none.
  JsonValue parameters() const;
  // The inputs: a single one, or the elements of a list, at most kMostInputs.
  std::vector<JsonValue> each() const;
  bool is_list() const { return document.at("inputs").is_array(); }
  // Whether the answer is the only element of `answers`, and not the list. As in pipelines for words and questions,
  // this also holds for a list of one input, but not for a line, whose answer is a line.
  bool answers_one(const nlohmann::json& answers) const { return answers.size() == 1 && !is_lines; }
};

// JSON: {"inputs": X or [X, ...], "parameters": {...}}; an object without "inputs" is itself the input. JSON lines: one
// such object or input per line. CSV: a header, and a column "inputs", or the columns of objects (question, context;
// text, text_pair). Text: one input. Throws DataError for an invalid body, HttpError 415 for other types.
Invocation read_invocation(const std::string& body, const std::string& media_type);

struct AnswerBody {
  std::string content_type;
  std::string body;
};
// Writes an answer in a format that `accept` allows: JSON, JSON lines or CSV (of objects, or lists of them; of lists of
// lists, the column "index" has the number of the list, "index_2" that of a list in it). Throws HttpError 406 for other
// types.
AnswerBody write_answer(const nlohmann::json& answer, const std::string& accept);

}  // namespace shardline
