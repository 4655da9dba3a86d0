#include "engine/data/dataset/batch_source.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::batch_source_test {

using Catch::Contains;
using Samples = std::vector<int64_t>;

namespace {

// Bytes 0, 1, 2, ... as tokens.
TokenCachePtr counting_tokens(const TempFolder& folder, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>(1 + i);
  TokenDataOptions options;
  options.paths = {folder.write("a.txt", text)};
  options.tokenizer = load_tokenizer("bytes");
  options.vocab_size = 256;
  options.cache_folder = folder.path();
  return open_token_cache(prepare_token_cache(options));
}

// Each part is a list of its own.
std::vector<Samples> sample(const TextDataset& data, int64_t index) {
  std::vector<Samples> parts;
  for (const Range& part : data.parts(index)) {
    parts.emplace_back(part.length);
    data.cache().read(part.begin, part.length, parts.back().data());
  }
  return parts;
}

TextDataset blocks(const TokenCachePtr& tokens, int64_t length) {
  return {tokens, Packing::wrapped, length, text_units(*tokens, Packing::wrapped, length)};
}

// Documents with these lengths, whose tokens are 1, 2, ...
TokenCachePtr counting_documents(const TempFolder& folder, const std::vector<int>& lengths) {
  TokenDataOptions options;
  int next = 1;
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::string text;
    for (int k = 0; k < lengths[i]; ++k) text += static_cast<char>(next++);
    options.paths.push_back(folder.write(std::to_string(i) + ".txt", text));
  }
  options.tokenizer = load_tokenizer("bytes");
  options.vocab_size = 256;
  options.cache_folder = folder.path();
  return open_token_cache(prepare_token_cache(options));
}

TextDataset documents(const TokenCachePtr& tokens, Packing packing, int64_t length) {
  return {tokens, packing, length, text_units(*tokens, packing, length)};
}

