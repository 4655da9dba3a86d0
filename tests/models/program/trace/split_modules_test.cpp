#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "include/shardline/nn.h"
#include "models/graph/torch_seed.h"
#include "models/program/trace/split_marks.h"

#include "tests/catch.h"

namespace shardline::split_modules_test {
namespace {

using at::Tensor;
using Catch::Matchers::Contains;

Tensor numbers(at::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return (at::arange(count, at::kDouble) * 0.7).sin().view(sizes);
}

}  // namespace

TEST_CASE("ColumnLinear, RowLinear and VocabEmbedding compute the same as torch's modules") {
  nn::ColumnLinear column(4, 6);
  column->to(at::kDouble);
  const Tensor x = numbers({2, 3, 4});
  CHECK(at::equal(column(x), at::linear(x, column->weight, column->bias)));
  nn::RowLinear row(nn::RowLinearOptions(4, 5).bias(false));
  CHECK(!row->bias.defined());
  CHECK(row->named_parameters().size() == 1);
  row->to(at::kDouble);
  CHECK(at::equal(row(x), at::linear(x, row->weight)));
  nn::VocabEmbedding table(7, 3);
  CHECK(at::equal(table(at::arange(7)), table->weight));
}

TEST_CASE("attention is softmax over the keys of a head") {
  const bool causal = GENERATE(false, true);
  nn::Attention attention(nn::AttentionOptions(8, 4).key_heads(2).causal(causal));
  attention->to(at::kDouble);
  const Tensor x = numbers({2, 5, 8}), q = attention->q(x), k = attention->k(x), v = attention->v(x);
  std::vector<Tensor> heads;
  for (int64_t head = 0; head < 4; ++head) {
    const auto of = [](const Tensor& y, int64_t number) { return y.narrow(2, 2 * number, 2); };
    Tensor scores = at::matmul(of(q, head), of(k, head / 2).transpose(1, 2)) / std::sqrt(2.0);
    if (causal) scores = scores.masked_fill(at::ones({5, 5}, at::kBool).triu(1), -INFINITY);
    heads.push_back(at::matmul(at::softmax(scores, -1), of(v, head / 2)));
  }
  CHECK(at::allclose(attention(x), attention->out(at::cat(heads, 2)), 0, 1e-14));
}

TEST_CASE("attention takes a source and a mask") {
  nn::Attention attention(8, 2);
  attention->to(at::kDouble);
  const Tensor x = numbers({2, 3, 8}), source = numbers({2, 6, 8}) + 1;
  const Tensor sees = (at::arange(6) < 4).view({1, 1, 1, 6}).expand({2, 1, 3, 6});
  CHECK(at::allclose(attention(x, source, sees), attention(x, source.narrow(1, 0, 4)), 0, 1e-14));
}

TEST_CASE("cross entropy is the mean over labels that count") {
  nn::CrossEntropy loss;
  const Tensor logits = numbers({2, 3, 5}), labels = at::tensor({0, 4, -100, 2, -100, 1}, at::kLong).view({2, 3});
  CHECK(at::equal(loss(logits, labels), at::cross_entropy_loss(logits.view({6, 5}), labels.view(6))));
  CHECK(at::equal(loss(logits.view({6, 5}), labels.view(6)), loss(logits, labels)));
}

TEST_CASE("initial values are a function of the seed, the order of modules and the element's position") {
  const auto made = [](uint64_t seed) {
    const TorchSeed seeded(seed);
    nn::ColumnLinear first(nn::ColumnLinearOptions(40, 50).init_std(0.5));
    nn::RowLinear second(40, 50);
    return std::pair(first->weight.detach(), second->weight.detach());
  };
  const auto [first, second] = made(1);
  CHECK(at::equal(made(1).first, first));
  CHECK(at::equal(made(1).second, second));
  CHECK(!at::equal(made(2).first, first));
  CHECK(!at::allclose(first * 0.04, second));
  CHECK(first.std().item<double>() == Approx(0.5).epsilon(0.05));
  CHECK(second.std().item<double>() == Approx(0.02).epsilon(0.05));
  const TorchSeed seeded(1);
  nn::Attention attention(8, 2);
  CHECK(attention->q->bias.abs().max().item<double>() == 0);
  CHECK(attention->q->weight.std().item<double>() < 0.04);
}

TEST_CASE("modules can be cloned") {
  nn::Attention attention(nn::AttentionOptions(8, 4).key_heads(2));
  const auto clone = attention->clone();
  const Tensor x = numbers({1, 3, 8}).to(at::kFloat);
  CHECK(at::equal(clone->as<nn::AttentionImpl>()->forward(x), attention(x)));
}

TEST_CASE("invalid sizes are refused") {
  CHECK_THROWS_WITH(nn::ColumnLinear(4, 0), Contains("shardline::nn::ColumnLinear has the sizes 4 and 0"));
  CHECK_THROWS_WITH(nn::Attention(8, 3), Contains("heads must divide features"));
  CHECK_THROWS_WITH(nn::Attention(nn::AttentionOptions(8, 4).key_heads(3)), Contains("key_heads must divide heads"));
  nn::RowLinear row(4, 5);
  CHECK_THROWS_WITH(row(at::ones({2, 3})), Contains("RowLinear takes [..., 4]; got [2, 3]"));
  nn::Attention attention(nn::AttentionOptions(8, 4).causal(true));
  CHECK_THROWS_WITH(attention(at::ones({2, 8})), Contains("takes [batch, length, 8]; got [2, 8]"));
  CHECK_THROWS_WITH(attention(at::ones({2, 3, 8}), Tensor(), at::ones({1, 1, 3, 3})), Contains("takes no mask"));
  nn::CrossEntropy loss;
  CHECK_THROWS_WITH(loss(at::ones({2, 3}), at::ones({2, 3}, at::kLong)), Contains("logits [..., classes]"));
}

TEST_CASE("the marks of a module name its parameters") {
  struct Net : torch::nn::Module {
    Net() {
      register_module("words", nn::VocabEmbedding(7, 4));
      register_module("attention", nn::Attention(4, 2));
      register_module("up", nn::ColumnLinear(nn::ColumnLinearOptions(4, 8).gather_output(true)));
      register_module("down", nn::RowLinear(8, 4));
      register_module("plain", torch::nn::Linear(4, 4));
      register_module("loss", nn::CrossEntropy());
    }
  };
  const auto marks = split_marks(*std::make_shared<Net>());
  std::vector<std::string> text;
  for (const auto& mark : marks)
    text.push_back(cat(mark.module, ' ', mark.kind, ' ', mark.parameter, ' ', mark.dimension, ' ', mark.gathers));
  CHECK(text == std::vector<std::string>{"words VocabEmbedding words.weight 0 0",
                                         "attention Attention attention.q.weight 0 0", "up ColumnLinear up.weight 0 1",
                                         "down RowLinear down.weight 1 0", "loss CrossEntropy  0 0"});
}

}  // namespace shardline::split_modules_test
