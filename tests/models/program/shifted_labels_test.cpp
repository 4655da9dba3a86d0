// Causal programs whose labels are given as the tokens themselves or as the next tokens.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "models/program/program_inputs.h"
#include "models/program/trace/traced_archive.h"
#include "tests/models/program/program_run.h"

#include "tests/catch.h"

namespace shardline::shifted_labels_test {
namespace {

using at::Tensor;

constexpr int64_t kWords = 13, kHidden = 6;

struct Net : torch::nn::Module {
  Net() : words(kWords, kHidden) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i) blocks->push_back(torch::nn::Linear(kHidden, kHidden));
  }
  Tensor logits(const Tensor& ids) {
    Tensor x = words(ids);
    for (const auto& block : *blocks) x = x + at::tanh(block->as<torch::nn::Linear>()->forward(x));
    return at::linear(x, words->weight);
  }
  torch::nn::Embedding words;
  torch::nn::ModuleList blocks;
};

using Loss = std::function<Tensor(const Tensor& logits, const Tensor& labels)>;

// The mean loss of a step on two samples.
double loss_of(const Loss& loss, bool returns_logits = true) {
  TracedModel model{.vocab_size = kWords, .arguments = {"input_ids", "labels"}, .results = {"loss"}, .name = "words"};
  if (returns_logits) model.results.emplace_back("logits");
  model.make = [=] {
    const auto net = std::make_shared<Net>();
    return TracedModule{net, [=](const std::vector<Tensor>& arguments) {
                          const Tensor logits = net->logits(arguments.at(0));
                          std::vector<Tensor> results = {loss(logits, arguments.at(1))};
                          if (returns_logits) results.push_back(logits);
                          return results;
                        }};
  };
  ProgramRun run(cut_program(traced_archive(model, {}, 3, 8)), at::kDouble);
  const Tensor ids = (at::arange(12, at::kLong) * 5 % kWords).view({2, 6});
  const LossTerm term = run.train(causal_microbatch(ids, ids, at::arange(2)));
  return term.sum / term.weight;
}

Tensor shifted(const Tensor& logits, const Tensor& labels) {
  const int64_t length = labels.size(1) - 1;
  return at::cross_entropy_loss(logits.narrow(1, 0, length).flatten(0, 1), labels.narrow(1, 1, length).flatten());
}

Tensor of_same_tokens(const Tensor& logits, const Tensor& labels) {
  return at::cross_entropy_loss(logits.flatten(0, 1), labels.flatten());
}

// A loss that is not one of ATen's operators.
Tensor likelihood(const Tensor& logits, const Tensor& labels) {
  const Tensor counts = labels != kNoLabel, classes = labels.masked_fill(counts.logical_not(), 0);
  const Tensor of_labels = at::gather(at::log_softmax(logits, 2), 2, classes.unsqueeze(2)).squeeze(2);
  return -(of_labels * counts).sum() / counts.sum();
}

}  // namespace

TEST_CASE("programs that do not shift their labels get the next tokens, whatever computes the loss", "[program]") {
  const double expected = loss_of(shifted);
  CHECK(loss_of(of_same_tokens) == Approx(expected).epsilon(1e-14));
  CHECK(loss_of(of_same_tokens, /*returns_logits=*/false) == Approx(expected).epsilon(1e-14));
  CHECK(loss_of([](const Tensor& logits, const Tensor& labels) {
          return at::cross_entropy_loss(logits.permute({0, 2, 1}), labels);
        }) == Approx(expected).epsilon(1e-14));
  CHECK(loss_of(likelihood) == Approx(expected).epsilon(1e-14));
}

TEST_CASE("programs that shift their labels get the tokens, whatever shifts them and computes the loss", "[program]") {
  const double expected = loss_of(shifted);
  CHECK(loss_of(shifted, /*returns_logits=*/false) == Approx(expected).epsilon(1e-14));
  CHECK(loss_of([](const Tensor& logits, const Tensor& labels) {
          return of_same_tokens(logits, at::roll(labels, -1, 1));  // the first token of a sample has no label
        }) == Approx(expected).epsilon(1e-14));
  CHECK(loss_of([](const Tensor& logits, const Tensor& labels) {
          const int64_t length = labels.size(1) - 1;
          return likelihood(logits.narrow(1, 0, length), labels.narrow(1, 1, length));
        }) == Approx(expected).epsilon(1e-14));
}

}  // namespace shardline::shifted_labels_test
