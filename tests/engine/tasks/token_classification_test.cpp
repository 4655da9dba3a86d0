#include "engine/tasks/token_classification.h"

#include "engine/data/source/row_file.h"
#include "engine/data/tokenizer/tokenizer.h"

#include "tests/catch.h"

namespace shardline::token_classification_test {
namespace {

using nlohmann::json;

std::vector<int32_t> with_ends(const Tokenizer& tokenizer, std::vector<int32_t> ids) {
  if (const auto cls = tokenizer.special(SpecialToken::cls); cls && tokenizer.id("<s>") == cls) {
    ids.insert(ids.begin(), *cls);
    ids.push_back(*tokenizer.special(SpecialToken::sep));
  }
  return ids;
}

}  // namespace

TEST_CASE("words have the same tokens as inside a text") {
  const std::string golden = std::string(SHARDLINE_SOURCE_DIR) + "/tests/engine/data/golden/";
  for (const char* folder : {"gpt2", "examples/roberta"}) {
    const TokenizerPtr tokenizer = load_tokenizer(golden + folder);
    Config config;
    config.task = kTokenClassification;
    config.data.sequence_length = 64;
    const HeadChoice head{.kind = HeadChoice::Kind::token_classification, .labels = 2, .names = {"B-X", "O"}};
    const auto task = token_classification(config, head, tokenizer);
    DataRow row;
    row.columns = {{"tokens", {"The", "quick", "", "fox's", " tail"}}, {"label", {"O", "O", "O", "B-X", "O"}}};
    const RowExamples made = task->encode(row, /*labelled=*/true);
    INFO(folder);
    REQUIRE(made.examples.size() == 1);
    CHECK(made.examples[0].ids == with_ends(*tokenizer, tokenizer->encode(" The quick fox's tail")));
    const auto tagged = std::ranges::count_if(made.examples[0].labels, [](int32_t label) { return label != kNoLabel; });
    CHECK(tagged == 4);  // the empty word has no token
  }
}

TEST_CASE("words that contain added tokens have a space after these tokens, but not before them") {
  const std::string golden = std::string(SHARDLINE_SOURCE_DIR) + "/tests/engine/data/golden/";
  const TokenizerPtr tokenizer = load_tokenizer(golden + "gpt2");
  Config config;
  config.task = kTokenClassification;
  config.data.sequence_length = 64;
  const HeadChoice head{.kind = HeadChoice::Kind::token_classification, .labels = 2, .names = {"B-X", "O"}};
  const std::string added = "<|endoftext|>";
  DataRow row;
  row.columns = {{"tokens", {added, "fox" + added + "tail", "dog"}}, {"label", {"B-X", "O", "B-X"}}};
  const RowExamples made = token_classification(config, head, tokenizer)->encode(row, /*labelled=*/true);
  REQUIRE(made.examples.size() == 1);
  CHECK(made.examples[0].ids == tokenizer->encode(added + " fox" + added + " tail dog"));
  CHECK(made.examples[0].labels[0] == 0);
  CHECK(made.examples[0].labels[1] == 1);
}

}  // namespace shardline::token_classification_test
