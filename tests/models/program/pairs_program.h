// The small exported encoder with a decoder of golden/make_program.py, and what PyTorch computes with it.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/model/microbatch.h"
#include "models/program/program.h"
#include "tests/models/files/files.h"
#include "tests/models/golden.h"
#include "tests/models/program/words_program.h"

namespace shardline::pairs_program {

inline std::string path() {
  return golden("program/pairs.pt2");
}

inline nlohmann::json expected() {
  return nlohmann::json::parse(contents(golden("program/pairs.json")));
}

inline std::shared_ptr<const Program> pairs() {
  return cut_program(read_pt2(path()), {.predicts = ProgramUse::Predicts::target_row});
}

// The program with this dropout probability after the products of its blocks.
inline std::shared_ptr<const Program> dropped_pairs(double probability) {
  const ScratchDirectory scratch;
  words_program::write_changed_copy(path(), scratch / "dropped.pt2", "pairs/models/model.json",
                                    [&](const std::string& text) {
                                      auto model = nlohmann::json::parse(text);
                                      for (auto& node : model["graph_module"]["graph"]["nodes"])
                                        if (node["target"] == "torch.ops.aten.dropout.default")
                                          node["inputs"][1]["arg"]["as_float"] = probability;
                                      return model.dump();
                                    });
  return cut_program(read_pt2(scratch / "dropped.pt2"), {.predicts = ProgramUse::Predicts::target_row});
}

// Samples of the golden file, by number: each is a source with its target.
inline Microbatch batch_of(const std::vector<int>& samples) {
  const auto golden_file = expected();
  Microbatch batch;
  std::vector<int64_t> ids, labels, positions, of_samples;
  for (const int sample : samples) {
    const std::vector<int64_t> source = golden_file["sources"][sample], target = golden_file["targets"][sample];
    for (size_t i = 0; i < source.size() + target.size(); ++i) {
      const bool is_target = i >= source.size();
      ids.push_back(is_target ? target[i - source.size()] : source[i]);
      labels.push_back(is_target ? ids.back() : kNoLabel);
      positions.push_back(i);
      of_samples.push_back(sample);
    }
    batch.target_begins.push_back(std::ssize(ids) - std::ssize(target));
    batch.ends.push_back(ids.size());
    batch.position_count = std::max<int64_t>(batch.position_count, source.size() + target.size());
  }
  batch.ids = at::tensor(ids);
  batch.labels = at::tensor(labels);
  batch.positions = batch.places = at::tensor(positions);
  batch.samples = at::tensor(of_samples);
  batch.segment_samples = at::tensor(std::vector<int64_t>(samples.begin(), samples.end()));
  batch.segment_places = at::zeros_like(batch.segment_samples);
  return batch;
}

}  // namespace shardline::pairs_program
