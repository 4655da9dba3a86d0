// Models in which something must stay whole, or that must be refused, each with its reason.
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "core/error.h"
#include "models/program/trace/traced_archive.h"
#include "tests/models/program/split/split_runs.h"

#include "tests/catch.h"

namespace shardline::whole_reasons_test {
namespace {

using Catch::Matchers::Contains;
using split_runs::SplitRuns;

constexpr int64_t kWords = 31, kHidden = 12, kColumns = 8;

struct Block;
using Forward = std::function<at::Tensor(Block& block, const at::Tensor& x)>;

struct Block : torch::nn::Module {
  explicit Block(Forward of) : run(std::move(of)), first(kHidden, kColumns), second(kColumns, kHidden) {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) { return run(*this, x); }
  Forward run;
  torch::nn::Linear first, second;
};

struct Net : torch::nn::Module {
  explicit Net(const Forward& forward) : words(kWords, kHidden) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i) blocks->push_back(std::make_shared<Block>(forward));
  }
  std::vector<at::Tensor> loss_and_logits(const at::Tensor& ids, const at::Tensor& labels) {
    auto x = words(ids);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    const at::Tensor logits = at::linear(x, words->weight);
    const auto rows = logits.narrow(1, 0, logits.size(1) - 1).reshape({-1, kWords});
    return {at::cross_entropy_loss(rows, labels.narrow(1, 1, logits.size(1) - 1).reshape({-1})), logits};
  }
  torch::nn::Embedding words;
  torch::nn::ModuleList blocks;
};

Pt2Archive traced(const Forward& forward) {
  const TracedModel model{.vocab_size = kWords,
                          .arguments = {"input_ids", "labels"},
                          .results = {"loss", "logits"},
                          .make =
                              [forward] {
                                const auto net = std::make_shared<Net>(forward);
                                return TracedModule{net, [net](const std::vector<at::Tensor>& arguments) {
                                                      return net->loss_and_logits(arguments[0], arguments[1]);
                                                    }};
                              },
                          .name = "words"};
  return traced_archive(model, {}, 3, 16);
}

// Returns why the first product of the first block stays whole; empty if it is split.
std::string why_whole(const Forward& forward, int ranks) {
  const SplitRuns runs(cut_program(traced(forward)), {});
  const auto split = runs.splitter.split(ranks, {});
  for (const auto& unit : split->units.at(1))
    if (unit.name == "first") return unit.split ? "" : unit.why;
  return "";
}

// A model that changes the first product's result, over whose columns the second product sums.
Forward between(const std::function<at::Tensor(const at::Tensor&)>& change) {
  return [change](Block& block, const at::Tensor& x) { return x + block.second(change(block.first(x))); };
}

struct Case {
  const char* what;
  Forward forward;
  const char* reason;
  int ranks = 2;
};

const std::vector<Case>& whole_cases() {
  static const std::vector<Case> cases = {
      {"a softmax over columns", between([](const auto& y) { return at::softmax(y, -1); }), "softmax"},
      {"a norm over few columns", between([](const auto& y) { return at::layer_norm(y, {kColumns}); }), "layer_norm"},
      {"sums up to each column", between([](const auto& y) { return y.cumsum(-1); }), "there is no rule for cumsum"},
      {"columns in another order", between([](const auto& y) { return y.flip(-1); }), "there is no rule for flip"},
      {"every third column", between([](const auto& y) {
         return at::cat({y.slice(2, 0, kColumns, 3), y.slice(2, 1, kColumns, 3), y.slice(2, 2, kColumns, 3)}, 2);
       }),
       "cuts them unequally"},
      {"columns as tokens", between([](const auto& y) {
         return y.reshape({y.size(0), kColumns, y.size(1)}).transpose(1, 2);
       }),
       "cuts them unequally"},
      {"products of tokens",
       [](Block& block, const at::Tensor& x) {
         const auto y = block.first(x);
         return x + at::matmul(at::matmul(y, y.transpose(1, 2)), x);
       },
       "in a product of two activations"},
      {"a mean of columns",
       [](Block& block, const at::Tensor& x) { return x * block.first(x).mean(-1, /*keepdim=*/true); },
       "needs all of them"},
      {"a product in Einstein's notation with dots",
       [](Block& block, const at::Tensor& x) {
         return x + block.second(at::einsum("...i,oi->...o", {x, block.first->weight}));
       },
       "there is no rule for einsum in blocks.0.first"},
      {"more ranks than columns", between([](const auto& y) { return at::tanh(y); }), "there are 8 for 9 ranks", 9},
  };
  return cases;
}

}  // namespace

TEST_CASE("the plan gives the reason for products that stay whole, which compute the same", "[split]") {
  CHECK(why_whole(between([](const auto& y) { return at::tanh(y); }), 2).empty());
  CHECK(why_whole(between([](const auto& y) {
                    return at::cat({y.slice(2, 0, kColumns, 2), y.slice(2, 1, kColumns, 2)}, 2);
                  }),
                  2)
            .empty());
  for (const auto& one : whole_cases()) {
    CAPTURE(one.what);
    CHECK_THAT(why_whole(one.forward, one.ranks), Contains(one.reason));
    if (one.ranks > 2) continue;
    const auto ids = (at::arange(15, at::kLong) * 7 % kWords).view({3, 5});
    const SplitRuns runs(cut_program(traced(one.forward)), causal_microbatch(ids, ids, at::arange(3)));
    CHECK(runs.distance(runs.splitter.split(2, {})) < 1e-12);
    CHECK(runs.distance(runs.splitter.split(2, {}, true)) < 1e-12);
  }
}

TEST_CASE("models that cannot be trained on every layout are refused, and the error states the reason", "[split]") {
  const Case cases[] = {
      {"a norm over the batch",
       [](Block& block, const at::Tensor& x) {
         const auto rows = block.second(block.first(x)).transpose(1, 2);
         return x + at::batch_norm(rows, {}, {}, {}, {}, true, 0.1, 1e-5, false).transpose(1, 2);
       },
       "batch_norm"},
      {"calls that depend on values",
       [](Block& block, const at::Tensor& x) {
         return x.sum().item<double>() > 0 ? x + block.second(block.first(x)) : x;
       },
       "reads values of a tensor"},
      {"a change of a weight",
       [](Block& block, const at::Tensor& x) {
         const at::NoGradGuard no_grad;
         block.first->weight.mul_(0.5);
         return x + block.second(block.first(x));
       },
       "changes an argument or a parameter"},
      {"random numbers of its own",
       [](Block& block, const at::Tensor& x) { return x + block.second(block.first(x)) * at::rand({kHidden}); },
       "draws from torch's random generator"}};
  for (const auto& one : cases) {
    CAPTURE(one.what);
    CHECK_THROWS_WITH(cut_program(traced(one.forward)), Contains(one.reason));
  }
}

}  // namespace shardline::whole_reasons_test
