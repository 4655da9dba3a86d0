#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/error.h"
#include "models/program/layers/program_layers.h"
#include "tests/models/program/pairs_program.h"
#include "tests/models/program/program_run.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::pairs_layers_test {
namespace {

using namespace pairs_program;

}  // namespace

TEST_CASE("an encoder and a decoder have the loss and the gradients of PyTorch", "[program]") {
  const auto wanted = expected();
  ProgramRun layers(pairs());
  const Microbatch batch = batch_of({0, 1, 2});
  const LossTerm loss = layers.train(batch, 1.0 / 10);
  CHECK(loss.weight == 10);
  CHECK(loss.sum / 10 == Approx(wanted["loss"].get<double>()).epsilon(1e-6));
  for (const auto& [name, tensor] : layers.gradients()) {
    CAPTURE(name);
    const auto values = wanted["gradients"][name].get<std::vector<double>>();
    const auto flat = tensor.flatten();
    REQUIRE(flat.numel() == std::ssize(values));
    for (size_t i = 0; i < values.size(); ++i)
      CHECK(flat[i].item<double>() == Approx(values[i]).epsilon(1e-4).margin(1e-7));
  }
}

TEST_CASE("sources with targets of different lengths have the same gradients as alone", "[program]") {
  const auto program = dropped_pairs(GENERATE(0.0, 0.3));
  ProgramRun together(program, at::kDouble), alone(program, at::kDouble);
  const LossTerm all = together.train(batch_of({0, 1, 2}));
  LossTerm sum;
  for (const int sample : {0, 1, 2}) {
    const LossTerm one = alone.train(batch_of({sample}));
    sum.sum += one.sum;
    sum.weight += one.weight;
  }
  CHECK(all.weight == sum.weight);
  CHECK(all.sum == Approx(sum.sum).epsilon(1e-13));
  CHECK(largest_difference(together.gradients(), alone.gradients()) < 1e-12);
}

TEST_CASE("the next token of a target can be predicted from the tokens before it", "[program]") {
  const auto wanted = expected();
  ProgramRun layers(pairs());
  Microbatch batch = batch_of({0});
  batch.labels = at::Tensor();
  batch = part_of(batch, {0, 1});
  batch.ids = batch.ids.narrow(0, 0, batch.target_begins[0] + 1);  // one target token, which is still unknown
  batch.positions = batch.places = batch.positions.narrow(0, 0, batch.ids.numel());
  batch.samples = batch.samples.narrow(0, 0, batch.ids.numel());
  batch.ends = {batch.ids.numel()};
  const auto logits = layers.run(batch, Mode::generate)[0];
  REQUIRE(logits.sizes() == std::vector<int64_t>{1, words_program::kWords});
  for (int64_t word = 0; word < words_program::kWords; ++word)
    CHECK(logits[0][word].item<double>() ==
          Approx(wanted["first_logits"][0][word].get<double>()).epsilon(1e-4).margin(1e-6));
}

TEST_CASE("half precision gives the results of fp32 up to rounding", "[program]") {
  const auto program = pairs();
  ProgramRun exact(program), half(program, at::kBFloat16), wide(program, at::kBFloat16, {.border = at::kFloat});
  const Microbatch batch = batch_of({0, 1, 2});
  const double loss = exact.train(batch, 0.1).sum;
  for (ProgramRun* layers : {&half, &wide}) {
    CHECK(layers->train(batch, 0.1).sum == Approx(loss).epsilon(2e-2));
    for (const auto& [name, gradient] : layers->gradients()) {
      CAPTURE(name);
      CHECK(gradient.scalar_type() == at::kFloat);
      const auto wanted = exact.gradients().at(name);
      CHECK((gradient - wanted).norm().item<double>() < 0.1 * wanted.norm().item<double>() + 1e-3);
    }
  }
}

}  // namespace shardline::pairs_layers_test
