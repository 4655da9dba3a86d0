#include "engine/data/source/tokenised_row.h"

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::tokenised_row_test {
namespace {

using Catch::Contains;
using nlohmann::json;

std::string error_of(const json& columns, int64_t most = 9) {
  return message_of<DataError>([&] { tokenised_row({columns, "a.jsonl:3"}, most); });
}

}  // namespace

TEST_CASE("tokens that attention_mask leaves out are dropped from all columns of a tokenised row") {
  const DataRow row{{{"input_ids", {0, 7, 8, 0, 9}},
                     {"attention_mask", {0, 1, 1, 0, 1}},
                     {"token_type_ids", {0, 0, 1, 0, 1}},
                     {"labels", {"a", "b", "c", "d", "e"}},
                     {"text", "is not read"}},
                    "a.jsonl:3"};
  const auto tokens = tokenised_row(row, 3);
  REQUIRE(tokens);
  CHECK(tokens->ids == std::vector<int32_t>{7, 8, 9});
  CHECK(tokens->types == std::vector<uint8_t>{0, 1, 1});
  CHECK(tokens->places == std::vector<int64_t>{1, 2, 4});
  CHECK(tokens->length == 5);
  CHECK(values_of_tokens(row, *tokens, "labels") == std::vector<json>{"b", "c", "e"});
  CHECK_FALSE(tokenised_row({{{"text", "x"}}, "a.jsonl:1"}));
  CHECK(tokenised_row({{{"input_ids", json::array()}}, "a.jsonl:1"})->ids.empty());
  CHECK(tokenised_row({{{"input_ids", {5}}}, "a.jsonl:1"})->types.empty());
}

TEST_CASE("null stands for a column that a row does not have, as in Parquet files with rows of both kinds") {
  const DataRow text{{{"input_ids", nullptr}, {"attention_mask", nullptr}, {"text", "x"}}, "a.parquet, row 1"};
  CHECK_FALSE(is_tokenised(text));
  CHECK_FALSE(tokenised_row(text));
  const DataRow row{{{"input_ids", {7, 8}},
                     {"attention_mask", nullptr},
                     {"token_type_ids", nullptr},
                     {"position_ids", nullptr},
                     {"completion_mask", nullptr},
                     {"text", nullptr}},
                    "a.parquet, row 2"};
  const auto tokens = tokenised_row(row);
  REQUIRE(tokens);
  CHECK(tokens->ids == std::vector<int32_t>{7, 8});
  CHECK(tokens->types.empty());
  CHECK(predicted_tokens(row, *tokens) == std::vector<bool>{true, true});
  CHECK_THAT(error_of({{"input_ids", {7, nullptr}}}), Contains("integers from 0 to 2147483647; got null"));
}

TEST_CASE("columns of a tokenised row that do not match are refused, and the error gives their names and the row") {
  CHECK_THAT(error_of({{"input_ids", "[1, 2]"}}), Contains("a.jsonl:3: 'input_ids' must be a list, but is string"));
  for (const json& id : {json(-1), json(1.0), json("7"), json(true), json(2147483648), json(18446744073709551615u)})
    CHECK_THAT(error_of({{"input_ids", {3, id}}}),
               Contains("'input_ids' must be a list of integers from 0 to 2147483647; got " + id.dump()));
  CHECK_THAT(error_of({{"input_ids", {3, 4}}, {"attention_mask", {1}}}),
             Contains("'attention_mask' has 1 elements for 2 in 'input_ids'"));
  CHECK_THAT(error_of({{"input_ids", {3}}, {"attention_mask", {2}}}), Contains("integers from 0 to 1; got 2"));
  CHECK_THAT(error_of({{"input_ids", {3}}, {"token_type_ids", {256}}}), Contains("integers from 0 to 255; got 256"));
  CHECK_THAT(error_of({{"input_ids", {3, 4, 5}}}, 2),
             Contains("'input_ids' has 3 tokens, more than a sample of 2; use a larger data.sequence_length"));
  CHECK(error_of({{"input_ids", {3, 4, 5}}, {"attention_mask", {1, 1, 0}}}, 2).empty());
}

TEST_CASE("positions of a tokenised row count from 0 in each document") {
  const auto starts = [](const json& mask, const json& positions) {
    const DataRow row{{{"input_ids", {3, 4, 5, 6}}, {"attention_mask", mask}, {"position_ids", positions}},
                      "a.jsonl:3"};
    return tokenised_documents(row)->starts;
  };
  const json all = {1, 1, 1, 1};
  using Starts = std::vector<int64_t>;
  CHECK(starts(all, {0, 1, 2, 3}) == Starts{});
  CHECK(starts(all, {0, 0, 1, 0}) == Starts{1, 3});
  CHECK(starts({0, 1, 1, 1}, {1, 0, 1, 2}) == Starts{});  // padding on the left
  for (const json& wrong : {json{1, 2, 3, 4}, json{0, 1, 1, 2}, json{0, 1, 3, 4}, json{0, 1, 2.0, "3"}})
    CHECK_THAT(message_of<DataError>([&] { starts(all, wrong); }),
               Contains("a.jsonl:3: 'position_ids' must count 0, 1, 2, ... in each document; got "));
  CHECK_THAT(error_of({{"input_ids", {3, 4}}, {"position_ids", {0}}}), Contains("'position_ids' has 1 elements for 2"));
  CHECK_THAT(error_of({{"input_ids", {3, 4, 5}}, {"position_ids", {0, 1, 0}}}),
             Contains("'position_ids' is 0 again at token 2") && Contains("make a row of each document"));
}

}  // namespace shardline::tokenised_row_test
