#include "engine/serve/answers/invocation.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <sstream>

#include "core/error.h"
#include "engine/data/source/delimited_rows.h"
#include "engine/data/source/jsonl.h"
#include "engine/data/text/utf8.h"
#include "engine/serve/http/http_message.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr const char* kWhere = "the request";

// {"inputs", "parameters"} of a document that may be an input itself.
json with_inputs(json document, const std::string& where) {
  if (!document.is_object()) return {{"inputs", std::move(document)}};
  if (!document.contains("inputs")) {
    if (document.contains("parameters"))
      throw DataError(cat(where, ": /inputs: is missing; a request is {\"inputs\": ..., \"parameters\": {...}}"));
    return {{"inputs", std::move(document)}};
  }
  JsonValue(document, where).require_keys_among({"inputs", "parameters", "options"});
  document.erase("options");  // options of the hub: caching, waiting for the model
  return document;
}

[[noreturn]] void refuse_values() {
  throw DataError(
      cat(kWhere, ": has more than ", kMostValues, " values; send at most ", kMostInputs, " inputs in a request"));
}

// Checks this before anything is allocated for the values. Counts the characters outside of texts that begin a value or
// separate two; invalid JSON is refused later.
void require_few_values(std::string_view body) {
  int64_t values = 0;
  bool in_text = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_text && c == '\\')
      ++i;
    else if (c == '"')
      in_text = !in_text;
    else if (!in_text && (c == ',' || c == '[' || c == '{' || c == '\n') && ++values > kMostValues)
      refuse_values();
  }
}

json of_json(const std::string& body) {
  if (body.find_first_not_of(" \t\r\n") == std::string::npos)
    throw DataError(cat(kWhere, ": has no body; send {\"inputs\": ...}"));
  require_few_values(body);
  json document = parse_data_value(body, kWhere);
  if (!document.is_object())
    throw DataError(cat(kWhere, ": must be an object {\"inputs\": ...}; got ", document.type_name()));
  return with_inputs(std::move(document), kWhere);
}

json of_lines(const std::string& body) {
  require_few_values(body);
  json all = {{"inputs", json::array()}};
  std::string_view rest = body;
  for (int64_t line = 1; !rest.empty(); ++line) {
    const std::string_view text = take_line(rest);
    if (is_blank_line(text)) continue;
    const std::string where = cat(kWhere, ", line ", line);
    json one = with_inputs(parse_data_value(text, where), where);
    if (one.contains("parameters")) {
      if (all.contains("parameters") && all["parameters"] != one["parameters"])
        throw DataError(cat(where, ": /parameters: differ from those of an earlier line; use separate requests"));
      all["parameters"] = std::move(one["parameters"]);
    }
    all["inputs"].push_back(std::move(one["inputs"]));
  }
  return all;
}

void require_utf8(const std::string& body) {
  if (!is_valid_utf8(body)) throw DataError(cat(kWhere, ": is not valid UTF-8"));
}

[[noreturn]] void refuse_header() {
  throw DataError(cat(kWhere, ": the first row of CSV must name a column \"inputs\", or the columns of objects, ",
                      "\"question\" and \"context\", or \"text\" and \"text_pair\"; the rows after it are the inputs"));
}

[[noreturn]] void refuse_columns_beside_inputs(const json& columns) {
  std::string names;
  for (const auto& [name, ignored] : columns.items())
    if (name != "inputs") names += cat(names.empty() ? "" : ", ", name);
  throw DataError(cat(kWhere, ": the first row of CSV names columns beside \"inputs\", which nothing reads: ",
                      names.substr(0, 200), "; leave them out"));
}

json of_csv(const std::string& body) {
  require_utf8(body);
  json inputs = json::array();
  const auto rows = csv_rows_of(body, kWhere);
  size_t values = 0;
  for (DataRow row; rows->next(row);) {
    if (std::cmp_greater(values += row.columns.size(), kMostValues)) refuse_values();
    if (row.columns.contains("inputs")) {
      if (row.columns.size() > 1) refuse_columns_beside_inputs(row.columns);
      inputs.push_back(std::move(row.columns["inputs"]));
      continue;
    }
    if (!row.columns.contains("question") && !row.columns.contains("text")) refuse_header();
    inputs.push_back(std::move(row.columns));
  }
  if (inputs.empty()) refuse_header();
  return {{"inputs", std::move(inputs)}};
}

json of_text(const std::string& body) {
  require_utf8(body);
  return {{"inputs", body}};
}

bool is_json_lines(const std::string& type) {
  return type == "application/jsonlines" || type == "application/x-jsonlines" || type == "application/jsonl" ||
         type == "application/x-ndjson";
}

