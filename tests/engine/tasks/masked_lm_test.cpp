#include "engine/tasks/masked_lm.h"

#include <ATen/ops/tensor.h>

#include <cmath>

#include "core/error.h"
#include "tensor_parallel/ops/cross_entropy.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::masked_lm_test {
namespace {

using Catch::Contains;
using nlohmann::json;

// Ids: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 [MASK], 5 a, 6 ##b, 7 ##c, 8 d
constexpr const char* kVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n##c\nd\n";
constexpr int32_t kNone = kNoLabel;

struct Task {
  explicit Task(const std::function<void(DataOptions&)>& change = [](DataOptions&) {}) {
    folder.write("vocab.txt", kVocabulary);
    tokenizer = load_tokenizer(folder.path().string());
    Config config;
    config.data.sequence_length = 6;
    change(config.data);
    task = masked_lm(config, tokenizer);
  }
  RowExamples encode(const std::string& text, bool labelled = true) const {
    return task->encode({{{"text", text}}, "a.txt:7"}, labelled);
  }

  TempFolder folder;
  TokenizerPtr tokenizer;
  std::unique_ptr<LabelledTask> task;
};

void by_line(DataOptions& data) {
  data.line_by_line = true;
  data.whole_word_mask = true;
}

using Ids = std::vector<int32_t>;

}  // namespace

TEST_CASE("masked-lm: every token but the special ones can be hidden") {
  const Task lines(by_line);
  CHECK(lines.task->chunk() == 0);
  const RowExamples made = lines.encode("abc d");
  REQUIRE(made.examples.size() == 1);
  CHECK(made.examples[0].ids == Ids{2, 5, 6, 7, 8, 3});
  CHECK(made.examples[0].labels == Ids{kNone, 5, 6, 7, 8, kNone});
  CHECK(made.examples[0].continues == std::vector<uint8_t>{0, 0, 1, 1, 0, 0});
  CHECK_FALSE(made.shortened);
  const RowExamples longer = lines.encode("abc d d d");
  CHECK(longer.shortened);
  CHECK(longer.examples[0].ids == Ids{2, 5, 6, 7, 8, 3});
  CHECK(lines.encode(" ").examples.empty());
  const MaskingRule rule = *lines.task->masking();
  CHECK(rule.mask_token == 4);
  CHECK(rule.words == 9);
  CHECK(rule.whole_words);
}

TEST_CASE("masked-lm: joined texts are not cut, and blank lines have their special tokens") {
  const Task joined;
  CHECK(joined.task->chunk() == 6);
  CHECK(joined.encode("abc d d d").examples[0].ids == Ids{2, 5, 6, 7, 8, 8, 8, 3});
  CHECK(joined.encode("").examples[0].ids == Ids{2, 3});
  CHECK(joined.encode("d").examples[0].continues.empty());
}

TEST_CASE("masked-lm: in tokenised rows, tokens that are not special and have a label can be masked") {
  const Task joined;
  const auto tokens = [](const Task& task, const json& columns, bool labelled = true) {
    return task.task->encode({columns, "a.jsonl:7"}, labelled);
  };
  const auto made =
      tokens(joined, {{"input_ids", {2, 5, 6, 8, 1, 3, 0, 0}}, {"attention_mask", {1, 1, 1, 1, 1, 1, 0, 0}}});
  REQUIRE(made.examples.size() == 1);
  CHECK(made.examples[0].ids == Ids{2, 5, 6, 8, 1, 3});
  CHECK(made.examples[0].labels == Ids{kNone, 5, 6, 8, kNone, kNone});
  CHECK(made.examples[0].types.size() == 6);
  const auto marked = tokens(joined, {{"input_ids", {2, 5, 1, 3}}, {"special_tokens_mask", {1, 0, 0, 1}}});
  CHECK(marked.examples.at(0).labels == Ids{kNone, 5, 1, kNone});
  for (const json& mask : {json{true, false, false, true}, json{1, 0, nullptr, 1}})  // neither is a list of 0 and 1
    CHECK_THAT(message_of<DataError>([&] {
                 tokens(joined, {{"input_ids", {2, 5, 1, 3}}, {"special_tokens_mask", mask}});
               }),
               Contains("a.jsonl:7: 'special_tokens_mask' must be a list of integers from 0 to 1"));
  const auto unmarked =
      tokens(joined, {{"input_ids", {2, 5, 1, 3}}, {"special_tokens_mask", nullptr}, {"labels", nullptr}});
  CHECK(unmarked.examples.at(0).labels == Ids{kNone, 5, kNone, kNone});
  const auto labelled = tokens(joined, {{"input_ids", {2, 5, 6, 3}}, {"labels", {2, 5, -100, 3}}});
  CHECK(labelled.examples.at(0).labels == Ids{kNone, 5, kNone, kNone});
  CHECK_THAT(message_of<DataError>([&] {
               tokens(joined, {{"input_ids", {2, 4, 3}}, {"labels", {-100, 5, -100}}});
             }),
             Contains("a.jsonl:7: 'labels' has 5 where 'input_ids' has 4; leave out 'labels'"));
  CHECK(tokens(joined, {{"input_ids", {5, 5, 5, 5, 5, 5, 5}}}).examples.size() == 1);  // it is cut with the others

  const auto predicted = tokens(joined, {{"input_ids", {2, 4, 8, 3}}}, /*labelled=*/false);
  CHECK(predicted.examples.at(0).labels == Ids{kNone, 4, kNone, kNone});
  CHECK_THAT(message_of<DataError>([&] {
               tokens(joined, {{"input_ids", {2, 3}}}, false);
             }),
             Contains("a.jsonl:7: 'input_ids' has no [MASK]"));
  const Task lines([](DataOptions& data) { data.line_by_line = true; });
  CHECK_THAT(message_of<DataError>([&] {
               tokens(lines, {{"input_ids", {5, 5, 5, 5, 5, 5, 5}}});
             }),
             Contains("has 7 tokens, more than a sample of 6"));
  CHECK_THAT(message_of<DataError>([&] {
               tokens(Task(by_line), {{"input_ids", {5}}});
             }),
             Contains("do not show where words begin, which whole_word_mask needs"));
}

