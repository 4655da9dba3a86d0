// Programs whose layers pass several tensors of different shapes, compared with the same modules run by LibTorch.
#include "models/program/layers/border_slots.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "core/error.h"
#include "models/program/trace/traced_archive.h"
#include "models/traced/sample_check.h"
#include "tests/models/program/program_run.h"
#include "tests/models/program/split/split_runs.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::border_slots_test {
namespace {

using at::Tensor;
using Predicts = ProgramUse::Predicts;

constexpr int64_t kWords = 13, kWidth = 6, kHeads = 2, kHeadWidth = 5;

struct Block : torch::nn::Module {
  Block() : inner(kWidth, kWidth), out(kHeads * kHeadWidth, kWidth) {
    register_module("inner", inner);
    register_module("out", out);
  }
  // hidden: [batch, length, features]; heads: [batch, heads, length, features of a head]; summary: [batch, features]
  Tensor forward(const Tensor& hidden, const Tensor& heads, const Tensor& summary) {
    const Tensor made = at::tanh(inner(hidden));  // first, so that the trace assigns the rest to the block, too
    const Tensor seen = heads.transpose(1, 2).reshape({hidden.size(0), hidden.size(1), kHeads * kHeadWidth});
    return hidden + made * summary.unsqueeze(1) + out(seen);
  }
  torch::nn::Linear inner, out;
};

// All blocks read the heads and the summary that are made before the first.
struct Net : torch::nn::Module {
  Net() : words(kWords, kWidth), heads(kWidth, kHeads * kHeadWidth), summary(kWidth, kWidth), head(kWidth, kWords) {
    register_module("words", words);
    register_module("heads", heads);
    register_module("summary", summary);
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<Block>());
    register_module("head", head);
  }
  std::vector<Tensor> forward(const Tensor& ids, const Tensor& labels) {
    Tensor x = words(ids);
    const Tensor values = heads(x).view({x.size(0), x.size(1), kHeads, kHeadWidth}).transpose(1, 2);
    const Tensor of_sample = summary(x.select(1, 0));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x, values, of_sample);
    const Tensor logits = head(x);
    const Tensor rows = logits.narrow(1, 0, logits.size(1) - 1).reshape({-1, kWords});
    return {at::cross_entropy_loss(rows, labels.narrow(1, 1, logits.size(1) - 1).reshape({-1})), logits};
  }
  torch::nn::Embedding words;
  torch::nn::Linear heads, summary;
  torch::nn::ModuleList blocks;
  torch::nn::Linear head;
};

Pt2Archive traced_net() {
  return traced_archive({.vocab_size = kWords,
                         .arguments = {"input_ids", "labels"},
                         .results = {"loss", "logits"},
                         .make = [] { return traced_module(std::make_shared<Net>(), &Net::forward); },
                         .name = "net"},
                        {}, 3, 16);
}

// Images that convolutions change into others of the same size.
struct ImageNet : torch::nn::Module {
  static constexpr int64_t kChannels = 4, kClasses = 3;
  ImageNet() : stem(torch::nn::Conv2dOptions(2, kChannels, 3).padding(1)), head(kChannels, kClasses) {
    register_module("stem", stem);
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i)
      blocks->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(kChannels, kChannels, 3).padding(1)));
    register_module("head", head);
  }
  std::vector<Tensor> forward(const Tensor& image, const Tensor& labels) {
    Tensor x = stem(image);
    for (const auto& block : *blocks) x = x + at::tanh(block->as<torch::nn::Conv2dImpl>()->forward(x));
    const Tensor logits = head(x.mean({2, 3}));
    return {at::cross_entropy_loss(logits, labels), logits};
  }
  torch::nn::Conv2d stem;
  torch::nn::ModuleList blocks;
  torch::nn::Linear head;
};

// Convolutions without repeated modules; their results are large until the mean of the last one.
struct SmallImageNet : torch::nn::Module {
  SmallImageNet()
      : first(torch::nn::Conv2dOptions(2, ImageNet::kChannels, 3).padding(1)),
        second(torch::nn::Conv2dOptions(ImageNet::kChannels, ImageNet::kChannels, 3).padding(1)),
        head(ImageNet::kChannels, ImageNet::kClasses) {
    register_module("first", first);
    register_module("second", second);
    register_module("head", head);
  }
  std::vector<Tensor> forward(const Tensor& image, const Tensor& labels) {
    const Tensor logits = head(at::tanh(second(at::tanh(first(image)))).mean({2, 3}));
    return {at::cross_entropy_loss(logits, labels), logits};
  }
  torch::nn::Conv2d first, second;
  torch::nn::Linear head;
};

