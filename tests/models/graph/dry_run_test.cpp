// tests/engine/plan/activation_plan_test.cpp, tests/engine/train/activation_peak_test.cpp and tests/mpi/memory_mpi.cpp
// compare these bytes with real steps.
#include "models/graph/dry_run.h"

#include "models/families/gpt2.h"

#include "tests/catch.h"

namespace shardline::dry_run_test {
namespace {

ModelSpec small_gpt2(bool sequence_parallel = false) {
  Gpt2Config c;
  c.vocab_size = 1000, c.n_positions = 64, c.n_embd = 32, c.n_layer = 3, c.n_head = 4;
  return gpt2_spec(c, {}, sequence_parallel);
}

int products(const LayerWork& work, Phase phase) {
  int count = 0;
  for (const auto& product : work.products) count += product.phase == phase && !product.core;
  return count;
}

}  // namespace

TEST_CASE("a layer that states no costs has those of its ops") {
  ModelSpec spec = small_gpt2();
  add_costs_of_ops(spec);
  CHECK(spec.layers[0].flops_per_token == 0);
  CHECK(spec.layers[1].flops_per_token == 2 * (4 * 32 * 32 + 2 * 32 * 128));
  CHECK(spec.layers[4].flops_per_token == 2 * 1000 * 32);

  const LayerWork block = spec.layers[1].work({.sequences = 2, .length = 8, .tensor = 2});
  CHECK(block.heads == 4);
  CHECK(block.hidden == 32);
  CHECK(block.recomputable);
  for (const Phase phase : {Phase::forward, Phase::backward_input, Phase::backward_weight})
    CHECK(products(block, phase) == 4);
  REQUIRE(block.collectives.size() == 4);
  for (const auto& collective : block.collectives) {
    CHECK(collective.kind == Collective::Kind::all_reduce);
    CHECK(collective.bytes == 16 * 32 * 4);
  }
  CHECK(products(spec.layers[4].work({.length = 8}), Phase::forward) == 3);  // the head makes its gradients at once

  const int64_t tokens = 16, border = tokens * 32 * 4;
  const KeptCase at{.tokens = tokens, .rows = tokens};
  // Inputs and results of two norms, q, k and v, attention and its sums, the MLP before and after its activation.
  CHECK(spec.layers[1].kept(at).activations == (4 + 3 + 1 + 8) * border + 4 * tokens * 4 + 4 * tokens * 4);
  KeptCase selective = at;
  selective.recompute_attention = true;
  CHECK(spec.layers[1].kept(at).activations - spec.layers[1].kept(selective).activations == border + 4 * tokens * 4);
  CHECK(spec.layers[0].kept(at) == KeptBytes{});
  CHECK(spec.layers[0].passes(at).forward == 2 * border);
}

// The rows of logits begin at multiples of 64 elements.
TEST_CASE("on an accelerator, a dry run counts logits for as many tokens as the kernels hold") {
  ModelSpec spec = small_gpt2();
  add_costs_of_ops(spec);
  const auto more_for_logits = [&](int64_t tokens, int64_t element_bytes, int t_degree) {
    const KeptCase cpu{.tokens = tokens,
                       .rows = tokens,
                       .t_degree = t_degree,
                       .element_bytes = element_bytes,
                       .border_bytes = element_bytes};
    KeptCase accelerator = cpu;
    accelerator.on_accelerator = true;
    for (const auto& layer : spec.layers) CHECK(layer.kept(accelerator) == layer.kept(cpu));
    CHECK(spec.layers[1].passes(accelerator).backward == spec.layers[1].passes(cpu).backward);
    const LayerSpec& head = spec.layers[4];
    return head.passes(accelerator).forward - head.passes(cpu).forward;
  };
  CHECK(more_for_logits(5000, 4, 1) == (2048 * 1024 - 256 * 1000) * 4);
  CHECK(more_for_logits(5000, 2, 1) == (4096 * 1024 - 256 * 1000) * 2);
  CHECK(more_for_logits(3000, 2, 1) == (3000 * 1024 - 256 * 1000) * 2);
  CHECK(more_for_logits(5000, 2, 3) == (4096 * 384 - 256 * 334) * 2);
  CHECK(more_for_logits(100, 4, 1) == 100 * 24 * 4);
}

TEST_CASE("work that does not run costs nothing") {
  ModelSpec spec = small_gpt2();
  for (auto& param : spec.layers[2].params) param.trainable = false;
  add_costs_of_ops(spec);
  const WorkShape shape{.length = 8};
  CHECK(products(spec.layers[2].work(shape), Phase::backward_input) == 4);
  CHECK(products(spec.layers[2].work(shape), Phase::backward_weight) == 0);
  CHECK(spec.layers[2].work(shape).sweeps.size() < spec.layers[1].work(shape).sweeps.size());
  CHECK(products(spec.layers[3].work(shape), Phase::backward_weight) == 4);
  CHECK(spec.layers[2].flops_per_token == spec.layers[1].flops_per_token * 2 / 3);
}

TEST_CASE("a layer without a backward pass keeps nothing and costs its forward pass") {
  ModelSpec spec = small_gpt2();
  for (size_t i : {0, 1}) {
    for (auto& param : spec.layers[i].params) param.trainable = false;
    spec.layers[i].has_backward = false;
  }
  add_costs_of_ops(spec);
  const WorkShape shape{.length = 8};
  const KeptCase at{.tokens = 8, .rows = 8};
  CHECK(products(spec.layers[1].work(shape), Phase::forward) == products(spec.layers[2].work(shape), Phase::forward));
  for (const Phase phase : {Phase::backward_input, Phase::backward_weight})
    CHECK(products(spec.layers[1].work(shape), phase) == 0);
  CHECK(!spec.layers[1].work(shape).recomputable);
  CHECK(spec.layers[1].flops_per_token == spec.layers[2].flops_per_token / 3);
  for (size_t i : {0, 1}) {
    CHECK(spec.layers[i].kept(at) == KeptBytes{});
    const PassBytes passes = spec.layers[i].passes(at);
    CHECK(passes.forward > 0);
    CHECK(passes.backward == 0);
    CHECK(passes.input_gradient == 0);
  }
  CHECK(spec.layers[1].passes(at).forward < spec.layers[2].passes(at).forward);
}

TEST_CASE("a layer that states its costs keeps them") {
  ModelSpec spec = small_gpt2();
  spec.layers[1].work = [](const WorkShape&) { return LayerWork{.heads = 7}; };
  spec.layers[1].flops_per_token = 5;
  add_costs_of_ops(spec);
  CHECK(spec.layers[1].work({}).heads == 7);
  CHECK(spec.layers[1].flops_per_token == 5);
  CHECK(spec.layers[2].work({}).heads == 4);
}

}  // namespace shardline::dry_run_test
