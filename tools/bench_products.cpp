// The rates of a linear's three products on this machine, alternating between ATen's and ours; one JSON line per shape.
// Rates are GFLOP/s: the median of the repetitions, or the only run if one takes seconds. If the processor has no
// instructions for the type, ATen's products of half precision take long: use --rows 64, or --ours to leave them out.
//
//   bench_products [--type fp32|bf16|fp16] [--rows 1024] [--threads 0] [--repetitions 7] [--ours]
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/clock.h"
#include "tensor_parallel/products/products.h"

using namespace shardline;

namespace {

// Input and output features of GPT-2 124M's linears and of its head.
constexpr std::pair<int64_t, int64_t> kShapes[] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50257}};

double seconds_of(const std::function<void()>& product) {
  const double begin = steady_seconds();
  product();
  return steady_seconds() - begin;
}

struct Options {
  std::string type = "fp32";
  int64_t rows = 1024;
  int threads = 0, repetitions = 7;
  bool ours_only = false;
};

at::ScalarType type_of(const Options& options) {
  return options.type == "bf16" ? at::kBFloat16 : options.type == "fp16" ? at::kHalf : at::kFloat;
}

nlohmann::ordered_json rates(const Options& options, int64_t in, int64_t out) {
  constexpr double kLong = 2;  // seconds
  const auto type = type_of(options);
  const int64_t rows = options.rows;
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(type); };
  const auto x = random({rows, in}), w = random({out, in}), bias = random({out}), dy = random({rows, out});
  const auto y = at::zeros({rows, out}, type), dx = at::zeros({rows, in}, type), dw = at::zeros({out, in});
  const std::pair<const char*, std::function<void()>> products[] = {
      {"forward", [&] { linear_forward_out(y, x, w, bias); }},
      {"input_gradient", [&] { linear_input_gradient_out(dx, dy, w, false); }},
      {"weight_gradient", [&] { add_weight_gradient(dw, dy, x); }}};
  std::vector<std::pair<const char*, ProductLibrary>> ways = {{"ours", ProductLibrary::automatic}};
  if (!options.ours_only) ways.insert(ways.begin(), {"aten", ProductLibrary::aten});
  nlohmann::ordered_json line = {{"type", options.type}, {"rows", rows}, {"in", in}, {"out", out}};
  for (const auto& [name, product] : products) {
    std::map<std::string, std::vector<double>> seconds;
    for (int i = 0; i <= options.repetitions; ++i)
      for (const auto& [way, kind] : ways) {
        if (!seconds[way].empty() && seconds[way].front() > kLong) continue;
        use_products(kind);
        const double taken = seconds_of(product);
        if (i > 0 || taken > kLong) seconds[way].push_back(taken);  // the first one is a warm-up
      }
    for (const auto& [way, kind] : ways) {
      auto& times = seconds[way];
      const auto middle = times.begin() + times.size() / 2;
      std::nth_element(times.begin(), middle, times.end());
      const double rate = 2e-9 * (rows * in * out) / *middle;
      line[name][way] = rate < 10 ? std::round(10 * rate) / 10 : std::round(rate);
    }
  }
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("bench_products: GFLOP/s of linear products, ATen's and ours");
  app.add_option("--type", options.type)->capture_default_str()->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  app.add_option("--rows", options.rows, "Tokens")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "0: all cores")->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_option("--repetitions", options.repetitions)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_flag("--ours", options.ours_only, "Omit ATen's products");
  CLI11_PARSE(app, argc, argv);
  if (options.threads > 0) at::set_num_threads(options.threads);
  for (const auto& [in, out] : kShapes) std::cout << rates(options, in, out).dump() << std::endl;
}
