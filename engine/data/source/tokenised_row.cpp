#include "engine/data/source/tokenised_row.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/files/json_type.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr const char *kIds = "input_ids", *kPositions = "position_ids", *kTypes = "token_type_ids";

// A column that the row has, which must be a list with this many elements.
const json& list_in(const DataRow& row, const std::string& column, int64_t length) {
  const json& list = row.columns.at(column);
  if (!list.is_array()) throw DataError(cat(row.where, ": '", column, "' must be a list, but is ", list.type_name()));
  if (std::cmp_not_equal(list.size(), length))
    throw DataError(cat(row.where, ": '", column, "' has ", list.size(), " elements for ", length, " in '", kIds, "'"));
  return list;
}

int64_t integer_in(const DataRow& row, const char* column, const json& value, int64_t most) {
  const int64_t integer = value.is_number_integer() ? value.get<int64_t>() : -1;
  if (integer >= 0 && integer <= most) return integer;
  throw DataError(
      cat(row.where, ": '", column, "' must be a list of integers from 0 to ", most, "; got ", json_shown(value)));
}

// Where further documents begin. Tokens that attention_mask leaves out may have any positions.
std::vector<int64_t> starts_in(const DataRow& row, const TokenisedRow& tokens) {
  std::vector<int64_t> starts;
  int64_t next = 0;
  const auto positions = values_of_tokens(row, tokens, kPositions);
  for (int64_t token = 0; token < std::ssize(positions); ++token, ++next) {
    if (token > 0 && positions[token] == 0) {
      starts.push_back(token);
      next = 0;
    }
    if (!positions[token].is_number_integer() || positions[token] != next)
      throw DataError(cat(row.where, ": '", kPositions, "' must count 0, 1, 2, ... in each document; got ",
                          json_shown(positions[token]), " where ", next, " was expected; leave the column out"));
  }
  return starts;
}

}  // namespace

bool has_column(const DataRow& row, const std::string& column) {
  const auto found = row.columns.find(column);
  return found != row.columns.end() && !found->is_null();
}

bool is_tokenised(const DataRow& row) {
  return has_column(row, kIds);
}

std::optional<TokenisedRow> tokenised_documents(const DataRow& row) {
  if (!is_tokenised(row)) return {};
  TokenisedRow tokens{.length = std::ssize(row.columns.at(kIds))};
  const auto list = [&](const char* column) {
    return has_column(row, column) ? &list_in(row, column, tokens.length) : nullptr;
  };
  const json &ids = *list(kIds), *mask = list("attention_mask"), *types = list(kTypes);
  for (int64_t place = 0; place < tokens.length; ++place) {
    const int64_t id = integer_in(row, kIds, ids[place], std::numeric_limits<int32_t>::max());
    if (mask && integer_in(row, "attention_mask", (*mask)[place], 1) == 0) continue;
    tokens.ids.push_back(id);
    tokens.places.push_back(place);
    if (types) tokens.types.push_back(integer_in(row, kTypes, (*types)[place], std::numeric_limits<uint8_t>::max()));
  }
  if (has_column(row, kPositions)) tokens.starts = starts_in(row, tokens);
  return tokens;
}

std::optional<TokenisedRow> tokenised_row(const DataRow& row, int64_t most) {
  auto tokens = tokenised_documents(row);
  if (!tokens) return {};
  if (!tokens->starts.empty())
    throw DataError(cat(row.where, ": '", kPositions, "' is 0 again at token ", tokens->starts[0],
                        ", so the row has several documents, which only causal-lm with data.completion_only_loss "
                        "reads; make a row of each document"));
  if (std::cmp_greater(tokens->ids.size(), most))
    throw DataError(cat(row.where, ": '", kIds, "' has ", tokens->ids.size(), " tokens, more than a sample of ", most,
                        "; use a larger data.sequence_length, or shorten the row"));
  return tokens;
}

std::vector<bool> mask_of_tokens(const DataRow& row, const TokenisedRow& tokens, const char* column) {
  std::vector<bool> mask;
  for (const json& value : values_of_tokens(row, tokens, column))
    mask.push_back(integer_in(row, column, value, 1) == 1);
  return mask;
}

std::vector<bool> predicted_tokens(const DataRow& row, const TokenisedRow& tokens) {
  std::vector<bool> predicted(tokens.ids.size(), true);
  for (const char* column : {"completion_mask", "assistant_masks"}) {
    if (!has_column(row, column)) continue;
    const auto mask = mask_of_tokens(row, tokens, column);
    for (size_t token = 0; token < mask.size(); ++token)
      if (!mask[token]) predicted[token] = false;
  }
  return predicted;
}

void refuse_types(const DataRow& row, const TokenisedRow& tokens) {
  const auto type = std::ranges::find_if(tokens.types, [](uint8_t one) { return one != 0; });
  if (type == tokens.types.end()) return;
  throw DataError(cat(row.where, ": '", kTypes, "' has the type ", int{*type},
                      ", whose embedding this model does not add, although transformers adds that of a word; leave the "
                      "column out"));
}

std::vector<json> values_of_tokens(const DataRow& row, const TokenisedRow& tokens, const std::string& column) {
  const json& list = list_in(row, column, tokens.length);
  std::vector<json> values;
  for (const int64_t place : tokens.places) values.push_back(list[place]);
  return values;
}

}  // namespace shardline