std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string csv_field(const json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : dumped(value);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

// The levels of lists around the objects of an answer.
size_t depth_of(const json& answer) {
  size_t depth = 0;
  if (answer.is_array())
    for (const json& one : answer) depth = std::max(depth, 1 + depth_of(one));
  return depth;
}

// A table of the objects of an answer. If these are in lists in a list, the first columns show in which ones.
class CsvRows {
 public:
  explicit CsvRows(const json& answer) : places_(std::max<size_t>(depth_of(answer), 1) - 1) { append(answer, {}); }
  std::string text() && { return std::move(rows_); }

 private:
  void append(const json& answer, const std::vector<size_t>& place) {
    if (answer.is_object()) return append_object(answer, place);
    if (!answer.is_array()) throw HttpError(406, "the answer is not a table; ask for application/json");
    std::vector<size_t> below = place;
    below.push_back(0);
    for (const json& one : answer) {
      append(one, below);
      ++below.back();
    }
  }

  void append_object(const json& answer, const std::vector<size_t>& place) {
    std::vector<std::string> names, values;
    for (size_t level = 0; level < places_; ++level) {
      names.push_back(level == 0 ? "index" : cat("index_", level + 1));
      values.push_back(level + 1 < place.size() ? std::to_string(place[level]) : "");
    }
    for (const auto& [name, value] : answer.items()) {
      names.push_back(csv_field(name));
      values.push_back(csv_field(value));
    }
    if (rows_.empty()) append_line(names);
    append_line(values);
  }

  void append_line(const std::vector<std::string>& fields) {
    for (size_t i = 0; i < fields.size(); ++i) rows_ += (i == 0 ? "" : ",") + fields[i];
    rows_ += "\r\n";
  }

  size_t places_;  // columns
  std::string rows_;
};

// The weights that a header `Accept` gives to types of media, according to RFC 9110, 12.5.1: that of the most specific
// range that includes a type, 0 if there is none. Without ranges, every type has the weight 1.
class Preferences {
 public:
  explicit Preferences(const std::string& accept) {
    std::istringstream ranges(accept);
    for (std::string range; std::getline(ranges, range, ',');)
      if (const std::string type = media_type(range); !type.empty()) weights_[type] = weight_of(range);
    if (weights_.empty()) weights_["*/*"] = 1;
  }

  double of(const std::string& type) const {
    for (const std::string& range : {type, type.substr(0, type.find('/')) + "/*", std::string("*/*")})
      if (const auto found = weights_.find(range); found != weights_.end()) return found->second;
    return 0;
  }

  // JSON lines are not JSON, so only a range that names them includes them.
  double of_json_lines() const {
    double weight = 0;
    for (const auto& [type, of_type] : weights_)
      if (is_json_lines(type)) weight = std::max(weight, of_type);
    return weight;
  }

 private:
  // The weight ";q=0.5" of a range; 1 if there is none or it is not a number.
  static double weight_of(const std::string& range) {
    std::string parameters = range;
    std::erase_if(parameters, [](char c) { return c == ' ' || c == '\t'; });
    const size_t found = std::min(parameters.find(";q="), parameters.find(";Q="));
    if (found == std::string::npos) return 1;
    const char* text = parameters.c_str() + found + 3;
    char* end = nullptr;
    const double weight = std::strtod(text, &end);
    return end == text ? 1 : std::clamp(weight, 0.0, 1.0);
  }

  std::map<std::string, double> weights_;
};

}  // namespace

JsonValue Invocation::inputs() const {
  return JsonValue(document, kWhere).at("inputs");
}

JsonValue Invocation::parameters() const {
  static const json none = json::object();
  const JsonValue whole(document, kWhere);
  if (!whole.has("parameters")) return {none, kWhere};
  const JsonValue given = whole.at("parameters");
  given.require(json_object());
  return given;
}

std::vector<JsonValue> Invocation::each() const {
  const JsonValue all = inputs();
  if (!is_list()) return {all};
  if (std::cmp_greater(all.json().size(), kMostInputs))
    all.fail(cat("has ", all.json().size(), " inputs"), cat("send at most ", kMostInputs, " in a request"));
  return all.items();
}

Invocation read_invocation(const std::string& body, const std::string& media_type) {
  Invocation made;
  if (media_type.empty() || media_type == "application/json") {
    made.document = of_json(body);
  } else if (is_json_lines(media_type)) {
    made = {.document = of_lines(body), .is_lines = true};
  } else if (media_type == "text/csv") {
    made.document = of_csv(body);
  } else if (media_type == "text/plain") {
    made.document = of_text(body);
  } else {
    throw HttpError(415,
                    cat("the content type \"", media_type,
                        "\" is not supported; use application/json, application/jsonlines, text/csv or text/plain"));
  }
  if (made.document["inputs"].is_null()) throw DataError(cat(kWhere, ": /inputs: is missing"));
  if (made.is_list() && made.document["inputs"].empty())
    throw DataError(cat(kWhere, ": /inputs: must have at least one input"));
  return made;
}

AnswerBody write_answer(const json& answer, const std::string& accept) {
  const Preferences wanted(accept);
  const double as_lines = wanted.of_json_lines(), as_json = wanted.of("application/json"),
               as_csv = wanted.of("text/csv");
  const double best = std::max({as_lines, as_json, as_csv});
  if (best == 0)
    throw HttpError(
        406, cat("the answer cannot be \"", accept, "\"; accept application/json, application/jsonlines or text/csv"));
  if (as_lines == best) {
    std::string lines;
    if (answer.is_array())
      for (const json& one : answer) lines += dumped(one) + '\n';
    else
      lines = dumped(answer) + '\n';
    return {"application/jsonlines", lines};
  }
  if (as_json == best) return {"application/json", dumped(answer)};
  return {"text/csv", CsvRows(answer).text()};
}

}  // namespace shardline
