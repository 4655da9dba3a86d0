// Where stages of a program are cut if its layers pass different numbers of bytes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>

#include "engine/config/config.h"
#include "engine/plan/assignment.h"
#include "models/program/layers/program_layers.h"
#include "models/program/trace/traced_archive.h"

#include "tests/catch.h"

namespace shardline::program_cut_test {
namespace {

constexpr int64_t kWords = 16, kWidth = 16, kCopies = 8, kBlocks = 8, kFirst = 2, kLast = 5;

// The blocks from kFirst to kLast pass a wide tensor in addition to the hidden states.
struct SkipNet : torch::nn::Module {
  SkipNet() : words(kWords, kWidth), head(kWidth, kWords) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < kBlocks; ++i) blocks->push_back(torch::nn::Linear(kWidth, kWidth));
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = words(ids), wide;
    for (int i = 0; i < kBlocks; ++i) {
      const at::Tensor y = blocks->ptr<torch::nn::LinearImpl>(i)->forward(x);
      if (i == kFirst) wide = y.unsqueeze(2) * at::tanh(x).narrow(2, 0, kCopies).unsqueeze(3);
      x = x + at::tanh(y);
      if (i == kLast) x = x + wide.mean(2);
    }
    return head(x);
  }
  torch::nn::Embedding words;
  torch::nn::ModuleList blocks;
  torch::nn::Linear head;
};

// The last layer of the first of two stages.
LayerSpec last_of_first_stage(double bytes_per_second) {
  const Config config = parse_config(
      R"({"model": {"config": {"model_type": "gpt2"}}, "data": {"train": "unused", "tokenizer": "bytes",
          "sequence_length": 16}, "training": {"global_batch_size": 8}, "output_dir": "unused",
          "smp_options": {"pipeline_parallel_degree": 2, "microbatches": 2},
          "runtime": {"device": "cpu", "communicator": "threads"}})",
      "program cut");
  const auto program =
      cut_program(traced_archive({.vocab_size = kWords,
                                  .make = [] { return traced_module(std::make_shared<SkipNet>(), &SkipNet::forward); },
                                  .name = "net"},
                                 {}, 1, 16),
                  {.loss_function = "cross_entropy"});
  const ModelSpec spec = spec_of_program(program, 16);
  const ResolvedRun run = resolve(config, spec, 2);
  Machines machines = planning_machines(config, run.workload, 2);
  machines.cluster.intra_node = {.bytes_per_second = bytes_per_second};
  const auto chunks = assign_layers(config, run, machines);
  return spec.layers[std::ranges::count(chunks, 0) - 1];
}

}  // namespace

TEST_CASE("stages of a program are cut in the middle, or where few bytes pass if the link is slow") {
  const LayerSpec middle = last_of_first_stage(1e15), narrow = last_of_first_stage(1e5);
  REQUIRE(middle.output.size() == 2);
  CHECK(middle.output[0].shape.back() != middle.output[1].shape.back());
  REQUIRE(narrow.output.size() == 1);
  CHECK(narrow.output[0].shape.back() == kWidth);
}

}  // namespace shardline::program_cut_test
