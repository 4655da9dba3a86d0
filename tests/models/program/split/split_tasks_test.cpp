// Programs on T ranks for tasks other than causal language models.
#include "models/program/masks/unmasked.h"
#include "tests/models/program/pairs_program.h"
#include "tests/models/program/split/split_runs.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::split_tasks_test {
namespace {

using Predicts = ProgramUse::Predicts;
using split_runs::SplitRuns;

constexpr double kRounding = 1e-12;

}  // namespace

TEST_CASE("ranks divide the words of an encoder and a decoder, with and without its masks", "[split]") {
  const double dropout = GENERATE(0.0, 0.3);
  // Samples of one length, whose masks are dropped, and of different lengths.
  const auto samples = GENERATE(std::vector{1}, std::vector{0, 1, 2});
  CAPTURE(dropout, samples);
  const auto program = with_unmasked(pairs_program::dropped_pairs(dropout), 8);
  REQUIRE(program->unmasked);
  const SplitRuns runs(program, pairs_program::batch_of(samples));
  const auto split = runs.splitter.split(2, {});
  // Its heads are added to hidden states without a product, and therefore stay whole.
  CHECK(split->parameters.size() == 1);
  CHECK(split->parameters.contains("words.weight"));
  CHECK(runs.distance(split) < kRounding);
  CHECK(runs.distance(runs.splitter.split(2, {}, true)) < kRounding);
}

TEST_CASE("the classes of a loss that the config names are divided", "[split]") {
  const auto program =
      cut_program(read_pt2(words_program::path()),
                  {.predicts = Predicts::masked_row, .loss_function = "cross_entropy", .loss_logits = "logits"});
  const auto ids = words_program::ids();
  Microbatch batch = causal_microbatch(ids, ids, at::arange(ids.size(0)));
  batch.labels = batch.ids.clone();
  const SplitRuns runs(program, batch);
  const auto split = runs.splitter.split(2, {});
  CHECK(split->parameters.contains("words.weight"));
  CHECK(runs.distance(split, 0.1) < kRounding);
}

TEST_CASE("predictions of divided classes equal those of one rank", "[split]") {
  const auto program = pairs_program::pairs();
  const SplitRuns runs(program, pairs_program::batch_of({0, 1, 2}));
  const auto split = runs.splitter.split(2, {});
  MicrobatchContext context{.batch = &runs.batch, .mode = Mode::evaluate, .predicts = true};
  const ModelSpec divided = spec_of_program(program, SplitRuns::kLength, split);
  const auto one = run_layers(runs.whole, runs.values(runs.whole), context, {.ranks = 1}),
             all = run_layers(divided, runs.values(divided), context, {.ranks = 2});
  CHECK(all.ranks_agree);
  CHECK(difference(one.logits, all.logits) < kRounding);
  CHECK(all.loss.sum == Approx(one.loss.sum).epsilon(kRounding));
}

TEST_CASE("losses that need all classes keep them whole", "[split]") {
  const auto split_with = [](const ProgramLoss& loss) {
    const auto program = std::make_shared<Program>(*cut_program(read_pt2(words_program::path())));
    program->loss = loss;
    const SplitRuns runs(program, {});
    return runs.splitter.split(2, {});
  };
  const ProgramLoss entropy = cut_program(read_pt2(words_program::path()))->loss;
  CHECK(split_with(entropy)->parameters.contains("words.weight"));
  ProgramLoss two = entropy;
  two.terms.push_back(two.terms[0]);
  CHECK(!split_with(two)->parameters.contains("words.weight"));
}

TEST_CASE("a tensor into which trained values are written stays whole", "[split]") {
  const auto program = std::make_shared<Program>(*cut_program(read_pt2(golden("program/heads.pt2"))));
  const SplitRuns before(program, {});
  REQUIRE(before.splitter.split(2, {})->parameters.contains("blocks.0.fused.weight"));
  // Pretends that a call changes the result of the product for queries, keys and values.
  for (size_t node = 0; node < program->graph().nodes.size(); ++node)
    if (program->graph().nodes[node].name == "aten::addmm")
      program->flow.changes[program->flow.storage[program->graph().nodes[node].results[0].value]] = {int(node)};
  const SplitRuns after(program, {});
  CHECK(!after.splitter.split(2, {})->parameters.contains("blocks.0.fused.weight"));
}

}  // namespace shardline::split_tasks_test
