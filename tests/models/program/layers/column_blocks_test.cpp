// Programs of columns whose blocks take unusual values.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include "models/program/trace/traced_archive.h"
#include "models/traced/sample_check.h"
#include "tests/models/program/split/split_runs.h"

#include "tests/catch.h"

namespace shardline::column_blocks_test {
namespace {

using at::Tensor;
using split_runs::SplitRuns;

constexpr int64_t kSamples = 4, kParts = 3, kNumbers = 6, kClasses = 5;
const ProgramUse kUse = {
    .predicts = ProgramUse::Predicts::segment, .inputs = {{"numbers", "numbers"}}, .loss_function = "cross_entropy"};

struct Net : torch::nn::Module {
  Net() : head(kNumbers, kClasses) {
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(torch::nn::Linear(kNumbers, kNumbers));
    register_module("head", head);
  }
  Tensor through_blocks(Tensor x) {
    for (const auto& block : *blocks) x = at::tanh(block->as<torch::nn::Linear>()->forward(x));
    return x;
  }
  // The first block takes the argument.
  Tensor at_once(const Tensor& numbers) { return head(through_blocks(numbers).sum(1)); }
  // Blocks take all parts of all samples, as of the choices of a question.
  Tensor by_part(const Tensor& numbers) {
    return head(through_blocks(numbers.reshape({-1, kNumbers}) * 2).view({-1, kParts, kNumbers}).sum(1));
  }
  torch::nn::ModuleList blocks;
  torch::nn::Linear head;
};

struct Case {
  const char* what;
  Tensor (Net::*forward)(const Tensor&);
  std::vector<std::string> layers;
};

}  // namespace

TEST_CASE("blocks may take the arguments themselves, or several parts of each sample", "[program]") {
  const Case one = GENERATE(Case{"arguments", &Net::at_once, {"embedding", "blocks.1", "blocks.2", "head"}},
                            Case{"parts", &Net::by_part, {"embedding", "blocks.1", "blocks.2", "head"}});
  CAPTURE(one.what);
  std::shared_ptr<Net> net;
  const TracedModel model{.arguments = {"numbers"},
                          .columns = {{.name = "numbers", .sizes = {kParts, kNumbers}}},
                          .make =
                              [&] {
                                net = std::make_shared<Net>();
                                return traced_module(net, one.forward);
                              },
                          .name = "net"};
  const TracedLabels labels{.predicts = ProgramUse::Predicts::segment, .count = kClasses};
  const auto program = cut_program(traced_archive(model, labels, 3, 8), kUse);
  std::vector<std::string> names;
  for (const auto& layer : program->layers) names.push_back(layer.name);
  CHECK(names == one.layers);

  Microbatch batch = causal_microbatch(at::arange(kSamples * program->source_rows(), at::kLong).view({kSamples, -1}),
                                       Tensor(), at::arange(kSamples, at::kLong));
  batch.targets = at::arange(kSamples, at::kLong) % kClasses;
  batch.columns = {
      {"numbers",
       (at::arange(kSamples * kParts * kNumbers, at::kFloat) * 0.37).sin().view({kSamples, kParts, kNumbers})}};
  const SplitRuns runs(program, batch);
  const Tensor logits = (net.get()->*one.forward)(batch.columns.at("numbers"));
  const double loss = at::cross_entropy_loss(logits, batch.targets).item<double>();
  CHECK(runs.run(runs.whole, {.ranks = 1}).loss.sum == Approx(loss * kSamples).epsilon(1e-5));
  check_samples(program, runs.whole, program->source_rows());
}

}  // namespace shardline::column_blocks_test
