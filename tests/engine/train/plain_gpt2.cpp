#include "tests/engine/train/plain_gpt2.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <random>

namespace shardline {

PlainGpt2::PlainGpt2(const nlohmann::json& config) : config_(config) {
  config_["model_type"] = "gpt2";
  for (const char* rate : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config_[rate] = 0.0;
  const int64_t h = config.at("n_embd");
  std::mt19937 random(7);  // the same on every platform, unlike std's distributions
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    auto value = at::empty(shape, at::kDouble);
    for (int64_t i = 0; i < value.numel(); ++i)
      value.mutable_data_ptr<double>()[i] = static_cast<double>(static_cast<int>(random() % 512) - 256) / 1024;
    if (name.ends_with("ln_1.weight") || name.ends_with("ln_2.weight") || name.ends_with("ln_f.weight")) value += 1;
    parameters_["transformer." + name] = value.requires_grad_(true);
  };
  add("wte.weight", {config.at("vocab_size"), h});
  add("wpe.weight", {config.at("n_positions"), h});
  for (int layer = 0; layer < config.at("n_layer"); ++layer) {
    const std::string at = "h." + std::to_string(layer) + ".";
    const auto linear = [&](const std::string& name, int64_t in, int64_t out) {
      add(at + name + ".weight", {in, out});
      add(at + name + ".bias", {out});
    };
    for (const char* norm : {"ln_1", "ln_2"}) {
      add(at + norm + ".weight", {h});
      add(at + norm + ".bias", {h});
    }
    linear("attn.c_attn", h, 3 * h);
    linear("attn.c_proj", h, h);
    linear("mlp.c_fc", h, 4 * h);
    linear("mlp.c_proj", 4 * h, h);
  }
  add("ln_f.weight", {h});
  add("ln_f.bias", {h});
}

void PlainGpt2::write(const std::string& directory) const {
  std::ofstream(directory + "/config.json") << config_;
  nlohmann::json header;
  std::string data;
  for (const auto& [name, value] : parameters_) {
    const auto floats = value.detach().to(at::kFloat);
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(floats.const_data_ptr<float>()), floats.nbytes());
    header[name] = {{"dtype", "F32"}, {"shape", value.sizes().vec()}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream file(directory + "/model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << text << data;
}

at::Tensor PlainGpt2::norm(const std::string& name, const at::Tensor& x) const {
  return at::layer_norm(x, {x.size(-1)}, parameters_.at(name + ".weight"), parameters_.at(name + ".bias"), 1e-5);
}

at::Tensor PlainGpt2::linear(const std::string& name, const at::Tensor& x) const {
  return at::matmul(x, parameters_.at(name + ".weight")) + parameters_.at(name + ".bias");
}

at::Tensor PlainGpt2::block(int layer, const at::Tensor& x) const {
  const std::string at = "transformer.h." + std::to_string(layer) + ".";
  const int64_t samples = x.size(0), length = x.size(1), heads = config_.at("n_head"), head = x.size(2) / heads;
  const auto qkv = linear(at + "attn.c_attn", norm(at + "ln_1", x)).view({samples, length, 3, heads, head});
  const auto part = [&](int64_t i) { return qkv.select(2, i).transpose(1, 2); };  // [samples, heads, length, head]
  const auto later = at::ones({length, length}, at::kBool).triu(1);
  const auto scores = (at::matmul(part(0), part(1).transpose(2, 3)) / std::sqrt(static_cast<double>(head)))
                          .masked_fill(later, -std::numeric_limits<double>::infinity());
  const auto mixed = at::matmul(at::softmax(scores, -1), part(2)).transpose(1, 2).reshape(x.sizes());
  const auto seen = x + linear(at + "attn.c_proj", mixed);
  const auto inner = at::gelu(linear(at + "mlp.c_fc", norm(at + "ln_2", seen)), "tanh");
  return seen + linear(at + "mlp.c_proj", inner);
}

at::Tensor PlainGpt2::loss(const at::Tensor& ids) const {
  auto x = at::embedding(parameters_.at("transformer.wte.weight"), ids) +
           parameters_.at("transformer.wpe.weight").slice(0, 0, ids.size(1));
  for (int layer = 0; layer < config_.at("n_layer"); ++layer) x = block(layer, x);
  const auto logits = at::matmul(norm("transformer.ln_f", x), parameters_.at("transformer.wte.weight").t());
  const auto log_p = at::log_softmax(logits.slice(1, 0, ids.size(1) - 1), -1);
  return -log_p.gather(-1, ids.slice(1, 1).unsqueeze(-1)).mean();
}

PlainAdamW::PlainAdamW(const std::map<std::string, at::Tensor>& parameters, double weight_decay)
    : weight_decay_(weight_decay) {
  for (const auto& [name, value] : parameters)
    states_.push_back({value, at::zeros_like(value).detach(), at::zeros_like(value).detach()});
}

double PlainAdamW::step(double learning_rate) {
  const at::NoGradGuard no_grad;
  double squares = 0;
  for (const auto& state : states_) squares += state.value.grad().square().sum().item<double>();
  const double norm = std::sqrt(squares), clip = std::min(1.0, 1 / (norm + 1e-6));
  ++steps_;
  for (auto& [value, mean, square] : states_) {
    const auto gradient = value.grad() * clip;
    mean.mul_(0.9).add_(gradient, 0.1);
    square.mul_(0.999).add_(gradient.square(), 0.001);
    if (value.dim() > 1) value.mul_(1 - learning_rate * weight_decay_);
    const auto mean_now = mean / (1 - std::pow(0.9, steps_)), square_now = square / (1 - std::pow(0.999, steps_));
    value.sub_(learning_rate * mean_now / (square_now.sqrt() + 1e-8));
    value.mutable_grad().reset();
  }
  return norm;
}

}  // namespace shardline
