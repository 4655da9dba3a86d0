// What a layer of torch's own ops computes and keeps. It is determined by running the layer once, because LibTorch
// cannot run all of these ops on meta tensors.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

// Measurements of one microbatch in fp32.
struct PassTrace {
  std::vector<int64_t> output;    // sizes of the result
  std::vector<Product> products;  // made in the forward pass
  int64_t made_bytes = 0;         // size of the results of all ops in the forward pass
  // Kept between forward and backward: what the autograd graph holds, excluding known tensors.
  int64_t kept_bytes = 0;
  // Peak of the bytes used by the ops of a pass, beyond what exists when it begins.
  int64_t forward_bytes = 0, backward_bytes = 0;
};

// Runs `forward`, and then backward from its result, which must require a gradient. The memory of `known` is not
// counted: tensors that existed before, and those in which gradients are accumulated.
PassTrace trace_pass(const std::vector<at::Tensor>& known, const std::function<at::Tensor()>& forward);

// Sets the costs of a layer from a trace of `tokens` tokens, scaled to other sizes and dtypes. features: those of the
// layer's input, which is kept; 0 if the input is the batch. logits: columns of logits whose loss is computed in
// addition; 0 if there are none.
void state_traced_costs(LayerSpec& layer, const PassTrace& trace, int64_t tokens, int64_t features, int64_t logits);

// Identifies layers with equal traces, which cost the same: for LayerSpec::code.
std::string code_of(const PassTrace& trace);

}  // namespace shardline
