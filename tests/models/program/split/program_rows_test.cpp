// Programs on T ranks that divide rows (optimize: memory).
#include "models/program/split/program_rows.h"

#include <ATen/ops/empty.h>

#include <set>

#include "tests/models/program/split/split_runs.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::program_rows_test {
namespace {

using split_runs::damaged;
using split_runs::each_node;
using split_runs::forget;
using split_runs::SplitRuns;

constexpr double kRounding = 1e-12;

// The calls of all layers on the first of two ranks.
std::multiset<std::string> calls_by_rows(const SplitRuns& runs) {
  std::multiset<std::string> calls;
  const auto split = runs.splitter.split(2, {}, true);
  for (const auto& layer : runs.program->layers)
    for (const auto& node : split->divide(runs.program->graph(), layer.part, 0, true).graph.nodes)
      calls.insert(node.name);
  return calls;
}

// Samples with these lengths.
Microbatch batch_of(const std::vector<int64_t>& lengths) {
  Microbatch batch;
  std::vector<int64_t> ids, labels, positions, samples, segments;
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (int64_t place = 0; place < lengths[i]; ++place) {
      ids.push_back((3 * i + 5 * place) % words_program::kWords);
      labels.push_back(place + 1 < lengths[i] ? (3 * i + 5 * (place + 1)) % words_program::kWords : kNoLabel);
      positions.push_back(place);
      samples.push_back(i);
    }
    segments.push_back(i);
    batch.ends.push_back(ids.size());
    batch.position_count = std::max(batch.position_count, lengths[i]);
  }
  batch.ids = at::tensor(ids);
  batch.labels = at::tensor(labels);
  batch.positions = batch.places = at::tensor(positions);
  batch.samples = at::tensor(samples);
  batch.segment_samples = at::tensor(segments);
  batch.segment_places = at::zeros_like(batch.segment_samples);
  batch.is_rectangular = false;
  return batch;
}

}  // namespace

TEST_CASE("rows of samples of different lengths are divided without their padding", "[split]") {
  const int ranks = GENERATE(2, 3);
  const SplitRuns runs(cut_program(read_pt2(words_program::path())), batch_of({5, 2, 7}));
  CHECK(runs.distance(runs.splitter.split(ranks, {}, true)) < kRounding);
}

TEST_CASE("norms, dropout and sums of hidden states work on a rank's rows, products on all rows", "[split]") {
  const SplitRuns runs("program/heads.pt2");
  const auto calls = calls_by_rows(runs);
  // One for each of three products with divided sums, and one for the words; their sums become rows.
  CHECK(calls.count(kAddToRows) == 4);
  CHECK(calls.count(kAddOverRanks) == 0);
  // What the three norms of the block and the norm before the head give to products, and what is gathered again.
  CHECK(calls.count(kEnterFromRows) + calls.count(kGatherRows) <= 6);
  for (const auto& layer : runs.program->layers) {
    const auto part = runs.splitter.split(2, {}, true)->divide(runs.program->graph(), layer.part, 0, true);
    for (const bool are_rows : part.outputs_are_rows) CHECK(are_rows == (layer.name != "head"));
  }
}

TEST_CASE("an integer mask is divided by rows", "[split]") {
  const SplitRuns runs("program/experts.pt2");
  CHECK(calls_by_rows(runs).contains(kSliceRows));
  CHECK(runs.distance(runs.splitter.split(2, {}, true)) < kRounding);
}

TEST_CASE("a rank keeps less memory of a block if it has only its rows", "[split]") {
  const SplitRuns runs("program/heads.pt2");
  const auto kept = [&](bool divides_rows) {
    const ModelSpec spec = spec_of_program(runs.program, 64, runs.splitter.split(2, {}, divides_rows));
    return spec.layers[1]
        .kept({.tokens = 128, .rows = border_rows(128, 2, divides_rows), .length = 64, .t_degree = 2})
        .activations;
  };
  CHECK(kept(true) < kept(false));
}

TEST_CASE("errors injected into the division of rows change the results", "[split]") {
  const SplitRuns runs("program/heads.pt2");
  const auto distance = [&](const std::function<void(DividedPart&, int rank)>& damage) {
    return runs.distance(damaged(runs, 2, damage, true));
  };
  const auto renamed = [&](const char* from, const char* to) {
    return distance([&](DividedPart& part, int) { each_node(part, from, [&](GraphNode& node) { node.name = to; }); });
  };
  CHECK(distance([](DividedPart&, int) {}) < kRounding);
  // Fault: gradients of what divided calls receive are not added, or those of what all ranks compute are added.
  CHECK(renamed(kEnterFromRows, kGatherRows) > 1e-3);
  CHECK(renamed(kGatherRows, kEnterFromRows) > 1e-3);
  // Fault: each rank has only its rows' gradient of a norm's weights and of a bias.
  CHECK(distance([&](DividedPart& part, int) { each_node(part, kEnterRanks, forget); }) > 1e-3);
  // Fault: a rank takes the rows of its own partial sums.
  CHECK(distance([&](DividedPart& part, int) {
          each_node(part, kAddToRows, [](GraphNode& node) {
            node.name = kSliceRows;
            node.arguments.push_back({.constant = int64_t{3}, .items = {}});
          });
        }) > 1e-3);
}

}  // namespace shardline::program_rows_test
