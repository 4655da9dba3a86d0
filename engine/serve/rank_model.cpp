#include "engine/serve/rank_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/comm/timeouts.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "engine/data/examples/microbatch_rows.h"
#include "engine/serve/example_batch.h"

namespace shardline {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

json as_json(const std::vector<Example>& examples) {
  json list = json::array();
  for (const Example& example : examples)
    list.push_back({example.ids, example.types, example.labels, example.words.most, example.words.only});
  return list;
}

std::vector<Example> examples_in(const json& list) {
  std::vector<Example> examples;
  for (const json& example : list)
    examples.push_back({.ids = example[0],
                        .types = example[1],
                        .labels = example[2],
                        .words = {.most = example[3], .only = example[4]}});
  return examples;
}

json as_json(const std::vector<SequenceTokens>& tokens, const std::vector<int64_t>& ended) {
  json list = json::array();
  for (const auto& [sequence, ids] : tokens) list.push_back({sequence, ids});
  return {{"tokens", list}, {"ended", ended}};
}

// The next rows of sequences whose first `lengths` tokens are already in the caches.
Microbatch rows_of(const std::vector<SequenceTokens>& tokens, const std::vector<int64_t>& lengths) {
  std::vector<int64_t> ends;
  for (const auto& [sequence, ids] : tokens) ends.push_back((ends.empty() ? 0 : ends.back()) + std::ssize(ids));
  Microbatch rows = rows_of_segments(std::move(ends), 0);
  rows.is_rectangular = false;
  auto* id = rows.ids.mutable_data_ptr<int64_t>();
  auto* position = rows.positions.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < tokens.size(); ++i) {
    for (const int64_t value : tokens[i].ids) {
      *id++ = value;
      *position++ += lengths[i];
    }
    rows.position_count = std::max(rows.position_count, lengths[i] + std::ssize(tokens[i].ids));
  }
  return rows;
}

// The words that one example asked for; other examples in its batch may have asked for more.
Logits words_of_example(const Logits& found, const Example& example) {
  const int64_t most = found.width / 2, own = example.words.most;
  if (own == most) return found;
  Logits words{.width = 2 * own};
  for (int64_t i = 0; i < found.rows(); ++i)
    for (const auto half : {found.row(i).first(most), found.row(i).last(most)})
      words.values.insert(words.values.end(), half.begin(), half.begin() + own);
  return words;
}

}  // namespace

int64_t logits_rows(const Example& example, HeadChoice::Kind head) {
  switch (head) {
    case HeadChoice::Kind::sequence_classification:
      return 1;
    case HeadChoice::Kind::masked_lm:
      return std::ranges::count_if(example.labels, [](int32_t label) { return label != kNoLabel; });
    default:
      return std::ssize(example.ids);
  }
}

// A single rank sends nothing.
void RankModel::tell(const char* what, const json& details) {
  last_told_ = Clock::now();
  if (world_.size() == 1) return;
  const auto bytes = json::to_cbor({{"what", what}, {"details", details}});
  broadcast_string(world_, {bytes.begin(), bytes.end()}, 0);
}

void RankModel::keep_waiting() {
  const auto often = std::clamp<Clock::duration>(timeouts().collective.time / 4, std::chrono::milliseconds(100),
                                                 std::chrono::seconds(10));
  if (!last_told_ || Clock::now() - *last_told_ > often) tell("wait", nullptr);
}

void RankModel::end() {
  tell("end", nullptr);
}

void RankModel::follow() {
  while (true) {
    const json told = json::from_cbor(broadcast_string(world_, "", 0));
    const json& details = told["details"];
    if (told["what"] == "end") return;
    if (told["what"] == "examples") run(examples_in(details));
    if (told["what"] != "tokens") continue;
    std::vector<SequenceTokens> tokens;
    for (const json& one : details["tokens"]) tokens.push_back({one[0], one[1]});
    run(tokens, details["ended"]);
  }
}

std::vector<Logits> RankModel::logits(const std::vector<Example>& examples) {
  tell("examples", world_.size() == 1 ? json() : as_json(examples));
  const at::Tensor all = run(examples).contiguous();
  const int64_t width = all.size(1);
  const auto* value = all.const_data_ptr<double>();
  std::vector<Logits> parts;
  int64_t rows = 0;
  for (const Example& example : examples) {
    const int64_t own = logits_rows(example, head_);
    parts.push_back({.width = width, .values = {value + rows * width, value + (rows + own) * width}});
    if (head_ == HeadChoice::Kind::masked_lm) parts.back() = words_of_example(parts.back(), example);
    rows += own;
  }
  SL_ASSERT(rows == all.size(0), all.size(0), " rows of logits, not ", rows);
  return parts;
}

at::Tensor RankModel::run(const std::vector<Example>& examples) {
  ExampleBatch batch(examples);
  at::Tensor all;
  trainer_.evaluate(batch, 1, [&](const at::Tensor& logits) { all = logits; });
  return all;
}

at::Tensor RankModel::next_logits(const std::vector<SequenceTokens>& tokens, const std::vector<int64_t>& ended) {
  tell("tokens", world_.size() == 1 ? json() : as_json(tokens, ended));
  return run(tokens, ended);
}

at::Tensor RankModel::run(const std::vector<SequenceTokens>& tokens, const std::vector<int64_t>& ended) {
  for (const int64_t sequence : ended) sequences_.erase(sequence);
  if (tokens.empty()) return {};
  std::vector<int64_t> lengths;
  std::vector<std::vector<KvCache*>> caches(spec_.layers.size());  // by layer: the cache of each sequence
  for (const auto& [sequence, ids] : tokens) {
    Sequence& known = sequences_[sequence];
    known.caches.resize(spec_.layers.size());
    lengths.push_back(known.length);
    known.length += std::ssize(ids);
    for (size_t layer = 0; layer < caches.size(); ++layer) caches[layer].push_back(&known.caches[layer]);
  }
  std::deque<KvCache> of_layers;
  std::vector<KvCache*> by_layer;
  for (auto& of_sequences : caches) by_layer.push_back(&of_layers.emplace_back(std::move(of_sequences)));
  return on_host(trainer_.next_logits(rows_of(tokens, lengths), by_layer), "logits of the next tokens");
}

}  // namespace shardline
