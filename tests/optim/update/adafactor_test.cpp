#include "optim/update/adafactor.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <map>
#include <mutex>

#include "core/comm/local_communicator.h"
#include "core/comm/threads_communicator.h"
#include "core/memory/caching_allocator.h"

#include "tests/catch.h"

namespace shardline::adafactor_test {
namespace {

constexpr double kDecay = 0.1;

// A layer with shapes that occur in models: GPT-2's fused and transposed weights, three tensors of BERT that form one
// parameter, a table, biases that are flat in the file, norms, a stack of matrices, and a matrix whose columns increase
// in steps.
ModelSpec model(bool sequence_parallel) {
  const int64_t heads = 5, dim = 2, hidden = 6;
  LayerSpec layer{.name = "l"};
  layer.params = {
      {.name = "qkv",
       .shape = {3, heads, dim, hidden},
       .split_dim = 1,
       .sources = {{"qkv", {hidden, 3, heads, dim}, {1, 2, 3, 0}, {}, {hidden, 3 * heads * dim}}}},
      {.name = "qkv.bias",
       .shape = {3, heads, dim},
       .split_dim = 1,
       .decays = false,
       .sources = {{.tensor = "qkv.bias", .shape = {3 * heads * dim}}}},
      {.name = "out",
       .shape = {hidden, heads, dim},
       .split_dim = 1,
       .sources = {{"out", {heads, dim, hidden}, {2, 0, 1}, {}, {heads * dim, hidden}}}},
      {.name = "norm",
       .shape = {hidden},
       .decays = false,
       .partial_over_t = sequence_parallel,
       .sources = {{.tensor = "norm"}}},
      {.name = "table", .shape = {11, hidden}, .split_dim = 0, .sources = {{.tensor = "table"}}},
      {.name = "stack", .shape = {4, 3, 5}},
      {.name = "steps",
       .shape = {hidden, dim, heads},
       .split_dim = 2,
       .sources = {{"steps", {hidden, heads, dim}, {0, 2, 1}, {}, {hidden, heads * dim}}}},
      {.name = "frozen", .shape = {4, 4}, .trainable = false},
  };
  ParamSpec three{.name = "three", .shape = {3, heads, dim, hidden}, .split_dim = 1};
  ParamSpec bias{.name = "three.bias", .shape = {3, heads, dim}, .split_dim = 1, .decays = false};
  for (int64_t i = 0; i < 3; ++i) {
    three.sources.push_back({"three", {1, heads, dim, hidden}, {}, {i, 0, 0, 0}, {heads * dim, hidden}});
    bias.sources.push_back({"three.bias", {1, heads, dim}, {}, {i, 0, 0}, {heads * dim}});
  }
  layer.params.push_back(three);
  layer.params.push_back(bias);
  LayerSpec use{.name = "use",
                .params = {{.name = "table", .shape = {11, hidden}, .split_dim = 0, .tied_to = "l.table"}}};
  return {.family = "toy", .layers = {layer, use}};
}

at::Tensor numbers(const std::vector<int64_t>& shape, double key) {
  int64_t elements = 1;
  for (const auto size : shape) elements *= size;
  return at::sin(at::arange(elements, at::kDouble) * 1.7 + key).reshape(shape);
}

// transformers.Adafactor on one tensor of a file, by the formulas in its documentation and the paper.
struct ByFormula {
  at::Tensor rows, columns, squares;
  int steps = 0;

