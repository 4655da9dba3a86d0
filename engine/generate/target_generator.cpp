#include "engine/generate/target_generator.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/comm/communicator.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "engine/data/examples/microbatch_rows.h"

namespace shardline {
namespace {

using Texts = std::vector<std::vector<int32_t>>;

// Each source with the tokens written for it so far (equally many for each), and one more token that is not known yet.
// columns: of these sources.
Microbatch with_next(const Texts& sources, const Texts& written, std::map<std::string, at::Tensor> columns) {
  std::vector<int64_t> ends;
  for (size_t i = 0; i < sources.size(); ++i)
    ends.push_back((ends.empty() ? 0 : ends.back()) + std::ssize(sources[i]) + std::ssize(written[i]) + 1);
  Microbatch batch = rows_of_segments(std::move(ends), 0);
  batch.columns = std::move(columns);
  auto* ids = batch.ids.mutable_data_ptr<int64_t>();
  int64_t row = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    for (const int32_t id : sources[i]) ids[row++] = id;
    batch.target_begins.push_back(row);
    for (const int32_t id : written[i]) ids[row++] = id;
    ids[row++] = 0;
  }
  return batch;
}

}  // namespace

Texts generate_targets(RankTrainer& model, const ModelSpec& spec, const Texts& sources, const TargetRule& rule,
                       const Sampling& sampling, int64_t most_together, const ColumnsOf& columns_of) {
  const auto limited = [](int64_t wanted, int64_t most) { return most > 0 ? std::min(wanted, most) : wanted; };
  const int64_t together = limited(most_together, spec.most_samples);
  const RankGroups& groups = model.parameters().groups();
  const int64_t count = sources.size(), parts = (count + together - 1) / together, replicas = groups.mesh.d();
  nlohmann::json mine = nlohmann::json::array();
  for (int64_t first = 0; first < parts; first += replicas) {
    // Replicas without a part still take part in collectives.
    const int64_t part = first + groups.coordinates.d, used = std::min(part, parts - 1);
    const int64_t begin = used * together, size = std::min(together, count - begin);
    const Texts from(sources.begin() + begin, sources.begin() + begin + size);
    const auto columns = columns_of ? columns_of(begin, size) : std::map<std::string, at::Tensor>();
    Texts written(size);
    std::vector<bool> is_done(size);
    const int64_t most = limited(std::min<int64_t>(rule.most_tokens, spec.max_positions), spec.most_targets);
    for (int64_t length = 0; length < most; ++length) {
      const at::Tensor logits =
          on_host(model.next_logits(with_next(from, written, columns)), "logits of the next token");
      for (int64_t i = 0; i < size; ++i) {
        const int64_t next = is_done[i] ? 0 : sample_token(logits[i], sampling, begin + i, length);
        if (rule.end && next == *rule.end && !is_done[i]) {
          is_done[i] = true;
          if (part == used) mine.push_back({begin + i, written[i]});
        }
        written[i].push_back(next);
      }
      const bool all_done = std::ranges::all_of(is_done, [](bool done) { return done; });
      if (!model.is_true_anywhere(!all_done)) break;
    }
    for (int64_t i = 0; i < size; ++i)
      if (!is_done[i] && part == used) mine.push_back({begin + i, written[i]});
  }
  Texts all(count);
  const bool sends = groups.coordinates.p == 0 && groups.coordinates.t == 0;
  for (const auto& text : gather_strings(*groups.world, sends ? mine.dump() : "[]"))
    for (const auto& entry : nlohmann::json::parse(text))
      all.at(entry[0].get<size_t>()) = entry[1].get<std::vector<int32_t>>();
  return all;
}

Texts sources_of(const Examples& examples) {
  Texts sources;
  for (int64_t i = 0; i < examples.size(); ++i) {
    const auto ids = examples.set->ids(examples[i]);
    sources.emplace_back(ids.begin(), ids.begin() + examples.set->source_tokens(examples[i]));
  }
  return sources;
}

ColumnsOf columns_of(const Examples& examples) {
  return [examples](int64_t begin, int64_t count) {
    std::vector<int64_t> chosen;
    for (int64_t i = begin; i < begin + count; ++i) chosen.push_back(examples[i]);
    return examples.set->columns(chosen);
  };
}

}  // namespace shardline
