// Our ops compute their results and their gradients themselves. These functions connect the two in torch's autograd
// graph and list what the graph keeps. An op's backward gets the tensors of the forward pass that it needs from its
// node, so that they can be counted and offloaded. torch's hooks for saved tensors would see only what torch's own ops
// save, and a separate list could differ from what the closures hold.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <vector>

namespace shardline {

using SavedTensors = std::vector<at::Tensor>;

// Makes `output` (computed without autograd) the result of an op on `inputs`: when the backward pass reaches it,
// `backward(d_output, saved)` runs once and returns the gradients of the inputs in order (undefined: none needed).
// `saved` and the closure are freed right after that; tensors belong in `saved`, never in the closure. Parameters are
// not inputs: the closure accumulates their gradients. Without grad mode, `output` is returned unchanged and the rest
// is dropped.
using BackwardFunction = std::function<std::vector<at::Tensor>(const at::Tensor& d_output, const SavedTensors& saved)>;
at::Tensor with_backward(at::Tensor output, const std::vector<at::Tensor>& inputs, SavedTensors saved, const char* name,
                         BackwardFunction backward);

// Runs the backward pass from `outputs`, whose gradients are given in the same order, and frees the graph. It runs on
// this thread even for tensors of an accelerator, which torch would leave to a device thread: backward closures depend
// on state of their thread (device, streams, waits, records), and those of ranks that are threads of one process wait
// for each other.
void backward_on_this_thread(const std::vector<torch::autograd::Edge>& outputs,
                             const std::vector<at::Tensor>& gradients);

// The tensors saved by our ops in the graph of `outputs`: the same handles that their backward gets.
SavedTensors saved_in_graph(const std::vector<torch::autograd::Edge>& outputs);

}  // namespace shardline
