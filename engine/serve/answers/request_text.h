// The texts and parameters that requests for different tasks have in common.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/files/json_data.h"
#include "engine/data/examples/example_set.h"
#include "engine/serve/answers/invocation.h"
#include "engine/serve/answers/served_model.h"

namespace shardline {

struct CutOptions {
  bool cuts = false;  // longer texts are cut off; else they are mistakes
  int64_t most = 0;   // tokens
  std::string advice = "send a shorter text, or set parameters.truncation to true to have it cut off";
};
// Determined by the parameters truncation and max_length.
CutOptions cut_options(const JsonValue& parameters, const ModelFacts& facts);

// Throws DataError, which names the input, for a text with so many bytes that its tokens would take too much
// memory.
void require_bounded(const JsonValue& where, const std::string& text);
// Throws DataError for ids that the model does not have.
void require_known_ids(const JsonValue& where, const Encoding& encoding, const ModelFacts& facts);

// Returns the model's input for a text or a pair. Throws DataError, which names the input, for texts that have no
// tokens or too many.
Encoding read_text(const JsonValue& where, const std::string& text, const std::string* pair, const ModelFacts& facts,
                   const CutOptions& options);
Example example_of(const Encoding& encoding);
// Throws DataError, which names the input, if the texts of a request, up to this one, become too many windows.
void require_few_windows(const JsonValue& where, int64_t windows, const std::string& advice);

// Optional parameters. An integer has a lower bound; a number is finite.
std::optional<int64_t> integer_in(const JsonValue& parameters, const std::string& key, int minimum);
double number_in(const JsonValue& parameters, const std::string& key, double minimum, double maximum, double fallback);
// Throws DataError for a parameter that is neither in `keys` nor one without effect here ("padding": rows are not
// padded).
void require_parameters_among(const JsonValue& parameters, std::vector<std::string> keys);

}  // namespace shardline