// A loss that takes classes only.
struct OwnLossNet : SmallImageNet {
  std::vector<Tensor> forward(const Tensor& image, const Tensor& labels) {
    const Tensor logits = SmallImageNet::forward(image, labels)[1];
    return {-logits.log_softmax(1).gather(1, labels.unsqueeze(1)).mean(), logits};
  }
};

// [length, batch, features], as in torch::nn::TransformerEncoder.
struct LengthFirstBlock : torch::nn::Module {
  explicit LengthFirstBlock(double p) : up(kWidth, 2 * kWidth), down(2 * kWidth, kWidth), drops(p) {
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) {
    const Tensor made = down(at::tanh(up(x)));
    return x.cumsum(0) * 0.3 + torch::nn::functional::dropout(
                                   made, torch::nn::functional::DropoutFuncOptions().p(drops).training(is_training()));
  }
  torch::nn::Linear up, down;
  double drops;
};

template <int percent>  // dropped
struct LengthFirstNet : torch::nn::Module {
  LengthFirstNet() : words(kWords, kWidth), head(kWidth, kWords) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<LengthFirstBlock>(percent / 100.0));
    register_module("head", head);
  }
  std::vector<Tensor> forward(const Tensor& ids, const Tensor& labels) {
    Tensor x = words(ids).transpose(0, 1);
    for (const auto& block : *blocks) x = block->as<LengthFirstBlock>()->forward(x);
    const Tensor logits = head(x);
    const Tensor rows = logits.transpose(0, 1).narrow(1, 0, logits.size(0) - 1).reshape({-1, kWords});
    return {at::cross_entropy_loss(rows, labels.narrow(1, 1, logits.size(0) - 1).reshape({-1})), logits};
  }
  torch::nn::Embedding words;
  torch::nn::ModuleList blocks;
  torch::nn::Linear head;
};

template <int percent>
Pt2Archive traced_length_first() {
  return traced_archive(
      {.vocab_size = kWords,
       .arguments = {"input_ids", "labels"},
       .results = {"loss", "logits"},
       .make =
           [] { return traced_module(std::make_shared<LengthFirstNet<percent>>(), &LengthFirstNet<percent>::forward); },
       .name = "net"},
      {}, 3, 16);
}

// A single product after the words.
struct ShortNet : torch::nn::Module {
  ShortNet() : words(kWords, kWidth), head(kWidth, kWords) {
    register_module("words", words);
    register_module("head", head);
  }
  std::vector<Tensor> forward(const Tensor& ids, const Tensor& labels) {
    const Tensor logits = head(at::tanh(words(ids)));
    const Tensor rows = logits.narrow(1, 0, logits.size(1) - 1).reshape({-1, kWords});
    return {at::cross_entropy_loss(rows, labels.narrow(1, 1, logits.size(1) - 1).reshape({-1})), logits};
  }
  torch::nn::Embedding words;
  torch::nn::Linear head;
};

// What LibTorch computes with the archive's weights: the mean loss, and gradients by name.
template <class Module>
std::pair<double, std::map<std::string, Tensor>> direct(const Pt2Archive& archive, const Tensor& input,
                                                        const Tensor& labels) {
  const auto module = std::make_shared<Module>();
  for (auto& parameter : module->named_parameters())
    parameter.value().set_data(archive.weights->tensor(parameter.key()).clone());
  module->to(at::kDouble);
  const Tensor given = input.is_floating_point() ? input.to(at::kDouble) : input;
  const Tensor loss = module->forward(given, labels)[0];
  loss.backward();
  std::map<std::string, Tensor> gradients;
  for (const auto& parameter : module->named_parameters()) gradients[parameter.key()] = parameter.value().grad();
  return {loss.template item<double>(), gradients};
}

Tensor some_ids(int64_t samples, int64_t length) {
  return (at::arange(samples * length) * 5).remainder(kWords).view({samples, length});
}

template <class Module>
Pt2Archive traced_images() {
  return traced_archive({.arguments = {"image", "labels"},
                         .results = {"loss", "logits"},
                         .columns = {{.name = "image", .dtype = at::kFloat, .sizes = {2, 5, 5}}},
                         .make = [] { return traced_module(std::make_shared<Module>(), &Module::forward); },
                         .name = "images"},
                        {.predicts = Predicts::segment, .count = ImageNet::kClasses}, 3, 16);
}

std::shared_ptr<const Program> cut_images(const Pt2Archive& archive) {
  return cut_program(archive, {.predicts = Predicts::segment, .inputs = {{"image", "image"}}});
}

