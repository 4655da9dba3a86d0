#include "engine/data/dataset/token_masking.h"

#include <ATen/ops/equal.h>

#include <map>
#include <memory>
#include <set>

#include "engine/data/dataset/example_source.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::token_masking_test {
namespace {

constexpr int32_t kMask = 4, kWords = 50;
constexpr int64_t kExamples = 200, kLength = 64;

// Tokens other than the mask. Every eighth one is special; the others form words, each with as many tokens as the
// number of its example.
std::shared_ptr<const ExampleSet> examples(const TempFolder& folder) {
  ExampleWriter writer({.labels = true, .words = true});
  for (int64_t i = 0; i < kExamples; ++i) {
    Example example{.row = i};
    for (int32_t place = 0; place < kLength; ++place) {
      const bool is_special = place % 8 == 0;
      example.ids.push_back(5 + (place * 7 + i) % (kWords - 5));
      example.labels.push_back(is_special ? kNoLabel : example.ids.back());
      example.continues.push_back(!is_special && place % 8 != 1 && place % (1 + i % 3) != 0);
    }
    writer.add(example);
  }
  const auto path = folder.path() / "set.bin";
  writer.write(path, std::string(32, '7'), {.rows = kExamples});
  return std::make_shared<const ExampleSet>(path);
}

using Masks = std::map<std::pair<int64_t, int64_t>, int32_t>;  // example and place -> what is shown

Masks masks_of(const ExampleSet& set, const MaskingRule& rule, uint64_t seed, int64_t epoch) {
  Masks masks;
  for (int64_t i = 0; i < set.size(); ++i)
    for (const auto& [place, shown] : TokenMasking(rule, seed).tokens_of(set, i, epoch)) masks[{i, place}] = shown;
  return masks;
}

}  // namespace

TEST_CASE("tokens with labels are masked in BERT's proportions, tokens without labels never") {
  const TempFolder folder;
  const auto set = examples(folder);
  const MaskingRule rule{.probability = 0.15, .mask_token = kMask, .words = kWords};
  double hidden = 0, shown_as_mask = 0, kept = 0;
  std::set<int32_t> random;
  constexpr int kEpochs = 40;
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (const auto& [place, shown] : masks_of(*set, rule, 1, epoch)) {
      CHECK(place.second % 8 != 0);
      const int32_t id = set->ids(place.first)[place.second];
      ++hidden;
      if (shown == kMask)
        ++shown_as_mask;
      else if (shown == id)
        ++kept;
      else
        random.insert(shown);
    }
  const double can_be = kEpochs * kExamples * kLength * 7.0 / 8;
  CHECK(hidden / can_be == Approx(0.15).margin(0.003));
  // Some random tokens equal the mask or the original token.
  CHECK(shown_as_mask / hidden == Approx(0.8 + 0.1 / kWords).margin(0.005));
  CHECK(kept / hidden == Approx(0.1 + 0.1 / kWords).margin(0.005));
  CHECK(*random.begin() == 0);
  CHECK(*random.rbegin() == kWords - 1);
  CHECK(random.size() == kWords - 1);
  CHECK(masks_of(*set, {.probability = 1, .mask_token = kMask, .words = kWords}, 1, 0).size() ==
        kExamples * kLength * 7 / 8);
}

TEST_CASE("masks are a function of seed, epoch, example and position") {
  const TempFolder folder;
  const auto set = examples(folder);
  const MaskingRule rule{.mask_token = kMask, .words = kWords};
  const Masks first = masks_of(*set, rule, 1, 0);
  CHECK(first == masks_of(*set, rule, 1, 0));
  CHECK(first != masks_of(*set, rule, 1, 1));
  CHECK(first != masks_of(*set, rule, 2, 0));
  std::set<std::set<int64_t>> different;
  for (int64_t i = 0; i < 50; ++i) {
    std::set<int64_t> places;
    for (const auto& token : TokenMasking(rule, 1).tokens_of(*set, i, 0)) places.insert(token.place);
    different.insert(places);
  }
  CHECK(different.size() == 50);
}

TEST_CASE("the tokens of a word are masked together") {
  const TempFolder folder;
  const auto set = examples(folder);
  const MaskingRule rule{.whole_words = true, .mask_token = kMask, .words = kWords};
  double words = 0, hidden = 0;
  for (int64_t i = 0; i < set->size(); ++i) {
    std::set<int64_t> places;
    for (const auto& [place, shown] : TokenMasking(rule, 1).tokens_of(*set, i, 0)) {
      CHECK(shown == kMask);
      CHECK(place % 8 != 0);
      places.insert(place);
    }
    for (int64_t place = 0; place < kLength; ++place) {
      if (set->labels(i)[place] == kNoLabel) continue;
      if (set->continues(i)[place] != 0) {
        CHECK(places.contains(place) == places.contains(place - 1));
      } else {
        ++words;
        hidden += places.contains(place);
      }
    }
  }
  CHECK(hidden / words == Approx(0.15).margin(0.02));
}

