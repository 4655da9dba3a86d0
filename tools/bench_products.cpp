// The rate of a linear's three products on this machine, by each of our ways to multiply, taking turns; one JSON line
// per shape. Rates are GFLOP/s: the median of the repetitions.
//
//   bench_products [--rows 1024] [--threads 0] [--repetitions 7]
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "tensor_parallel/products.h"

using namespace shardline;

namespace {

// Input and output features of GPT-2 124M's linears, and its head.
constexpr std::pair<int64_t, int64_t> kShapes[] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50257}};

double seconds_of(const std::function<void()>& product) {
  const double begin = steady_seconds();
  product();
  return steady_seconds() - begin;
}

nlohmann::ordered_json rates(int64_t rows, int64_t in, int64_t out, int repetitions) {
  const auto x = at::randn({rows, in}), w = at::randn({out, in}), bias = at::randn({out}), dy = at::randn({rows, out});
  const auto y = at::zeros({rows, out}), dx = at::zeros({rows, in}), dw = at::zeros({out, in});
  const std::pair<const char*, std::function<void()>> products[] = {
      {"forward", [&] { linear_forward_out(y, x, w, bias); }},
      {"input_gradient", [&] { linear_input_gradient_out(dx, dy, w, false); }},
      {"weight_gradient", [&] { add_weight_gradient(dw, dy, x); }}};
  nlohmann::ordered_json line = {{"rows", rows}, {"in", in}, {"out", out}};
  for (const auto& [name, product] : products) {
    std::vector<double> seconds[2];
    for (int i = 0; i <= repetitions; ++i)
      for (const auto way : {Products::aten, Products::onednn}) {
        use_products(way);
        const double taken = seconds_of(product);
        if (i > 0) seconds[way == Products::onednn].push_back(taken);  // the first warms up
      }
    for (auto& times : seconds) std::nth_element(times.begin(), times.begin() + repetitions / 2, times.end());
    const double work = 2e-9 * static_cast<double>(rows * in * out);
    line[name] = {{"aten", std::round(work / seconds[0][repetitions / 2])},
                  {"onednn", std::round(work / seconds[1][repetitions / 2])}};
  }
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t rows = 1024;
  int threads = 0, repetitions = 7;
  CLI::App app("bench_products: GFLOP/s of linear products, ATen's and oneDNN's");
  app.add_option("--rows", rows, "Tokens")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--threads", threads, "0: all cores")->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_option("--repetitions", repetitions)->capture_default_str()->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (threads > 0) at::set_num_threads(threads);
  for (const auto& [in, out] : kShapes) std::cout << rates(rows, in, out, repetitions).dump() << std::endl;
}