Samples epoch_of(SampleOrder& order, int64_t epoch) {
  Samples all;
  for (int64_t k = 0; k < order.batches_per_epoch(); ++k) {
    const Samples batch = order.samples_of_batch(epoch, k);
    CHECK(static_cast<int64_t>(batch.size()) == order.samples_in_batch(k));
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

}  // namespace

TEST_CASE("blocks are adjacent, and the tokens left over are counted") {
  const TempFolder folder;
  const TextDataset data = blocks(counting_tokens(folder, 22), 4);
  CHECK(data.size() == 5);
  CHECK(data.dropped_tokens() == 2);
  CHECK(sample(data, 0) == std::vector<Samples>{{1, 2, 3, 4}});
  CHECK(sample(data, 4) == std::vector<Samples>{{17, 18, 19, 20}});
  CHECK_THROWS_AS(sample(data, 5), InvariantError);
  CHECK_THAT(message_of<DataError>([&] { blocks(counting_tokens(folder, 22), 23); }),
             Contains("22 tokens") && Contains("23"));
}

TEST_CASE("if attention stays within documents, blocks are divided at the ends of documents") {
  const TempFolder folder;
  const auto tokens = counting_documents(folder, {3, 1, 6, 2, 5});
  const TextDataset data = documents(tokens, Packing::wrapped_reset, 4);
  CHECK(data.size() == 4);
  CHECK(sample(data, 0) == std::vector<Samples>{{1, 2, 3}, {4}});
  CHECK(sample(data, 1) == std::vector<Samples>{{5, 6, 7, 8}});
  CHECK(sample(data, 2) == std::vector<Samples>{{9, 10}, {11, 12}});
  CHECK(sample(data, 3) == std::vector<Samples>{{13, 14, 15, 16}});
  CHECK(data.dropped_tokens() == 1);
  DatasetSource source(data, {.global_batch = 4, .shuffle = false});
  const Batch batch = source.batch(0, {0, 3});
  CHECK(batch.tokens == 16);
  CHECK(batch.weight == 2 + 0 + 3 + 1 + 1 + 3);
  CHECK(batch.sample_ends == Samples{2, 3, 5});
  CHECK(batch.rows.ends == Samples{3, 4, 8, 10, 12});
  CHECK(at::equal(batch.rows.labels, at::tensor({2, 3, -100, -100, 6, 7, 8, -100, 10, -100, 12, -100}, at::kLong)));
  CHECK(at::equal(batch.rows.positions, at::tensor({0, 1, 2, 0, 0, 1, 2, 3, 0, 1, 0, 1}, at::kLong)));
  CHECK(at::equal(batch.rows.places, at::tensor({0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, at::kLong)));
  CHECK(at::equal(batch.rows.segment_places, at::tensor({0, 3, 0, 0, 2}, at::kLong)));
  CHECK_FALSE(batch.rows.is_rectangular);
  CHECK(source.batch(0, {1, 1}).rows.is_rectangular);  // one whole document
}

TEST_CASE("whole documents are packed, longer ones are cut into pieces, and single tokens are left out") {
  const TempFolder folder;
  const auto tokens = counting_documents(folder, {3, 1, 9, 2, 2, 4});
  const TextDataset data = documents(tokens, Packing::bfd, 5);
  // Pieces of 3, 5, 4, 2, 2 and 4 tokens: 5 | 4 | 4 | 3 + 2 | 2, in the order of their first pieces.
  REQUIRE(data.size() == 5);
  CHECK(sample(data, 0) == std::vector<Samples>{{1, 2, 3}, {14, 15}});
  CHECK(sample(data, 1) == std::vector<Samples>{{5, 6, 7, 8, 9}});
  CHECK(sample(data, 2) == std::vector<Samples>{{10, 11, 12, 13}});
  CHECK(sample(data, 3) == std::vector<Samples>{{16, 17}});
  CHECK(sample(data, 4) == std::vector<Samples>{{18, 19, 20, 21}});
  CHECK(data.dropped_tokens() == 0);
  CHECK(data.tokens(0) == 5);
  CHECK_THAT(data.describe(), Contains("5 samples of up to 5 tokens, packed from 5 documents of 20 tokens"));
  const TextDataset of_four = documents(tokens, Packing::bfd, 4);
  CHECK(of_four.dropped_tokens() == 1);  // the last token of the document of nine
}

TEST_CASE("without packing each document is a sample and may be cut off") {
  const TempFolder folder;
  const auto tokens = counting_documents(folder, {3, 1, 9, 2});
  const TextDataset data = documents(tokens, Packing::none, 5);
  REQUIRE(data.size() == 3);
  CHECK(sample(data, 0) == std::vector<Samples>{{1, 2, 3}});
  CHECK(sample(data, 1) == std::vector<Samples>{{5, 6, 7, 8, 9}});
  CHECK(sample(data, 2) == std::vector<Samples>{{14, 15}});
  CHECK(data.dropped_tokens() == 4);
  CHECK_THAT(message_of<DataError>([&] {
               text_units(*counting_documents(folder, {1, 1}), Packing::none, 5);
             }),
             Contains("2 tokens in 2 documents, none"));
  CHECK_THAT(message_of<DataError>([&] { text_units(*counting_documents(folder, {1}), Packing::none, 5); }),
             Contains("1 token in 1 document, none"));
}

TEST_CASE("packing, split and order are part of the digest") {
  const TempFolder folder;
  const auto tokens = counting_documents(folder, {3, 7, 9, 2});
  std::set<std::string> digests;
  for (const Packing packing : {Packing::wrapped, Packing::wrapped_reset, Packing::bfd})
    digests.insert(documents(tokens, packing, 3).digest());
  const Selection all = text_units(*tokens, Packing::bfd, 3);
  digests.insert(TextDataset(tokens, Packing::bfd, 3, all.at_most(2, std::nullopt)).digest());
  digests.insert(TextDataset(tokens, Packing::bfd, 3, Selection(std::vector<uint32_t>{0, 2})).digest());
  CHECK(digests.size() == 5);
}

TEST_CASE("validation is the first part of the blocks") {
  const TempFolder folder;
  const auto tokens = counting_tokens(folder, 20);
  const Selection all = text_units(*tokens, Packing::wrapped, 2);
  const auto [held_out, rest] = all.divided(count_held_out(all.size(), 25), std::nullopt);
  const TextDataset validation(tokens, Packing::wrapped, 2, held_out), train(tokens, Packing::wrapped, 2, rest);
  CHECK(validation.size() == 3);
  CHECK(train.size() == 7);
  CHECK(sample(validation, 0) == std::vector<Samples>{{1, 2}});
  CHECK(sample(train, 0) == std::vector<Samples>{{7, 8}});
  CHECK(sample(train, 6) == std::vector<Samples>{{19, 20}});
  CHECK_THAT(message_of<DataError>([&] { count_held_out(10, 1); }), Contains("1 %") && Contains("10 samples"));
  CHECK_THAT(message_of<DataError>([&] { count_held_out(10, 100); }), Contains("0 for training"));
}

TEST_CASE("file order: batch k holds blocks k*B to (k+1)*B-1") {
  SampleOrder order({.samples = 10, .global_batch = 4, .shuffle = false});
  CHECK(order.batches_per_epoch() == 3);
  CHECK(order.samples_of_batch(5, 1) == Samples{4, 5, 6, 7});
  CHECK(order.samples_of_batch(0, 2) == Samples{8, 9});
  SampleOrder whole({.samples = 10, .global_batch = 4, .shuffle = false, .drop_last = true});
  CHECK(whole.batches_per_epoch() == 2);
  CHECK_THAT(message_of<DataError>([] { SampleOrder({.samples = 3, .global_batch = 4, .drop_last = true}); }),
             Contains("3 samples") && Contains("4"));
}

TEST_CASE("a shuffled epoch holds every sample once and depends on seed and epoch only") {
  SampleOrder order({.samples = 1000, .global_batch = 64, .seed = 42});
  const Samples first = epoch_of(order, 0);
  CHECK(std::set<int64_t>(first.begin(), first.end()).size() == 1000);
  const Samples second = epoch_of(order, 1);
  CHECK(first != second);
  CHECK(epoch_of(order, 0) == first);

  SampleOrder other_batch({.samples = 1000, .global_batch = 7, .seed = 42});
  CHECK(epoch_of(other_batch, 1) == second);
  SampleOrder other_seed({.samples = 1000, .global_batch = 64, .seed = 43});
  CHECK(epoch_of(other_seed, 0) != first);
  CHECK(epoch_of(other_seed, 1) != second);
  SampleOrder swapped({.samples = 1000, .global_batch = 64, .seed = 1});
  SampleOrder swapped_back({.samples = 1000, .global_batch = 64, .seed = 2});
  CHECK(epoch_of(swapped, 2) != epoch_of(swapped_back, 1));
}

TEST_CASE("the shuffle is the same on every machine") {
  SampleOrder order({.samples = 10, .global_batch = 10, .seed = 42});
  CHECK(order.samples_of_batch(0, 0) == Samples{3, 4, 2, 1, 7, 8, 9, 5, 6, 0});
  CHECK(order.samples_of_batch(1, 0) == Samples{8, 0, 6, 9, 3, 1, 5, 7, 4, 2});
}

TEST_CASE("every sample appears at every position about equally often") {
  constexpr int kSamples = 6;
  constexpr int kEpochs = 6000;
  int counts[kSamples][kSamples] = {};
  SampleOrder order({.samples = kSamples, .global_batch = kSamples, .seed = 7});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Samples batch = order.samples_of_batch(epoch, 0);
    for (int place = 0; place < kSamples; ++place) ++counts[place][batch[place]];
  }
  const double expected = static_cast<double>(kEpochs) / kSamples;
  for (const auto& row : counts) {
    for (const int count : row) CHECK(std::abs(count - expected) < 5 * std::sqrt(expected));
  }
}

TEST_CASE("dataset source: the slices of all replicas make up the global batch") {
  const TempFolder folder;
  DatasetSource source(blocks(counting_tokens(folder, 40), 4), {.global_batch = 4, .shuffle = false});
  CHECK(source.steps_per_epoch() == 3);
  const Batch whole = source.batch(0, {0, 4});
  CHECK(at::equal(whole.rows.ids, at::arange(1, 17, at::kLong)));
  CHECK(whole.rows.ends == Samples{4, 8, 12, 16});
  CHECK(at::equal(whole.rows.labels.slice(0, 0, 4), at::tensor({2, 3, 4, -100}, at::kLong)));
  CHECK(whole.tokens == 4 * 4);
  CHECK(whole.weight == 4 * 3);
  CHECK(whole.epoch == Approx(1.0 / 3));

  const Batch half = source.batch(0, {2, 2});
  CHECK(at::equal(half.rows.ids, whole.rows.ids.slice(0, 8)));
  CHECK(at::equal(half.rows.segment_samples, at::tensor({2, 3}, at::kLong)));
  CHECK(half.sample_index == Samples{2, 3});
  CHECK(half.first_sample == 2);
  CHECK(half.global_samples == 4);
  CHECK(half.weight == 12);
}

TEST_CASE("dataset source: a short batch has smaller or empty slices, and its own weight") {
  const TempFolder folder;
  DatasetSource source(blocks(counting_tokens(folder, 20), 2), {.global_batch = 4, .shuffle = false});
  CHECK(source.samples_in_step(1) == 4);
  CHECK(source.samples_in_step(2) == 2);
  CHECK(source.samples_in_step(5) == 2);
  const Batch second = source.batch(2, {1, 2});
  CHECK(second.sample_index == Samples{9});
  CHECK(second.weight == 2);
  CHECK(second.epoch == Approx(1.0));
  const Batch third = source.batch(5, {2, 2});
  CHECK(third.rows.tokens() == 0);
  CHECK(third.tokens == 4);
  CHECK(third.weight == 2);
  CHECK(third.epoch == Approx(2.0));
}

TEST_CASE("dataset source: steps continue over epochs, each with another order") {
  const TempFolder folder;
  DatasetSource source(blocks(counting_tokens(folder, 200), 2), {.global_batch = 100, .seed = 1});
  const Batch first = source.batch(0, {0, 100});
  const Batch second = source.batch(1, {0, 100});
  CHECK(first.sample_index != second.sample_index);
  CHECK(at::equal(source.batch(0, {0, 100}).rows.ids, first.rows.ids));  // backward, as after a resume
  for (int64_t row = 0; row < 100; ++row)
    CHECK(first.rows.ids[2 * row].item<int64_t>() == 1 + 2 * first.sample_index[row]);
}

TEST_CASE("a fed source returns the batches that were pushed, step by step") {
  FedSource source;
  const at::Tensor ids = at::arange(6, at::kLong).view({2, 3});
  const at::Tensor labels = at::tensor({5, -100, 7, -100, -100, -100}, at::kLong).view({2, 3});
  source.push(ids);
  source.push(ids.add(10), labels);
  CHECK(source.samples_in_step(0) == 2);
  CHECK(at::equal(source.batch(0, {1, 1}).rows.ids, ids[1]));
  CHECK(source.batch(0, {0, 2}).weight == 4);
  const Batch second = source.batch(1, {0, 2});
  CHECK(at::equal(second.rows.ids, ids.add(10).view({-1})));
  CHECK(at::equal(second.rows.labels, at::tensor({-100, 7, -100, -100, -100, -100}, at::kLong)));
  CHECK(second.tokens == 6);
  CHECK(second.weight == 1);  // nothing predicts the first label of a row
  CHECK_THAT(message_of<RunError>([&] { source.batch(2, {0, 1}); }), Contains("step 2"));
  CHECK_THAT(message_of<RunError>([&] { source.batch(0, {0, 1}); }), Contains("step 0"));
  CHECK_THAT(message_of<ConfigError>([&] { source.push(ids.to(at::kFloat)); }), Contains("int64"));
  CHECK_THAT(message_of<ConfigError>([&] { source.push(ids, labels.view({3, 2})); }), Contains("same shape"));
}

}  // namespace shardline::batch_source_test