TEST_CASE("an example with labels has at least one masked token, and any token can be the one") {
  const TempFolder folder;
  ExampleWriter writer({.labels = true, .words = true});
  for (int64_t i = 0; i < kExamples; ++i)
    writer.add({.ids = {5, 6, 7, 8}, .labels = {kNoLabel, 6, 7, 8}, .continues = {0, 0, 1, 0}, .row = i});
  writer.add({.ids = {5}, .labels = {kNoLabel}, .continues = {0}, .row = kExamples});
  const auto path = folder.path() / "set.bin";
  writer.write(path, std::string(32, '7'), {.rows = kExamples + 1});
  const ExampleSet set(path);
  for (const bool whole_words : {false, true}) {
    CAPTURE(whole_words);
    const MaskingRule rule{.probability = 1e-6, .whole_words = whole_words, .mask_token = kMask, .words = kWords};
    std::map<std::vector<int64_t>, int> examples_with;  // exactly these places are masked
    for (int64_t i = 0; i < set.size(); ++i) {
      std::vector<int64_t> places;
      for (const auto& token : TokenMasking(rule, 1).tokens_of(set, i, 0)) places.push_back(token.place);
      ++examples_with[places];
    }
    using Places = std::vector<int64_t>;
    const auto all = whole_words ? std::vector<Places>{{}, {1, 2}, {3}} : std::vector<Places>{{}, {1}, {2}, {3}};
    REQUIRE(examples_with.size() == all.size());
    for (const Places& places : all) CHECK(examples_with[places] >= (places.empty() ? 1 : kExamples / 5));
    CHECK(examples_with[{}] == 1);
  }
}

TEST_CASE("the rest of a word that begins in the previous example is masked like a whole word") {
  const TempFolder folder;
  ExampleWriter writer({.labels = true, .words = true});
  for (int64_t i = 0; i < kExamples; ++i)
    writer.add({.ids = {5, 6, 7, 8}, .labels = {5, 6, 7, 8}, .continues = {1, 1, 0, 0}, .row = i});
  const auto path = folder.path() / "set.bin";
  writer.write(path, std::string(32, '7'), {.rows = kExamples});
  const Masks masks = masks_of(ExampleSet(path), {.whole_words = true, .mask_token = kMask, .words = kWords}, 1, 0);
  int64_t hidden = 0;
  for (int64_t i = 0; i < kExamples; ++i) {
    hidden += masks.contains({i, 0});
    CHECK(masks.contains({i, 0}) == masks.contains({i, 1}));
  }
  CHECK(hidden > 0.08 * kExamples);
}

TEST_CASE("a source of masked tokens divides the batch among replicas, and masks other tokens in each epoch") {
  const TempFolder folder;
  const auto set = examples(folder);
  const MaskingRule rule{.mask_token = kMask, .words = kWords};
  ExampleSource source({set, Selection(10, 30)}, {.global_batch = 8, .seed = 3}, {.masking = TokenMasking(rule, 1)});
  for (const int64_t step : {0, 3, 4, 9}) {
    const Batch whole = source.batch(step, {0, 8});
    int64_t weight = 0, row = 0;
    for (size_t i = 0; i < whole.sample_index.size(); ++i) {
      const int64_t example = whole.sample_index[i];
      const auto masked = TokenMasking(rule, 1).tokens_of(*set, example, step / source.steps_per_epoch());
      std::map<int64_t, int32_t> shown;
      for (const auto& token : masked) shown[token.place] = token.shown;
      weight += std::ssize(masked);
      for (int64_t place = 0; place < kLength; ++place, ++row) {
        const int64_t id = set->ids(example)[place];
        CHECK(whole.rows.ids[row].item<int64_t>() == (shown.contains(place) ? shown[place] : id));
        CHECK(whole.rows.labels[row].item<int64_t>() == (shown.contains(place) ? id : kNoLabel));
      }
    }
    CHECK(whole.weight == weight);
    const Batch part = source.batch(step, {2, 3});
    CHECK(part.weight == weight);
    CHECK(at::equal(part.rows.ids, whole.rows.ids.narrow(0, 2 * kLength, 3 * kLength)));
    CHECK(at::equal(part.rows.labels, whole.rows.labels.narrow(0, 2 * kLength, 3 * kLength)));
  }
  ExampleSource plain({set, Selection(10, 30)}, {.global_batch = 8, .shuffle = false},
                      {.masking = TokenMasking(rule, 1)});
  CHECK(plain.steps_per_epoch() == 4);
  CHECK_FALSE(at::equal(plain.batch(0, {0, 8}).rows.labels, plain.batch(4, {0, 8}).rows.labels));
}

}  // namespace shardline::token_masking_test
