#include "models/program/layers/program_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <map>

#include "core/error.h"
#include "tests/models/program/program_run.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::program_layers_test {
namespace {

using namespace words_program;

std::shared_ptr<const Program> program_of(const std::string& file = path()) {
  return cut_program(read_pt2(file));
}

using Catch::Matchers::Contains;

Microbatch whole_batch() {
  return causal_microbatch(ids(), ids(), at::arange(ids().size(0)));
}

// Samples 0 and 1 with different lengths, one after the other.
Microbatch mixed_batch(int64_t first, int64_t second) {
  const auto a = causal_microbatch(ids().narrow(0, 0, 1).narrow(1, 0, first), ids().narrow(0, 0, 1).narrow(1, 0, first),
                                   at::full({1}, 0, at::kLong));
  const auto b = causal_microbatch(ids().narrow(0, 1, 1).narrow(1, 0, second),
                                   ids().narrow(0, 1, 1).narrow(1, 0, second), at::full({1}, 1, at::kLong));
  Microbatch both;
  for (const auto member : {&Microbatch::ids, &Microbatch::labels, &Microbatch::positions, &Microbatch::samples,
                            &Microbatch::places, &Microbatch::segment_samples, &Microbatch::segment_places})
    both.*member = at::cat({a.*member, b.*member});
  both.ends = {first, first + second};
  both.is_rectangular = first == second;
  both.position_count = std::max(first, second);
  return both;
}

// The program with this dropout probability.
void write_dropped(const std::string& to, double probability) {
  write_changed_json(to, "models/model.json", [&](nlohmann::json& model) {
    for (auto& node : model["graph_module"]["graph"]["nodes"])
      if (node["target"] == "torch.ops.aten.dropout.default") node["inputs"][1]["arg"]["as_float"] = probability;
  });
}

}  // namespace

TEST_CASE("a program becomes a list of layers whose parameters have its names", "[program]") {
  const ModelSpec spec = spec_of_program(cut_program(read_pt2(path())), 4);
  CHECK(spec.block_count() == 2);
  CHECK(spec.vocab_size == kWords);
  CHECK(spec.max_positions == kPositions);
  CHECK(spec.param("embedding.words.weight").shape == std::vector<int64_t>{kWords, kFeatures});
  CHECK(spec.param("head.head.weight").tied_to == "embedding.words.weight");
  CHECK(spec.param("blocks.1.up.weight").sources[0].tensor == "blocks.1.up.weight");
  CHECK(spec.param("blocks.1.up.weight").decays);
  CHECK(!spec.param("blocks.1.up.bias").decays);
  CHECK(spec.layers[1].output[0].shape == std::vector<int64_t>{BorderTensor::kRows, kFeatures});
  CHECK(spec.layers[3].output.empty());
  CHECK(layer_kind(spec.layers[1]) == layer_kind(spec.layers[2]));
  // Two products with weights, and the product of the mask and the hidden states.
  CHECK(spec.layers[1].flops_per_token >= 2 * 2 * 8 * kFeatures);
  CHECK(spec.layers[3].flops_per_token == 2 * kWords * kFeatures);
}

TEST_CASE("the layers of a program compute the loss and the gradients of PyTorch", "[program]") {
  const auto wanted = expected();
  ProgramRun layers(program_of());
  const Microbatch batch = whole_batch();
  const double weight = ids().size(0) * (ids().size(1) - 1);
  const LossTerm loss = layers.train(batch, 1 / weight);
  CHECK(loss.weight == weight);
  CHECK(loss.sum / weight == Approx(wanted["loss"].get<double>()).epsilon(1e-6));
  const auto gradients = layers.gradients();
  CHECK(gradients.size() == wanted["gradients"].size());
  for (const auto& [name, tensor] : gradients) {
    CAPTURE(name);
    const auto values = wanted["gradients"][name].get<std::vector<double>>();
    const auto flat = tensor.flatten();
    REQUIRE(flat.numel() == std::ssize(values));
    for (size_t i = 0; i < values.size(); ++i)
      CHECK(flat[i].item<double>() == Approx(values[i]).epsilon(1e-4).margin(1e-7));
  }
  LossTerm evaluated;
  CHECK(layers.run(batch, Mode::evaluate, &evaluated).empty());
  CHECK(evaluated.sum == loss.sum);
  const auto last = layers.run(batch, Mode::generate)[0];
  CHECK(last.sizes() == std::vector<int64_t>{ids().size(0), kWords});
  CHECK(last[0][0].item<double>() == Approx(wanted["last_logits"][0][0].get<double>()).epsilon(1e-5));
}

TEST_CASE("samples of different lengths have the same gradients as alone", "[program]") {
  const double dropout = GENERATE(0.0, 0.3);
  CAPTURE(dropout);
  const ScratchDirectory scratch;
  write_dropped(scratch / "dropped.pt2", dropout);
  ProgramRun together(program_of(scratch / "dropped.pt2"), at::kDouble),
      alone(program_of(scratch / "dropped.pt2"), at::kDouble);
  const LossTerm both = together.train(mixed_batch(3, 7));
  const auto part = [&](int64_t sample, int64_t length) {
    const auto rows = ids().narrow(0, sample, 1).narrow(1, 0, length);
    return alone.train(causal_microbatch(rows, rows, at::full({1}, sample, at::kLong)));
  };
  const LossTerm first = part(0, 3), second = part(1, 7);
  CHECK(both.weight == first.weight + second.weight);
  CHECK(both.sum == Approx(first.sum + second.sum).epsilon(1e-13));
  CHECK(largest_difference(together.gradients(), alone.gradients()) < 1e-12);
}

TEST_CASE("dropout is a function of seed, step, sample and position", "[program]") {
  const ScratchDirectory scratch;
  write_dropped(scratch / "dropped.pt2", 0.3);
  ProgramRun layers(program_of(scratch / "dropped.pt2"));
  const double loss = layers.train(whole_batch()).sum;
  CHECK(layers.train(whole_batch()).sum == loss);
  CHECK(layers.train(causal_microbatch(ids(), ids(), at::arange(10, 10 + ids().size(0)))).sum != loss);
  LossTerm evaluated;
  layers.run(whole_batch(), Mode::evaluate, &evaluated);
  CHECK(evaluated.sum == Approx(ProgramRun(program_of()).train(whole_batch()).sum).epsilon(1e-6));
}

TEST_CASE("a microbatch without samples adds nothing", "[program]") {
  ProgramRun layers(program_of());
  Microbatch empty = part_of(whole_batch(), {0, 0});
  const LossTerm loss = layers.train(empty);
  CHECK(loss.weight == 0);
  for (const auto& [name, gradient] : layers.gradients()) CHECK(gradient.abs().max().item<double>() == 0);
}

TEST_CASE("a program with unknown arguments is refused by name", "[program]") {
  const ScratchDirectory scratch;
  write_changed(scratch / "renamed.pt2", "models/model.json", [](std::string text) {
    for (size_t at = 0; (at = text.find("attention_mask", at)) != std::string::npos;)
      text.replace(at, 14, "other_argument");
    return text;
  });
  CHECK_THROWS_WITH(spec_of_program(cut_program(read_pt2(scratch / "renamed.pt2")), 4),
                    Contains("nothing provides its argument other_argument"));
}

}  // namespace shardline::program_layers_test
