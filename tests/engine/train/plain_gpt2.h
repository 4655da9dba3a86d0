// GPT-2 in a few lines of ATen in double precision: one process, no layout, and no code of the engine.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace shardline {

class PlainGpt2 {
 public:
  // config: n_layer, n_head, n_embd, vocab_size, n_positions. The values are random multiples of 2^-10.
  explicit PlainGpt2(const nlohmann::json& config);

  // config.json and model.safetensors, in fp32, which holds the values exactly.
  void write(const std::string& directory) const;

  // Mean over the predicted tokens of ids [samples, length] int64.
  at::Tensor loss(const at::Tensor& ids) const;

  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }  // by Hugging Face's names

 private:
  at::Tensor block(int layer, const at::Tensor& x) const;
  at::Tensor norm(const std::string& name, const at::Tensor& x) const;
  at::Tensor linear(const std::string& name, const at::Tensor& x) const;

  nlohmann::json config_;
  std::map<std::string, at::Tensor> parameters_;
};

// AdamW with torch's defaults; matrices and tables decay by `weight_decay`. Gradients are clipped to norm 1.
class PlainAdamW {
 public:
  PlainAdamW(const std::map<std::string, at::Tensor>& parameters, double weight_decay);
  // Uses the gradients and clears them. Returns their norm before clipping.
  double step(double learning_rate);

 private:
  struct State {
    at::Tensor value, mean, square;
  };
  std::vector<State> states_;
  double weight_decay_;
  int steps_ = 0;
};

}  // namespace shardline
