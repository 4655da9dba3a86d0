// Rates of attention on this machine, forward and backward: causal and bidirectional, ours and torch's
// scaled_dot_product_attention, alternating; one JSON line per length. A rate counts only the pairs of queries and keys
// that see each other: 4 operations per pair and feature forward, 8 backward. Rates are GFLOP/s, medians of the
// repetitions.
//
//   bench_attention [--type fp32|bf16|fp16] [--lengths 64 384 1024] [--tokens 4096] [--dropout 0] [--threads 0]
//                   [--repetitions 9]
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/comm/clock.h"
#include "engine/run/median.h"
#include "tensor_parallel/ops/attention.h"
#include "tools/bench_main.h"

using namespace shardline;

namespace {

constexpr int64_t kHeads = 12, kHeadDim = 64;

struct Options {
  std::string type = "fp32";
  std::vector<int64_t> lengths = {64, 384, 1024};
  int64_t tokens = 4096;
  double dropout = 0;
  int threads = 0, repetitions = 9;
};

at::Tensor ours(const at::Tensor& qkv, int64_t samples, bool causal, double dropout) {
  const Microbatch batch =
      causal_microbatch(at::zeros({samples, qkv.size(0) / samples}, at::kLong), {}, at::zeros({samples}, at::kLong));
  MicrobatchContext context{.batch = &batch, .seed = 1, .step = 1};
  return self_attention(qkv, context,
                        {.heads = kHeads,
                         .head_dim = kHeadDim,
                         .scale = 0.125,
                         .causal = causal,
                         .dropout = dropout,
                         .max_positions = 1024});
}

at::Tensor torchs(const at::Tensor& qkv, int64_t samples, bool causal, double dropout) {
  const auto parts = qkv.view({samples, -1, 3, kHeads, kHeadDim}).permute({2, 0, 3, 1, 4}).unbind(0);
  return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, dropout, causal)
      .transpose(1, 2)
      .reshape({qkv.size(0), kHeads * kHeadDim});
}

void measure(const Options& options, int64_t length) {
  const int64_t samples = std::max<int64_t>(1, options.tokens / length), rows = samples * length;
  const auto type = options.type == "bf16" ? at::kBFloat16 : options.type == "fp16" ? at::kHalf : at::kFloat;
  const auto qkv = at::randn({rows, 3 * kHeads * kHeadDim}, at::kFloat).to(type).set_requires_grad(true);
  const auto dy = at::randn({rows, kHeads * kHeadDim}, at::kFloat).to(type);
  std::map<std::string, std::vector<double>> forward, backward;
  for (int turn = -1; turn < options.repetitions; ++turn) {
    for (const bool causal : {true, false}) {
      for (const bool mine : {true, false}) {
        const double pairs = causal ? samples * length * (length + 1) / 2. : 1. * samples * length * length;
        const double work = 4e-9 * pairs * kHeads * kHeadDim;
        const double begin = steady_seconds();
        const auto y = (mine ? ours : torchs)(qkv, samples, causal, options.dropout);
        const double middle = steady_seconds();
        y.backward(dy);
        const double end = steady_seconds();
        qkv.mutable_grad().reset();
        if (turn < 0) continue;
        const std::string name = std::string(mine ? "ours_" : "torch_") + (causal ? "causal" : "bidirectional");
        forward[name].push_back(work / (middle - begin));
        backward[name].push_back(2 * work / (end - middle));
      }
    }
  }
  nlohmann::json line{{"length", length}, {"samples", samples}, {"type", options.type}, {"dropout", options.dropout}};
  for (const auto& [name, rates] : forward) line["forward"][name] = std::round(10 * median(rates)) / 10;
  for (const auto& [name, rates] : backward) line["backward"][name] = std::round(10 * median(rates)) / 10;
  std::cout << line.dump() << std::endl;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures attention");
  app.add_option("--type", options.type)->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  app.add_option("--lengths", options.lengths)->delimiter(',');
  app.add_option("--tokens", options.tokens);
  app.add_option("--dropout", options.dropout);
  app.add_option("--threads", options.threads);
  app.add_option("--repetitions", options.repetitions);
  CLI11_PARSE(app, argc, argv);
  if (options.threads > 0) at::set_num_threads(options.threads);
  for (const int64_t length : options.lengths) measure(options, length);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, run);
}
