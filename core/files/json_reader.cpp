#include "core/files/json_reader.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/error.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr std::size_t kDeepest = 64;  // levels of nesting; hand-written files have far fewer

constexpr std::size_t kMostProblems = 100;  // per document; each repeats the path of its key

// Builds the value and detects duplicate keys, which nlohmann's own builder silently accepts.
class StrictBuilder : public nlohmann::json_sax<json> {
 public:
  StrictBuilder(JsonDocument& document, const std::string& text) : document_(document), text_(text) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    key_ = name;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last, const json::exception& error) override {
    const std::size_t end = std::min(position > 0 ? position - 1 : 0, text_.size());
    const auto line = 1 + std::count(text_.begin(), text_.begin() + end, '\n');
    const std::size_t line_start = end == 0 ? std::string::npos : text_.rfind('\n', end - 1);
    const std::size_t column = end - (line_start == std::string::npos ? 0 : line_start + 1) + 1;
    throw ConfigError(cat(document_.file, ":", line, ":", column, ": not JSON: ", reason(error.what()), advice(last)));
  }

 private:
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." -> "syntax error ..."
  static std::string reason(std::string what) {
    if (const auto bracket = what.find("] "); bracket != std::string::npos) what = what.substr(bracket + 2);
    if (what.rfind("parse error at", 0) == 0) what = what.substr(what.find(": ") + 2);
    // The message quotes what was read last. Its beginning is kept, and its end, which states what was expected.
    constexpr std::size_t begin = 160, end = 60;
    if (what.size() > begin + end) what.replace(begin, what.size() - begin - end, "...");
    return what;
  }

  static std::string advice(const std::string& last) {
    if (!last.empty() && last.back() == '/') return "; JSON has no comments: remove them";
    if (!last.empty() && last.back() == '\'') return "; JSON strings need double quotes";
    if (last == "}" || last == "]" || last.ends_with("}") || last.ends_with("]"))
      return "; is there an extra comma before it?";
    return "";
  }

  json* put(const json& value) {
    if (open_.empty()) {
      document_.value = value;
      return &document_.value;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(value);
      return &parent.back();
    }
    const auto old = parent.find(key_);
    if (old != parent.end() && document_.problems.size() < kMostProblems)
      document_.problems.push_back(
          json_mistake(cat(document_.file, ": ", pointer(), "/", json_escaped(key_)), "the key is given twice", nullptr,
                       cat("first ", json_shown(*old), ", then ", json_shown(value), "; keep one")));
    json& slot = parent[key_];
    slot = value;
    return &slot;
  }

  bool add(const json& value) {
    put(value);
    return true;
  }

  bool open(const json& container) {
    if (open_.size() == kDeepest)
      throw ConfigError(cat(document_.file, ": more than ", kDeepest, " levels of nesting below ", pointer()));
    const std::string step =
        open_.empty() ? ""
                      : "/" + (open_.back()->is_array() ? std::to_string(open_.back()->size()) : json_escaped(key_));
    open_.push_back(put(container));
    steps_.push_back(step);
    return true;
  }

  bool close() {
    open_.pop_back();
    steps_.pop_back();
    return true;
  }

  std::string pointer() const {
    std::string all;
    for (const auto& step : steps_) all += step;
    return all;
  }

  JsonDocument& document_;
  const std::string& text_;
  std::string key_;
  std::vector<json*> open_;
  std::vector<std::string> steps_;
};

// Optimal string alignment: insertions, deletions, substitutions and transpositions of neighbours cost 1 each.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

// "--Micro-batch-size" -> "micro_batch_size"
std::string plain_spelling(const std::string& key) {
  std::string plain;
  for (const unsigned char c : key.substr(std::min(key.find_first_not_of('-'), key.size())))
    plain += c == '-' ? '_' : std::tolower(c);
  return plain;
}

std::vector<std::string> words(const JsonType& type) {
  std::vector<std::string> all;
  for (const auto& choice : type.choices) all.push_back(choice.value);
  return all;
}

std::string unknown_key_advice(const std::vector<std::string>& names) {
  if (names.empty() || names.size() > 15) return "remove it";
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : ", ") + name;
  return "the keys here are " + list;
}

}  // namespace

JsonDocument parse_json(const std::string& text, const std::string& file) {
  JsonDocument document;
  document.file = file;
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) throw ConfigError(cat(file, ": the file is empty"));
  StrictBuilder builder(document, text);
  json::sax_parse(text, &builder);
  return document;
}

