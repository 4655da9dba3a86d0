#include "engine/serve/answers/request_text.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "engine/tasks/bounded_encoding.h"

namespace shardline {

CutOptions cut_options(const JsonValue& parameters, const ModelFacts& facts) {
  CutOptions options{.most = facts.most_tokens};
  options.cuts = parameters.flag("truncation", false);
  if (options.cuts) options.most = facts.cut_tokens();
  if (const auto most = integer_in(parameters, "max_length", 1)) {
    if (!options.cuts) parameters.at("max_length").fail("has no effect without truncation", "set truncation to true");
    if (*most > facts.most_tokens)
      parameters.at("max_length").fail(cat("must be at most ", facts.most_tokens, ", the model's maximum"));
    options.most = *most;
  }
  return options;
}

void require_bounded(const JsonValue& where, const std::string& text) {
  constexpr size_t kMostBytes = 1 << 20;
  if (text.size() > kMostBytes) where.fail(cat("has ", text.size(), " bytes"), cat("send at most ", kMostBytes));
}

void require_known_ids(const JsonValue& where, const Encoding& encoding, const ModelFacts& facts) {
  for (const int32_t id : encoding.ids)
    if (id >= facts.vocab_size)
      where.fail(cat("contains the token id ", id, ", but the model's vocab_size is ", facts.vocab_size));
}

Encoding read_text(const JsonValue& where, const std::string& text, const std::string* pair, const ModelFacts& facts,
                   const CutOptions& options) {
  require_bounded(where, text);
  if (pair) require_bounded(where, *pair);
  std::optional<TextOrWords> second;
  if (pair) second = std::string_view(*pair);
  BoundedEncoding read;
  try {
    read = encode_at_most(*facts.tokenizer, std::string_view(text), second ? &*second : nullptr, options.most);
  } catch (const DataError& error) {
    where.fail(cat("cannot be encoded: ", error.what()));
  }
  if (read.encoding.size() == 0) where.fail("has no tokens", "send a text that is not empty");
  if (read.is_shortened && !options.cuts)
    where.fail(cat("has more than ", options.most, " tokens, the maximum of the model"), options.advice);
  require_known_ids(where, read.encoding, facts);
  return std::move(read.encoding);
}

Example example_of(const Encoding& encoding) {
  Example example{.ids = encoding.ids};
  example.types.assign(encoding.types.begin(), encoding.types.end());
  return example;
}

void require_few_windows(const JsonValue& where, int64_t windows, const std::string& advice) {
  constexpr int64_t kMost = kMostInputs;
  if (windows > kMost) where.fail(cat("would bring the request to more than ", kMost, " windows"), advice);
}

std::optional<int64_t> integer_in(const JsonValue& parameters, const std::string& key, int minimum) {
  if (!parameters.has(key)) return {};
  return parameters.at(key).integer(minimum);
}

double number_in(const JsonValue& parameters, const std::string& key, double minimum, double maximum, double fallback) {
  if (!parameters.has(key)) return fallback;
  return parameters.at(key).require(json_number(minimum, maximum)).get<double>();
}

void require_parameters_among(const JsonValue& parameters, std::vector<std::string> keys) {
  keys.emplace_back("padding");
  for (const auto& [key, value] : parameters.members()) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    std::string known;
    for (size_t i = 0; i + 1 < keys.size(); ++i) known += (i == 0 ? "" : ", ") + keys[i];
    value.fail("is not a parameter of this task", cat("it takes ", known));
  }
}

}  // namespace shardline
