// Models made of modules that declare how they are divided.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "core/error.h"
#include "include/shardline/nn.h"
#include "models/program/trace/traced_archive.h"
#include "tests/models/program/split/split_runs.h"

#include "tests/catch.h"

namespace shardline::marked_splits_test {
namespace {

using at::Tensor;
using Catch::Matchers::Contains;
using split_runs::SplitRuns;

constexpr int64_t kWords = 31, kWidth = 12;
constexpr double kRounding = 1e-12;

// A block of attention and a gated MLP.
struct Block : torch::nn::Module {
  Block()
      : norm(torch::nn::LayerNormOptions({kWidth})),
        attention(nn::AttentionOptions(kWidth, 8).key_heads(2).head_features(2).causal(true)),
        gate(nn::ColumnLinearOptions(kWidth, 7).bias(false)),
        up(kWidth, 7),
        down(7, kWidth) {
    register_module("norm", norm);
    register_module("attention", attention);
    register_module("gate", gate);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(Tensor x) {
    x = x + attention(norm(x));
    return x + down(at::silu(gate(x)) * up(x));
  }
  torch::nn::LayerNorm norm;
  nn::Attention attention;
  nn::ColumnLinear gate, up;
  nn::RowLinear down;
};

Tensor next(const Tensor& labels) {
  return labels.narrow(1, 1, labels.size(1) - 1);
}
Tensor before_next(const Tensor& logits) {
  return logits.narrow(1, 0, logits.size(1) - 1);
}

struct Net : torch::nn::Module {
  Net() : words(kWords, kWidth) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i) blocks->push_back(std::make_shared<Block>());
    register_module("loss", loss);
  }
  std::vector<Tensor> forward(const Tensor& ids, const Tensor& labels) {
    Tensor x = words(ids);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    const Tensor logits = at::linear(x, words->weight);
    return {loss(before_next(logits), next(labels)), logits};
  }
  nn::VocabEmbedding words;
  torch::nn::ModuleList blocks;
  nn::CrossEntropy loss;
};

// A net of blocks of two modules of any kind and one of torch.
template <class First, class Second>
struct Pair : torch::nn::Module {
  struct Part : torch::nn::Module {
    Part(First a, Second b) : first(std::move(a)), second(std::move(b)), third(2 * kWidth, kWidth) {
      register_module("first", first);
      register_module("second", second);
      register_module("third", third);
    }
    First first;
    Second second;
    torch::nn::Linear third;
  };
  using Forward = std::function<Tensor(const Tensor& x, Part& part)>;
  Pair(const std::function<std::pair<First, Second>()>& make, Forward of_part)
      : run(std::move(of_part)), words(kWords, kWidth) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i) {
      const auto [first, second] = make();
      blocks->push_back(std::make_shared<Part>(first, second));
    }
  }
  std::vector<Tensor> forward(const Tensor& ids, const Tensor& labels) {
    Tensor x = words(ids);
    for (const auto& block : *blocks) x = x + run(x, *block->as<Part>());
    const Tensor logits = at::linear(x, words->weight);
    return {at::cross_entropy_loss(before_next(logits).flatten(0, 1), next(labels).flatten()), logits};
  }
  Forward run;
  torch::nn::Embedding words;
  torch::nn::ModuleList blocks;
};

template <class Module>
SplitRuns runs_of(const std::function<std::shared_ptr<Module>()>& make,
                  std::vector<Tensor> (Module::*forward)(const Tensor&, const Tensor&) = &Module::forward) {
  const TracedModel model{.vocab_size = kWords,
                          .arguments = {"input_ids", "labels"},
                          .results = {"loss", "logits"},
                          .make = [=] { return traced_module(make(), forward); },
                          .name = "marked"};
  const auto ids = (at::arange(21, at::kLong) * 7 % kWords).view({3, 7});
  return {cut_program(traced_archive(model, {}, 3, 16)), causal_microbatch(ids, ids, at::arange(3))};
}