JsonDocument read_json_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad())
    throw ConfigError(cat(path, ": cannot read this file; check the path, which is relative to the current directory"));
  return parse_json(text, path);
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  const std::string plain = plain_spelling(word);
  for (const auto& candidate : candidates) {
    const std::string other = plain_spelling(candidate);
    const std::size_t least = std::max(plain.size(), other.size()) - std::min(plain.size(), other.size());
    if (least >= best_distance) continue;
    const std::size_t distance = edit_distance(plain, other);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

struct JsonReader::Report {
  const JsonDocument* document;
  JsonHints hints;
  std::vector<std::string> lines;
  std::vector<std::string> pointers;  // of the values in the lines that the reader added

  std::string source_of(const std::string& pointer) const {
    std::string source = document->file;
    for (const auto& [changed, origin] : document->origins)  // the innermost origin comes last
      if (pointer == changed || pointer.rfind(changed + "/", 0) == 0) source = origin;
    return source;
  }
};

JsonReader::JsonReader(const JsonDocument& document, JsonHints hints)
    : JsonReader(std::make_shared<Report>(Report{&document, std::move(hints), document.problems, {}}), "",
                 &document.value) {
  if (!document.value.is_object()) add_problem("", &document.value, "must be an object", "");
}

JsonReader::JsonReader(std::shared_ptr<Report> report, std::string pointer, const json* object)
    : report_(std::move(report)), pointer_(std::move(pointer)), object_(object) {}

bool JsonReader::has(const std::string& key) const {
  return object_ && object_->is_object() && object_->contains(key);
}

const json* JsonReader::peek(const std::string& key) {
  known_.insert(key);
  return has(key) ? &object_->at(key) : nullptr;
}

const json* JsonReader::find(const std::string& key, const JsonType& type) {
  const json* value = peek(key);
  if (!value || (value->is_null() && type.nullable)) return value;
  if (const auto mistake = type.mistake(*value)) {
    fail(key, mistake->rule, mistake->advice);
    return nullptr;
  }
  const auto has_nul = [](const json& text) {
    return text.is_string() && text.get_ref<const std::string&>().find('\0') != std::string::npos;
  };
  if (has_nul(*value) || (value->is_array() && std::any_of(value->begin(), value->end(), has_nul))) {
    fail(key, "must not contain a NUL character", "remove it");
    return nullptr;
  }
  const std::size_t before = report_->lines.size();
  if (!type.choices.empty() && value->is_string()) check_choice(key, type, *value, value->get<std::string>());
  if (!type.choices.empty() && value->is_array())
    for (const auto& word : *value) check_choice(key, type, *value, word.get<std::string>());
  return report_->lines.size() == before ? value : nullptr;
}

void JsonReader::check_choice(const std::string& key, const JsonType& type, const json& value,
                              const std::string& word) {
  const auto takes = [&](const JsonChoice& c) {
    return c.value == word || (c.value.starts_with("*.") && word.ends_with(c.value.substr(1)));
  };
  const auto choice = std::find_if(type.choices.begin(), type.choices.end(), takes);
  if (choice == type.choices.end()) {
    const auto is_meant = [&](const JsonChoice& c) {
      return std::find(c.other_names.begin(), c.other_names.end(), word) != c.other_names.end();
    };
    const auto meant = std::find_if(type.choices.begin(), type.choices.end(), is_meant);
    const std::string near = meant != type.choices.end() ? meant->value : nearest_word(word, words(type));
    fail(key, "must be " + type.describe(), near.empty() ? type.repair(value) : cat("did you mean \"", near, "\"?"));
  } else if (!choice->advice.empty()) {
    fail(key, cat('"', word, "\" is not available"), choice->advice);
  }
}

json JsonReader::value() const {
  return object_ && object_->is_object() ? *object_ : json::object();
}

JsonReader JsonReader::child(const std::string& key) {
  const json* value = find(key, json_object());
  return JsonReader(report_, cat(pointer_, "/", json_escaped(key)), value);
}

void JsonReader::fail(const std::string& key, const std::string& rule, const std::string& advice) {
  add_problem(cat(pointer_, "/", json_escaped(key)), peek(key), rule, advice);
}

void JsonReader::add_problem(const std::string& pointer, const json* value, const std::string& rule,
                             const std::string& advice) {
  report_->pointers.push_back(pointer);
  report_->lines.push_back(
      json_mistake(cat(report_->source_of(pointer), ": ", pointer.empty() ? "/" : pointer), rule, value, advice));
}

bool JsonReader::report_unknown_keys() {
  const std::vector<std::string> names(known_.begin(), known_.end());
  bool any = false;
  const json object = this->value();
  for (const auto& [key, value] : object.items()) {
    if (known_.count(key)) continue;
    any = true;
    const auto hint = report_->hints.find(plain_spelling(key));
    const std::string meant = hint != report_->hints.end() ? hint->second : nearest_word(key, names);
    add_problem(cat(pointer_, "/", json_escaped(key)), &value, "unknown key",
                meant.empty() ? unknown_key_advice(names) : cat("did you mean ", meant, "?"));
  }
  return any;
}

bool JsonReader::clean() const {
  return std::none_of(report_->pointers.begin(), report_->pointers.end(), [&](const std::string& pointer) {
    return pointer == pointer_ || pointer.rfind(pointer_ + "/", 0) == 0;
  });
}

void JsonReader::throw_problems() const {
  if (report_->lines.empty()) return;
  std::string all;
  for (const auto& line : report_->lines) all += (all.empty() ? "" : "\n") + line;
  throw ConfigError(all);
}

}  // namespace shardline
