// Runs programs on T ranks, which are threads, and on one rank, whose results the T ranks must reproduce.
#pragma once
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "models/program/layers/program_layers.h"
#include "models/program/split/program_splitter.h"
#include "tests/models/families/run_layers.h"
#include "tests/models/golden.h"

namespace shardline::split_runs {

class SplitRuns {
 public:
  SplitRuns(std::shared_ptr<const Program> of, Microbatch rows)
      : program(std::move(of)),
        whole(spec_of_program(program, kLength)),
        splitter(program, whole),
        batch(std::move(rows)) {}

  explicit SplitRuns(const std::string& file) : SplitRuns(cut_program(read_pt2(golden(file))), {}) {
    // Ids spread evenly over the ranks' parts of the words, so that every rank looks some up.
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < kSamples * kLength; ++i) ids.push_back(i * 5 % program->vocab_size);
    const auto rows = at::tensor(ids, at::kLong).view({kSamples, kLength});
    batch = causal_microbatch(rows, rows, at::arange(3, 3 + kSamples));
  }

  // The model's values in the shapes of `spec`.
  std::vector<at::Tensor> values(const ModelSpec& spec) const {
    std::vector<at::Tensor> values;
    for (size_t layer = 0; layer < spec.layers.size(); ++layer)
      for (size_t i = 0; i < spec.layers[layer].params.size(); ++i)
        values.push_back(program->archive.weights->tensor(program->layers[layer].parameters[i])
                             .to(at::kDouble)
                             .reshape(spec.layers[layer].params[i].shape));
    return values;
  }

  LayersOutcome run(const ModelSpec& spec, const LayersRun& on, Mode mode = Mode::train,
                    double label_smoothing = 0) const {
    MicrobatchContext context{
        .batch = &batch, .mode = mode, .seed = 5, .step = 1, .loss_scale = 0.1, .label_smoothing = label_smoothing};
    return run_layers(spec, values(spec), context, on);
  }

  // How much a division differs from one rank that has everything: the largest difference of loss, gradients and
  // logits, relative to the largest number. Infinite if the ranks disagree.
  double distance(const std::shared_ptr<const ProgramSplit>& split, double label_smoothing = 0) const {
    const ModelSpec divided = spec_of_program(program, kLength, split);
    const LayersRun on{.ranks = split->ranks, .sequence_parallel = split->divides_rows};
    const LayersOutcome one = run(whole, {.ranks = 1}, Mode::train, label_smoothing),
                        all = run(divided, on, Mode::train, label_smoothing);
    if (!all.ranks_agree || !all.types_hold) return std::numeric_limits<double>::infinity();
    double worst = std::abs(all.loss.sum - one.loss.sum) / one.loss.sum;
    for (size_t i = 0; i < one.gradients.size(); ++i)
      worst = std::max(worst, difference(one.gradients[i], all.gradients[i].view(one.gradients[i].sizes())) /
                                  std::max(one.gradients[i].abs().max().item<double>(), 1e-3));
    const LayersOutcome logits = run(whole, {.ranks = 1}, Mode::generate), of_ranks = run(divided, on, Mode::generate);
    return std::max(
        worst, difference(logits.logits, of_ranks.logits) / std::max(logits.logits.abs().max().item<double>(), 1.0));
  }

  static constexpr int64_t kSamples = 3, kLength = 7;
  const std::shared_ptr<const Program> program;
  const ModelSpec whole;
  const ProgramSplitter splitter;
  Microbatch batch;
};

// A division with changed parts.
inline std::shared_ptr<const ProgramSplit> damaged(const SplitRuns& runs, int ranks,
                                                   const std::function<void(DividedPart&, int rank)>& damage,
                                                   bool divides_rows = false) {
  const auto good = runs.splitter.split(ranks, {}, divides_rows);
  const auto bad = std::make_shared<ProgramSplit>(*good);
  bad->divide = [good, damage](const Graph& graph, const GraphPart& part, int rank, bool by_rows) {
    DividedPart divided = good->divide(graph, part, rank, by_rows);
    damage(divided, rank);
    return divided;
  };
  return bad;
}

inline void each_node(DividedPart& part, const std::string& name, const std::function<void(GraphNode&)>& change) {
  for (auto& node : part.graph.nodes)
    if (node.name == name) change(node);
}

// Makes a call return its first argument.
inline void forget(GraphNode& node) {
  node.name = "aten::alias";
  node.overload.clear();
  node.arguments.resize(1);
  node.is_operator = true;
}

}  // namespace shardline::split_runs