  void step(at::Tensor value, const at::Tensor& g, double rate, double decay) {
    const double kept = 1 - std::pow(++steps, -0.8);
    const auto square = g * g + 1e-30;
    at::Tensor update;
    const auto average = [&](at::Tensor& mean, const at::Tensor& now) {
      mean = (mean.defined() ? mean : at::zeros_like(now)) * kept + now * (1 - kept);
    };
    if (g.dim() >= 2) {
      average(rows, square.mean(-1));
      average(columns, square.mean(-2));
      update = (rows / rows.mean(-1, true)).rsqrt().unsqueeze(-1) * columns.unsqueeze(-2).rsqrt() * g;
    } else {
      average(squares, square);
      update = squares.rsqrt() * g;
    }
    const double rms = std::sqrt(update.square().mean().item<double>());
    value.sub_(value * (decay * rate) + update * (rate / std::max(1.0, rms)));
  }
};

// The tensors of the file, seen in a logical parameter: dimensions in the file's order, not yet joined.
std::vector<at::Tensor> file_views(const ParamSpec& spec, const at::Tensor& logical) {
  if (spec.sources.empty()) return {logical};
  std::vector<at::Tensor> views;
  for (const auto& source : spec.sources) {
    const at::Tensor box = source.offset.empty() ? logical : logical.narrow(0, source.offset[0], 1);
    std::vector<int64_t> inverse(source.permute.size());
    for (size_t d = 0; d < inverse.size(); ++d) inverse[source.permute[d]] = static_cast<int64_t>(d);
    views.push_back(inverse.empty() ? box : box.permute(inverse));
  }
  return views;
}

std::vector<at::Tensor> file_tensors(const ParamSpec& spec, const at::Tensor& logical) {
  auto tensors = file_views(spec, logical);
  for (size_t i = 0; i < spec.sources.size(); ++i)
    if (!spec.sources[i].shape.empty()) tensors[i] = tensors[i].reshape(spec.sources[i].shape);
  for (auto& tensor : tensors) tensor = tensor.clone();
  return tensors;
}

double key_of(size_t param) {
  return 10.0 * static_cast<double>(param);
}

at::Tensor gradient_of(const ParamSpec& spec, size_t param, int step) {
  return numbers(spec.shape, key_of(param) + step) * (step == 2 ? 0.01 : 3.0);
}

constexpr int kSteps = 4;
constexpr double kRate = 0.05;

std::map<std::string, at::Tensor> expected(const ModelSpec& spec) {
  std::map<std::string, at::Tensor> values;
  const auto& params = spec.layers[0].params;
  for (size_t i = 0; i < params.size(); ++i) {
    auto value = numbers(params[i].shape, key_of(i));
    auto tensors = file_tensors(params[i], value);
    std::vector<ByFormula> optimizers(tensors.size());
    for (int step = 1; step <= kSteps && params[i].trainable; ++step) {
      const auto gradients = file_tensors(params[i], gradient_of(params[i], i, step));
      for (size_t t = 0; t < tensors.size(); ++t)
        optimizers[t].step(tensors[t], gradients[t], kRate, params[i].decays ? kDecay : 0);
    }
    const auto views = file_views(params[i], value);
    for (size_t t = 0; t < tensors.size(); ++t) views[t].copy_(tensors[t].view(views[t].sizes()));
    values[params[i].name] = value;
  }
  return values;
}

int64_t optimizer_bytes_now() {
  return memory_totals().now[static_cast<size_t>(MemoryClass::optimizer)];
}

at::Tensor slice_of(const ParamSpec& spec, const at::Tensor& whole, const Coordinates& at, const Mesh& mesh) {
  if (spec.split_dim < 0) return whole;
  const Range range = spec.split(at.t, mesh.t());
  return whole.narrow(spec.split_dim, range.begin, range.length);
}

TrainedRange part_of(const TrainedRange& range, int64_t begin, int64_t length) {
  TrainedRange part{range.values.narrow(0, begin, length), range.gradients.narrow(0, begin, length), range.decays};
  for (TrainedPiece piece : range.pieces) {
    const int64_t first = std::max(piece.begin, begin), end = std::min(piece.begin + piece.length, begin + length);
    if (first >= end) continue;
    piece.offset += first - piece.begin;
    piece.begin = first - begin;
    piece.length = end - first;
    part.pieces.push_back(piece);
  }
  return part;
}

// Runs the steps on T x shards ranks, each with its part of every range, and compares each rank's elements.
std::string mistakes(int t_degree, int shards, bool sequence_parallel, at::ScalarType dtype, double limit) {
  const ModelSpec spec = model(sequence_parallel);
  const auto exact = expected(spec);
  const Mesh mesh("cluster", shards, 1, t_degree);
  std::mutex mutex;
  std::string mistakes;
  run_ranks(mesh.size(), [&](CommunicatorPtr world) {
    const RankGroups groups = make_rank_groups(mesh, world, world);
    StageParameters parameters(
        {.spec = spec, .stage_of_layer = {0, 0}, .groups = groups, .sharding = {}, .values = at::TensorOptions(dtype)});
    const auto params = parameters.layer_params(0);
    const auto& specs = spec.layers[0].params;
    for (size_t i = 0; i < params.size(); ++i)
      params[i]->value.copy_(slice_of(specs[i], numbers(specs[i].shape, key_of(i)), groups.coordinates, mesh));
    std::vector<TrainedRange> ranges;
    for (const auto& range : parameters.trained_ranges()) {
      const Range cut = split_range(range.values.numel(), shards, groups.coordinates.d);
      if (cut.length > 0) ranges.push_back(part_of(range, cut.begin, cut.length));
    }
    Adafactor optimizer(ranges, parameters.trained_parameters(),
                        {.t = groups.coordinates.t, .t_degree = t_degree, .communicator = groups.dp},
                        {.kind = OptimizerOptions::Kind::adafactor, .weight_decay = kDecay});
    for (int step = 1; step <= kSteps; ++step) {
      for (size_t i = 0; i < params.size(); ++i)
        if (params[i]->grad.defined())
          params[i]->grad.copy_(slice_of(specs[i], gradient_of(specs[i], i, step), groups.coordinates, mesh) * 2);
      optimizer.step(kRate, 0.5);
    }
    std::scoped_lock lock(mutex);
    for (const auto& range : ranges) {
      auto padding = range.values.clone();
      for (const auto& piece : range.pieces) {
        const auto whole =
            slice_of(*piece.spec, exact.at(piece.spec->name), groups.coordinates, mesh).contiguous().flatten();
        const auto difference =
            (range.values.narrow(0, piece.begin, piece.length) - whole.narrow(0, piece.offset, piece.length))
                .abs()
                .max();
        if (!(difference.item<double>() <= limit))
          mistakes +=
              cat("rank ", world->rank(), ": ", piece.spec->name, " is off by ", difference.item<double>(), "\n");
        padding.narrow(0, piece.begin, piece.length).zero_();
      }
      if (padding.any().item<bool>()) mistakes += "padding was changed\n";
    }
  });
  return mistakes;
}

}  // namespace

TEST_CASE(
    "Adafactor is transformers' formula on the tensors of the file, however parameters are split and ranges cut") {
  for (const int t_degree : {1, 2, 3, 7})
    for (const int shards : {1, 2, 5}) {
      if (t_degree * shards > 16) continue;
      CAPTURE(t_degree, shards);
      CHECK(mistakes(t_degree, shards, shards % 2 == 0, at::kDouble, 1e-13) == "");
      CHECK(mistakes(t_degree, shards, false, at::kFloat, 2e-6) == "");
    }
}

TEST_CASE("the bytes of optimizer states are known in advance") {
  const ModelSpec spec = model(false);
  use_caching_allocator();
  const RankGroups groups = make_rank_groups(Mesh("cluster", 1, 1, 1), make_local_world(), make_local_world());
  StageParameters parameters({.spec = spec,
                              .stage_of_layer = {0, 0},
                              .groups = groups,
                              .sharding = {},
                              .values = at::TensorOptions(at::kFloat)});
  using Kind = OptimizerOptions::Kind;
  for (const auto& options : {OptimizerOptions{.kind = Kind::adamw}, OptimizerOptions{.kind = Kind::adam},
                              OptimizerOptions{.kind = Kind::sgd}, OptimizerOptions{.kind = Kind::sgd, .momentum = 0.9},
                              OptimizerOptions{.kind = Kind::adafactor}}) {
    CAPTURE(static_cast<int>(options.kind), options.momentum);
    int64_t told = 0;
    for (const auto& parameter : parameters.trained_parameters())
      told += optimizer_state_bytes(options, *parameter.spec, parameter.spec->numel(), 4);
    const int64_t before = optimizer_bytes_now();
    const auto optimizer = make_optimizer(options, parameters);
    const int64_t counted = optimizer_bytes_now() - before;
    // Moments are kept for padding, too: fewer than 16 elements per parameter, twice.
    CHECK(counted >= told);
    CHECK(counted <= told + (options.kind == Kind::adafactor ? 0 : 9 * 2 * 15 * 4));
  }
}

TEST_CASE("a fused query, key and value of GPT-2 is one matrix, BERT's are three") {
  const auto spec = model(false);
  const auto& params = spec.layers[0].params;
  const auto fused = tensor_factors(params[0]);
  REQUIRE(fused.size() == 1);
  CHECK(fused[0].rows == 6);
  CHECK(fused[0].columns == 30);
  CHECK(fused[0].row_step == std::vector<int64_t>{0, 0, 0, 1});
  CHECK(fused[0].column_step == std::vector<int64_t>{10, 2, 1, 0});
  CHECK_FALSE(tensor_factors(params[1])[0].factored);  // a bias is flat in the file
  CHECK(tensor_factors(params[5])[0].matrices == 4);
  CHECK(tensor_factors(params[8]).size() == 3);
  CHECK(tensor_factors(params[8])[2].begin == std::vector<int64_t>{2, 0, 0, 0});
}

}  // namespace shardline::adafactor_test
