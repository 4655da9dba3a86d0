#include "engine/tasks/completions.h"

#include <cmath>

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::completions_test {
namespace {

using Catch::Contains;
using nlohmann::json;
using Ids = std::vector<int32_t>;

constexpr int32_t kNone = kNoLabel;

RowExamples encode(const TokenizerPtr& tokenizer, int length, const std::string& prompt,
                   const std::string& completion) {
  Config config;
  config.data.sequence_length = length;
  return completions(config, tokenizer)->encode({{{"prompt", prompt}, {"completion", completion}}, "a.jsonl:3"}, true);
}

}  // namespace

TEST_CASE("completions: a token is predicted if it belongs to the completion") {
  const TokenizerPtr bytes = load_tokenizer("bytes");
  const RowExamples made = encode(bytes, 8, "ab", "cd");
  REQUIRE(made.examples.size() == 1);
  CHECK(made.examples[0].ids == Ids{'a', 'b', 'c', 'd'});
  CHECK(made.examples[0].labels == Ids{kNone, 'c', 'd', kNone});
  CHECK_FALSE(made.shortened);
  const RowExamples cut = encode(bytes, 3, "ab", "cd");
  CHECK(cut.shortened);
  CHECK(cut.examples[0].ids == Ids{'a', 'b', 'c'});
  CHECK(cut.examples[0].labels == Ids{kNone, 'c', kNone});
}

TEST_CASE("completions: with packing, longer rows are cut into pieces") {
  Config config;
  config.data.sequence_length = 3;
  config.data.completion_only_loss = true;
  config.data.packing = Packing::bfd;
  const auto task = completions(config, load_tokenizer("bytes"));
  const auto pieces = [&](const std::string& prompt, const std::string& completion) {
    return task->encode({{{"prompt", prompt}, {"completion", completion}}, "a.jsonl:3"}, true);
  };
  const RowExamples made = pieces("ab", "cdef");
  REQUIRE(made.examples.size() == 2);
  CHECK(made.examples[0].ids == Ids{'a', 'b', 'c'});
  CHECK(made.examples[0].labels == Ids{kNone, 'c', kNone});
  CHECK(made.examples[1].ids == Ids{'d', 'e', 'f'});
  CHECK(made.examples[1].labels == Ids{'e', 'f', kNone});
  CHECK_FALSE(made.shortened);
  const RowExamples late = pieces("abcd", "efg");  // abc, def, g: only the second predicts
  REQUIRE(late.examples.size() == 1);
  CHECK(late.examples[0].ids == Ids{'d', 'e', 'f'});
  CHECK(late.shortened);
  Config unpacked = config;
  unpacked.data.packing = Packing::none;
  CHECK(completions(unpacked, load_tokenizer("bytes"))->settings() != task->settings());
}

TEST_CASE("completions: a row without a predicted token is left out and counted as shortened") {
  const TokenizerPtr bytes = load_tokenizer("bytes");
  for (const auto& [prompt, completion] : std::vector<std::pair<std::string, std::string>>{
           {"abc", "d"}, {"abcde", "f"}, {"ab", ""}, {"", ""}, {"", "a"}}) {
    CAPTURE(prompt, completion);
    const RowExamples made = encode(bytes, 3, prompt, completion);
    CHECK(made.examples.empty());
    CHECK(made.shortened);
  }
  CHECK(encode(bytes, 3, "ab", "cd").examples.size() == 1);
}

TEST_CASE("completions: the end of text is predicted, and so is a token that begins in the prompt") {
  const TempFolder folder;
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<end>": 3},
    "merges": ["a b"]}, "added_tokens": [{"id": 3, "content": "<end>", "special": true, "single_word": false,
    "lstrip": false, "rstrip": false, "normalized": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})");
  folder.write("tokenizer_config.json", R"({"eos_token": "<end>"})");
  const TokenizerPtr tokenizer = load_tokenizer(folder.path().string());
  const Example apart = encode(tokenizer, 9, "b", "a").examples.at(0);
  CHECK(apart.ids == Ids{1, 0, 3});
  CHECK(apart.labels == Ids{0, 3, kNone});
  const Example joined = encode(tokenizer, 9, "ba", "ba<end>").examples.at(0);
  CHECK(joined.ids == Ids{1, 2, 0, 3});
  CHECK(joined.labels == Ids{2, 0, 3, kNone});
}

TEST_CASE("completions: the end of text that the tokenizer adds is predicted") {
  const TempFolder folder;
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<end>": 2}, "merges": []},
    "added_tokens": [{"id": 2, "content": "<end>", "special": true, "single_word": false, "lstrip": false,
    "rstrip": false, "normalized": false}], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": {"type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<end>", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<end>": {"id": "<end>", "ids": [2], "tokens": ["<end>"]}}}})");
  folder.write("tokenizer_config.json", R"({"eos_token": "<end>"})");
  const Example made = encode(load_tokenizer(folder.path().string()), 9, "b", "a").examples.at(0);
  CHECK(made.ids == Ids{1, 0, 2});
  CHECK(made.labels == Ids{0, 2, kNone});
}