TEST_CASE("masked-lm: predictions contain the best words for each mask, and the text with them") {
  const Task task;
  const RowExamples made = task.encode("a [MASK] d [MASK]", /*labelled=*/false);
  REQUIRE(made.examples.size() == 1);
  CHECK(made.examples[0].labels == Ids{kNone, kNone, 4, kNone, 4, kNone});
  CHECK_THAT(message_of<DataError>([&] { task.encode("a d", false); }),
             Contains("a.txt:7") && Contains("has no [MASK];"));
  CHECK_THAT(message_of<DataError>([&] { task.encode("d d d d d [MASK]", false); }),
             Contains("has no [MASK] in the 6 tokens that remain of it"));

  ExampleWriter writer(task.task->shape());
  writer.add(made.examples[0]);
  const auto path = task.folder.path() / "set.bin";
  writer.write(path, std::string(32, '7'), {.rows = 1});
  const Examples range{std::make_shared<const ExampleSet>(path), Selection(0, 1)};
  const double none = -INFINITY, half = std::log(0.5);
  const at::Tensor best = at::tensor(
      std::vector<double>{8, 5, 0, 0, 0, half, std::log(0.25), none, none, none, 5, 8, 7, 6, 4, half, -2, -3, -4, -5});
  std::vector<json> predictions;
  task.task->predictions({range, best.view({2, 2 * kBestWords}), {}},
                         [&](const json& one) { predictions.push_back(one); });
  REQUIRE(predictions.size() == 1);
  CHECK(predictions[0].at("text") == "a d d a");
  const json& masks = predictions[0].at("masks");
  REQUIRE(masks.size() == 2);
  CHECK(masks[0].at("words") == json{"d", "a"});
  CHECK(masks[0].at("scores")[0].get<double>() == Approx(0.5));
  CHECK(masks[1].at("words").size() == kBestWords);
}

TEST_CASE("masked-lm: metrics count the masked tokens of an evaluation") {
  const Task task([](DataOptions& data) { data.mlm_probability = 0.5; });
  ExampleWriter writer(task.task->shape());
  for (int i = 0; i < 20; ++i) writer.add(task.encode("abc d d d d").examples[0]);
  const auto path = task.folder.path() / "set.bin";
  writer.write(path, std::string(32, '7'), {.rows = 20});
  const Examples range{std::make_shared<const ExampleSet>(path), Selection(3, 10)};
  std::vector<double> best;
  int64_t right = 0, all = 0;
  for (int64_t i = 3; i < 13; ++i)
    for (const auto& token : TokenMasking(*task.task->masking(), kEvaluationMaskSeed).tokens_of(*range.set, i, 0)) {
      best.resize(2 * kBestWords * ++all);
      best[2 * kBestWords * (all - 1)] = 8;
      right += range.set->ids(i)[token.place] == 8;
    }
  const auto metrics =
      task.task->metrics({range, at::tensor(best, at::kDouble).view({all, 2 * kBestWords}), {}, std::log(7.0)});
  REQUIRE(metrics.size() == 2);
  CHECK(metrics[0].first == "perplexity");
  CHECK(metrics[0].second == Approx(7));
  CHECK(metrics[1] == std::pair<std::string, double>("accuracy", 1.0 * right / all));
}

TEST_CASE("masked-lm: a tokenizer without a mask token is refused") {
  CHECK_THAT(message_of<ConfigError>([] { masked_lm({}, load_tokenizer("bytes")); }), Contains("has no mask token"));
}

}  // namespace shardline::masked_lm_test
