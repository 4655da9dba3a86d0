// Makes the parameters of a family's layers: logical shapes, splits over T and names in Hugging Face's files.
#pragma once
#include <string>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

// The weight of a torch Linear in a file, with outputs first.
ParamSource torch_linear(const std::string& hf, std::vector<int64_t> shape);
// The weights of "q_proj", "k_proj" and "v_proj" as one weight [3, heads, head_dim, heads * head_dim].
std::vector<ParamSource> qkv_sources(const std::string& hf, int64_t heads, int64_t head_dim);

// Adds other names of tensors in files: names without `base` ("bert."), as in a base model, and the older names "gamma"
// and "beta" of the weight and bias of a LayerNorm module.
void add_aliases(ModelSpec& spec, const std::string& base);

struct SpecMaker {
  int64_t hidden;
  double initializer_range;
  bool sequence_parallel;
  const SplitChoices& choices;

  void add_unit(LayerSpec& layer, const std::string& name, const std::string& parts, int64_t count) const;
  // A parameter of a unit: split at `split_dim`, or whole with gradients from the rank's own rows.
  ParamSpec of(const SplitUnit& unit, ParamSpec param, int split_dim) const;

  // [hidden]: both parameters of a norm, "ln_1" -> "ln_1.weight", "ln_1.bias".
  std::vector<ParamSpec> norm(const std::string& name, const std::string& hf) const;
  // A bias that is added after the sum over ranks: every rank holds all of it.
  ParamSpec row_bias(const std::string& name, const std::string& hf) const;
  // The bias of a split linear; one-dimensional in the file.
  ParamSpec column_bias(const std::string& name, const std::vector<int64_t>& shape, const std::string& hf) const;
  ParamSpec table(const std::string& name, std::vector<int64_t> shape, const std::string& hf) const;
  // The weight of a linear, with outputs first. std: standard deviation of its initial values.
  ParamSpec linear(const std::string& name, std::vector<int64_t> shape, double std,
                   std::vector<ParamSource> sources) const;
};

}  // namespace shardline