Microbatch batch_of(const Tensor& images, const Tensor& labels) {
  Microbatch batch = causal_microbatch(at::zeros({images.size(0), 1}, at::kLong), {}, at::arange(images.size(0)));
  batch.targets = labels;
  batch.columns = {{"image", images}};
  return batch;
}

// Compares microbatches of images with LibTorch.
template <class Module>
void check_images() {
  const Pt2Archive archive = traced_images<Module>();
  const auto program = cut_images(archive);
  CHECK(program->source_rows() == 1);
  const auto spec = spec_of_program(program, 1);
  CHECK(spec.layers[0].output[0].shape == std::vector<int64_t>{BorderTensor::kRows, ImageNet::kChannels * 25});
  const Tensor images = at::randn({4, 2, 5, 5}), labels = at::arange(4).remainder(ImageNet::kClasses);
  const Microbatch batch = batch_of(images, labels);
  const auto [loss, gradients] = direct<Module>(archive, images, labels);
  ProgramRun run(program, at::kDouble, {}, 1);
  double sum = 0;
  for (const Range& part : {Range{0, 1}, Range{1, 3}}) sum += run.train(part_of(batch, part), 1.0 / 4).sum;
  CHECK(sum / 4 == Approx(loss).epsilon(1e-6));
  CHECK(largest_difference(run.gradients(), gradients) < 1e-5);
  check_samples(program, spec, 1);
}

}  // namespace

TEST_CASE("layers pass hidden states, heads of them and vectors of samples to the next", "[borders]") {
  const Pt2Archive archive = traced_net();
  const auto program = cut_program(archive);
  REQUIRE(program->layers.size() == 5);
  const auto spec = spec_of_program(program, 8);
  for (int layer = 0; layer < 3; ++layer) {
    std::multiset<int64_t> features;
    for (const auto& tensor : spec.layers[layer].output) features.insert(tensor.shape.back());
    CHECK(features == std::multiset<int64_t>{kWidth, kWidth, kHeads * kHeadWidth});
  }
  CHECK(spec.layers[3].output.size() == 1);

  const Tensor ids = some_ids(3, 7);
  const auto [loss, gradients] = direct<Net>(archive, ids, ids);
  ProgramRun run(program, at::kDouble);
  const Microbatch batch = causal_microbatch(ids, ids, at::arange(3));
  CHECK(run.train(batch, 1.0 / 18).sum / 18 == Approx(loss).epsilon(1e-12));
  CHECK(largest_difference(run.gradients(), gradients) < 1e-10);
  check_samples(program, spec, 8);
}

TEST_CASE("samples that pass several tensors have the same gradients as alone", "[borders]") {
  const auto program = cut_program(traced_net());
  const Tensor ids = some_ids(2, 7);
  ProgramRun together(program, at::kDouble), alone(program, at::kDouble);
  const Microbatch batch = causal_microbatch(ids, ids, at::arange(2));
  const double both = together.train(batch).sum;
  double sum = 0;
  for (int64_t i = 0; i < 2; ++i) sum += alone.train(part_of(batch, {i, 1})).sum;
  CHECK(both == Approx(sum).epsilon(1e-13));
  CHECK(largest_difference(together.gradients(), alone.gradients()) < 1e-12);
}

TEST_CASE("tensor-parallel ranks hold border tensors whole unless their rows are tokens", "[borders]") {
  const Tensor ids = some_ids(3, 7);
  const split_runs::SplitRuns runs(cut_program(traced_net()), causal_microbatch(ids, ids, at::arange(3)));
  for (const bool divides_rows : {false, true}) {
    const auto split = runs.splitter.split(2, {}, divides_rows);
    CHECK(runs.distance(split) < 1e-12);
  }
}

TEST_CASE("hidden states and logits may have the tokens first and the samples second", "[borders]") {
  const Pt2Archive archive = traced_length_first<0>();
  const auto program = cut_program(archive);
  const auto form = hidden_form(*program, program->layers[2].border.at(0));
  REQUIRE(form);
  CHECK(form->batch == 1);
  CHECK(form->length == 0);
  CHECK(form->features == kWidth);
  const Tensor ids = some_ids(3, 7);
  const auto [loss, gradients] = direct<LengthFirstNet<0>>(archive, ids, ids);
  ProgramRun run(program, at::kDouble);
  const Microbatch batch = causal_microbatch(ids, ids, at::arange(3));
  CHECK(run.train(batch, 1.0 / 18).sum / 18 == Approx(loss).epsilon(1e-12));
  CHECK(largest_difference(run.gradients(), gradients) < 1e-10);
  check_samples(program, run.spec, 8);
  const Tensor predicted = run.run(batch, Mode::evaluate, nullptr, true)[0].view({3, 7, kWords});
  CHECK(at::allclose(run.run(batch, Mode::generate)[0], predicted.select(1, 6), 1e-12));
  const split_runs::SplitRuns runs(program, batch);
  for (const bool divides_rows : {false, true}) CHECK(runs.distance(runs.splitter.split(2, {}, divides_rows)) < 1e-12);
}