TEST_CASE("completions: tokenised rows become samples unchanged, and their labels are predicted") {
  Config config;
  config.data.sequence_length = 4;
  const auto task = completions(config, load_tokenizer("bytes"));
  const auto tokens = [&](const json& columns) { return task->encode({columns, "a.jsonl:3"}, true); };
  const RowExamples made = tokens({{"input_ids", {1, 2, 3, 0}},
                                   {"attention_mask", {1, 1, 1, 0}},
                                   {"labels", {-100, -100, 3, -100}},
                                   {"prompt", "is not read"}});
  REQUIRE(made.examples.size() == 1);
  CHECK(made.examples[0].ids == Ids{1, 2, 3});
  CHECK(made.examples[0].labels == Ids{kNone, 3, kNone});
  CHECK_FALSE(made.shortened);
  CHECK(tokens({{"input_ids", {1, 2, 3}}}).examples.at(0).labels == Ids{2, 3, kNone});
  const RowExamples longer = tokens({{"input_ids", {1, 2, 3, 4, 5}}});
  CHECK(longer.shortened);
  CHECK(longer.examples.at(0).ids == Ids{1, 2, 3, 4});
  const RowExamples none = tokens({{"input_ids", {1, 2}}, {"labels", {-100, -100}}});
  CHECK(none.examples.empty());
  CHECK(none.shortened);
  CHECK_THAT(message_of<DataError>([&] {
               tokens({{"input_ids", {1, 2}}, {"labels", {1, -1}}});
             }),
             Contains("a.jsonl:3: 'labels' must be a list of ids, or -100 for none; got -1"));
}

TEST_CASE("completions: TRL's masks leave out tokens of tokenised rows") {
  const auto task = completions({}, load_tokenizer("bytes"));
  const auto labels = [&](json columns) {
    columns["input_ids"] = {1, 2, 3, 4, 5};
    return task->encode({columns, "a.jsonl:3"}, true).examples.at(0).labels;
  };
  CHECK(labels({{"completion_mask", {0, 0, 1, 1, 1}}}) == Ids{kNone, 3, 4, 5, kNone});
  CHECK(labels({{"assistant_masks", {0, 1, 0, 0, 1}}}) == Ids{2, kNone, kNone, 5, kNone});
  CHECK(labels({{"completion_mask", {0, 1, 1, 1, 0}},
                {"assistant_masks", {1, 1, 0, 1, 1}},
                {"labels", {1, 2, 3, 4, 5}},
                {"attention_mask", {1, 1, 1, 1, 0}}}) == Ids{2, kNone, 4, kNone});
  CHECK_THAT(message_of<DataError>([&] {
               labels({{"completion_mask", {0, 1}}});
             }),
             Contains("a.jsonl:3: 'completion_mask' has 2 elements for 5 in 'input_ids'"));
  CHECK_THAT(message_of<DataError>([&] {
               labels({{"assistant_masks", {0, 1, 2, 0, 0}}});
             }),
             Contains("a.jsonl:3: 'assistant_masks' must be a list of integers from 0 to 1; got 2"));
}

TEST_CASE("completions: positions that restart in a tokenised row begin a new document") {
  Config config;
  config.data.sequence_length = 3;
  const auto task = completions(config, load_tokenizer("bytes"));
  const auto encode = [&](const json& columns) { return task->encode({columns, "a.jsonl:3"}, true); };
  const json tokens = {{"input_ids", {1, 2, 3, 4, 5, 6, 7, 8}}};
  json row = tokens;
  row["position_ids"] = {0, 1, 0, 1, 2, 3, 0, 1};
  const RowExamples made = encode(row);
  REQUIRE(made.examples.size() == 3);
  CHECK(made.examples[0].ids == Ids{1, 2});
  CHECK(made.examples[0].labels == Ids{2, kNone});
  CHECK(made.examples[1].ids == Ids{3, 4, 5});  // cut off
  CHECK(made.examples[2].ids == Ids{7, 8});
  CHECK(made.shortened);
  row["position_ids"] = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(encode(row).examples.size() == 1);
  row["token_type_ids"] = {0, 0, 0, 0, 0, 0, 0, 0};
  CHECK_NOTHROW(encode(row));
  row["token_type_ids"][3] = 1;
  CHECK_THAT(message_of<DataError>([&] { encode(row); }), Contains("a.jsonl:3: 'token_type_ids' has the type 1"));
}

TEST_CASE("completions: metrics follow from the loss, and rows need both columns") {
  const auto task = completions({}, load_tokenizer("bytes"));
  CHECK_FALSE(task->uses_predictions());
  const auto metrics = task->metrics({{}, {}, {}, std::log(3.0)});
  REQUIRE(metrics.size() == 1);
  CHECK(metrics[0].first == "perplexity");
  CHECK(metrics[0].second == Approx(3));
  CHECK_THAT(message_of<DataError>([&] {
               task->encode({{{"prompt", "a"}}, "a.jsonl:3"}, true);
             }),
             Contains("a.jsonl:3: has no 'completion', only {prompt}; set data.completion_only_loss"));
}

}  // namespace shardline::completions_test
