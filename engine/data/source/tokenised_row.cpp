#include "engine/data/source/tokenised_row.h"

#include <utility>

#include "core/error.h"
#include "core/files/json_type.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr const char* kIds = "input_ids";

// A column that the row has, which must be a list with so many elements.
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

}  // namespace

bool is_tokenised(const DataRow& row) {
  return row.columns.contains(kIds);
}

std::optional<TokenisedRow> tokenised_row(const DataRow& row, int64_t most) {
  if (!is_tokenised(row)) return {};
  TokenisedRow tokens{.length = std::ssize(row.columns.at(kIds))};
  const auto list = [&](const char* column) {
    return row.columns.contains(column) ? &list_in(row, column, tokens.length) : nullptr;
  };
  const json &ids = *list(kIds), *mask = list("attention_mask"), *types = list("token_type_ids");
  for (int64_t place = 0; place < tokens.length; ++place) {
    const int64_t id = integer_in(row, kIds, ids[place], std::numeric_limits<int32_t>::max());
    if (mask && integer_in(row, "attention_mask", (*mask)[place], 1) == 0) continue;
    tokens.ids.push_back(id);
    tokens.places.push_back(place);
    if (types)
      tokens.types.push_back(integer_in(row, "token_type_ids", (*types)[place], std::numeric_limits<uint8_t>::max()));
  }
  if (std::cmp_greater(tokens.ids.size(), most))
    throw DataError(cat(row.where, ": '", kIds, "' has ", tokens.ids.size(), " tokens, more than a sample of ", most,
                        "; use a larger data.sequence_length, or shorten the row"));
  return tokens;
}

std::vector<json> values_of_tokens(const DataRow& row, const TokenisedRow& tokens, const std::string& column) {
  const json& list = list_in(row, column, tokens.length);
  std::vector<json> values;
  for (const int64_t place : tokens.places) values.push_back(list[place]);
  return values;
}

}  // namespace shardline