TEST_CASE("dropout of hidden states with the tokens first is a function of sample and position", "[borders]") {
  const auto program = cut_program(traced_length_first<20>());
  const Tensor ids = some_ids(3, 7);
  const Microbatch batch = causal_microbatch(ids, ids, at::arange(3));
  ProgramRun together(program, at::kDouble), alone(program, at::kDouble);
  const double all = together.train(batch).sum;
  double sum = 0;
  for (int64_t i = 0; i < 3; ++i) sum += alone.train(part_of(batch, {i, 1})).sum;
  CHECK(all == Approx(sum).epsilon(1e-13));
  CHECK(largest_difference(together.gradients(), alone.gradients()) < 1e-12);
  const split_runs::SplitRuns runs(program, batch);
  CHECK(runs.distance(runs.splitter.split(2, {})) < 1e-12);
}

TEST_CASE("programs without repeated modules are cut between products where few features pass", "[borders]") {
  Pt2Archive archive = read_pt2(words_program::path());
  for (auto& node : archive.graph.nodes) node.modules.clear();
  const auto program = cut_program(archive);
  CHECK(program->layers.front().name == "embedding");
  CHECK(program->layers[1].name == "part.0");
  CHECK(program->layers.back().name == "head");
  CHECK(program->layers.size() > 3);
  const auto spec = spec_of_program(program, 8);
  for (size_t i = 0; i + 1 < spec.layers.size(); ++i) {
    int64_t features = 0;
    for (const auto& tensor : spec.layers[i].output) features += tensor.shape.back();
    CHECK(features <= 2 * words_program::kFeatures);
  }
  const Tensor ids = words_program::ids();
  const Microbatch batch = causal_microbatch(ids, ids, at::arange(ids.size(0)));
  ProgramRun run(program, at::kDouble), of_modules(cut_program(read_pt2(words_program::path())), at::kDouble);
  CHECK(run.train(batch).sum == Approx(of_modules.train(batch).sum).epsilon(1e-13));
  CHECK(largest_difference(run.gradients(), of_modules.gradients()) < 1e-12);
  check_samples(program, spec, 8);
}

TEST_CASE("a program that can be cut at one place has no blocks", "[borders]") {
  const Pt2Archive archive =
      traced_archive({.vocab_size = kWords,
                      .arguments = {"input_ids", "labels"},
                      .results = {"loss", "logits"},
                      .make = [] { return traced_module(std::make_shared<ShortNet>(), &ShortNet::forward); },
                      .name = "short"},
                     {}, 3, 16);
  const auto program = cut_program(archive);
  REQUIRE(program->layers.size() == 2);
  CHECK(program->layers[0].name == "embedding");
  CHECK(program->layers[1].name == "head");
  const Tensor ids = some_ids(3, 7);
  const auto [loss, gradients] = direct<ShortNet>(archive, ids, ids);
  ProgramRun run(program, at::kDouble);
  const Microbatch batch = causal_microbatch(ids, ids, at::arange(3));
  CHECK(run.train(batch, 1.0 / 18).sum / 18 == Approx(loss).epsilon(1e-12));
  CHECK(largest_difference(run.gradients(), gradients) < 1e-10);
}

TEST_CASE("blocks of images pass them to the next layer as one row per sample", "[borders]") {
  check_images<ImageNet>();
}

TEST_CASE("programs of convolutions are cut although their results are much larger than the last features",
          "[borders]") {
  check_images<SmallImageNet>();
}

TEST_CASE("predictions for samples without labels need no loss", "[borders]") {
  ProgramRun run(cut_images(traced_images<OwnLossNet>()), at::kFloat, {}, 1);
  const Tensor images = at::randn({4, 2, 5, 5}), labels = at::arange(4).remainder(ImageNet::kClasses);
  LossTerm loss;
  const Border labelled = run.run(batch_of(images, labels), Mode::evaluate, &loss, true);
  CHECK(loss.weight == 4);
  const Border unlabelled = run.run(batch_of(images, at::full_like(labels, kNoLabel)), Mode::evaluate, &loss, true);
  CHECK(loss.weight == 0);
  CHECK(at::equal(labelled.at(0), unlabelled.at(0)));
}

}  // namespace shardline::border_slots_test