template <class First, class Second>
SplitRuns runs_of_pair(const std::function<std::pair<First, Second>()>& make,
                       const typename Pair<First, Second>::Forward& forward) {
  using OfPair = Pair<First, Second>;
  return runs_of<OfPair>([=] { return std::make_shared<OfPair>(make, forward); });
}

const auto kInTurn = [](const Tensor& x, auto& part) { return part.second(at::tanh(part.first(x))); };
const auto kSoftmax = [](const Tensor& x, auto& part) { return part.second(at::softmax(part.first(x), -1)); };

const SplitUnit& unit(const ProgramSplit& split, size_t layer, const std::string& name) {
  const auto found = std::ranges::find(split.units.at(layer), name, &SplitUnit::name);
  REQUIRE(found != split.units.at(layer).end());
  return *found;
}

void check_refused(const SplitRuns& runs, const std::string& reason, int ranks = 2) {
  CHECK_THROWS_WITH(runs.splitter.split(ranks, {}), Contains("/model/config/model_type: model marked: ") &&
                                                        Contains(reason) && Contains("use torch::nn's module"));
}

}  // namespace

TEST_CASE("ranks divide what the modules declare, and give the results of a single rank", "[split]") {
  const int ranks = GENERATE(2, 3, 4);
  const auto runs = runs_of<Net>([] { return std::make_shared<Net>(); });
  const auto split = runs.splitter.split(ranks, {});
  CHECK(split->share > 0.85);
  CHECK(split->parameters.at("words.weight").dimension == 0);
  CHECK(split->parameters.at("blocks.1.attention.q.weight").dimension == 0);
  CHECK(split->parameters.contains("blocks.1.attention.k.weight") == (ranks == 2));  // there are two key heads
  CHECK(split->parameters.at("blocks.1.attention.out.weight").dimension == 1);
  CHECK(split->parameters.at("blocks.0.gate.weight").dimension == 0);
  CHECK(split->parameters.at("blocks.0.up.bias").dimension == 0);
  CHECK(split->parameters.at("blocks.0.down.weight").dimension == 1);
  CHECK(!split->parameters.contains("blocks.0.down.bias"));
  CHECK_THAT(unit(*split, 1, "attention").why, Contains("its module is a shardline::nn::Attention"));
  for (const bool divides_rows : {false, true})
    CHECK(runs.distance(runs.splitter.split(ranks, {}, divides_rows)) < kRounding);
}

TEST_CASE("a module's declaration takes precedence over the analysis", "[split]") {
  const auto in_turn = [](const Tensor& x, auto& part) {
    return part.third(at::tanh(part.second(at::tanh(part.first(x)))));
  };
  using Plain = torch::nn::Linear;
  const auto plain =
      runs_of_pair<Plain, Plain>([] { return std::pair(Plain(kWidth, 4), Plain(4, 2 * kWidth)); }, in_turn);
  const auto of_analysis = plain.splitter.split(2, {});
  CHECK(of_analysis->parameters.at("blocks.0.second.weight").dimension == 0);
  const auto marked = runs_of_pair<nn::ColumnLinear, nn::RowLinear>(
      [] { return std::pair(nn::ColumnLinear(kWidth, 4), nn::RowLinear(4, 2 * kWidth)); }, in_turn);
  const auto split = marked.splitter.split(2, {});
  CHECK(split->parameters.at("blocks.0.first.weight").dimension == 0);
  CHECK(split->parameters.at("blocks.0.second.weight").dimension == 1);
  CHECK(marked.distance(split) < kRounding);
}

TEST_CASE("a config can keep a unit whole that a module would divide", "[split]") {
  const auto runs = runs_of<Net>([] { return std::make_shared<Net>(); });
  const auto split = runs.splitter.split(2, {{"blocks.0.attention", {.split = false, .why = "asked"}}});
  CHECK(!split->parameters.contains("blocks.0.attention.q.weight"));
  CHECK(split->parameters.contains("blocks.1.attention.q.weight"));
  CHECK(runs.distance(split) < kRounding);
}

TEST_CASE("a ColumnLinear may gather its columns", "[split]") {
  const auto make = [] {
    return std::pair(nn::ColumnLinear(nn::ColumnLinearOptions(kWidth, 8).gather_output(true)),
                     torch::nn::Linear(8, kWidth));
  };
  const auto runs = runs_of_pair<nn::ColumnLinear, torch::nn::Linear>(make, kSoftmax);
  const auto split = runs.splitter.split(2, {});
  CHECK(split->parameters.at("blocks.0.first.weight").dimension == 0);
  CHECK(unit(*split, 1, "first").parts == "gathered columns");
  CHECK(runs.distance(split) < kRounding);
}

TEST_CASE("modules that contradict the model are refused, and the error states the reason", "[split]") {
  using Plain = torch::nn::Linear;
  const auto columns = [] { return std::pair(nn::ColumnLinear(kWidth, 8), Plain(8, kWidth)); };
  check_refused(
      runs_of_pair<nn::ColumnLinear, Plain>(columns, kSoftmax),
      "blocks.0.first is a shardline::nn::ColumnLinear, but its columns cannot be split over 2 ranks (softmax "
      "in blocks.0.first needs all of them)");
  const auto rows = [] { return std::pair(nn::RowLinear(kWidth, 8), Plain(8, kWidth)); };
  check_refused(runs_of_pair<nn::RowLinear, Plain>(rows, kInTurn),
                "blocks.0.first is a shardline::nn::RowLinear, but its inputs cannot be split");
  // The columns of the first product are the inputs of the second one.
  const auto both = [] { return std::pair(nn::ColumnLinear(kWidth, 8), nn::ColumnLinear(8, 2 * kWidth)); };
  check_refused(runs_of_pair<nn::ColumnLinear, nn::ColumnLinear>(
                    both, [](const Tensor& x, auto& part) { return part.third(part.second(part.first(x))); }),
                "blocks.0.second is a shardline::nn::ColumnLinear");
  const auto table = [] { return std::pair(nn::VocabEmbedding(5, kWidth), Plain(kWidth, kWidth)); };
  check_refused(
      runs_of_pair<nn::VocabEmbedding, Plain>(
          table,
          [](const Tensor& x, auto& part) { return part.second(x + part.first(at::arange(x.size(1)).remainder(5))); }),
      "blocks.0.first is a shardline::nn::VocabEmbedding, but its words cannot be split over 2 ranks (the table of "
      "embedding");
  const auto few = [] { return std::pair(nn::ColumnLinear(kWidth, 3), nn::RowLinear(3, kWidth)); };
  check_refused(runs_of_pair<nn::ColumnLinear, nn::RowLinear>(few, kInTurn), "there are 3 for 4 ranks", 4);
}

TEST_CASE("a CrossEntropy that is only a part of the loss is refused", "[split]") {
  struct Squared : torch::nn::Module {
    Squared() : words(kWords, kWidth), head(kWidth, kWords) {
      register_module("words", words);
      register_module("blocks", blocks);
      for (int i = 0; i < 2; ++i) blocks->push_back(torch::nn::Linear(kWidth, kWidth));
      register_module("head", head);
      register_module("loss", loss);
    }
    std::vector<Tensor> forward(const Tensor& ids, const Tensor& labels) {
      Tensor x = words(ids);
      for (const auto& block : *blocks) x = at::tanh(block->as<torch::nn::Linear>()->forward(x));
      const Tensor logits = head(x);
      return {loss(before_next(logits), next(labels)) + logits.square().mean(), logits};
    }
    torch::nn::Embedding words;
    torch::nn::ModuleList blocks;
    torch::nn::Linear head;
    nn::CrossEntropy loss;
  };
  check_refused(
      runs_of<Squared>([] { return std::make_shared<Squared>(); }),
      "loss is a shardline::nn::CrossEntropy, but its classes cannot be split over 2 ranks (the loss, another "
      "scalar, is not a single cross entropy");
}

}  // namespace shardline::marked_splits_test
