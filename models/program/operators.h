// The operators that programs may call.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

#include "models/program/graph.h"

namespace shardline {

// Why programs with this operator cannot run here; empty if they can. Operators that draw random numbers are accepted
// only if training draws the numbers itself (dropout and attention) or if an argument can stop them from drawing (see
// draws_of). Operators that change tensors are accepted only if they write to their first argument.
std::string refusal_of(const std::string& name, const std::string& overload);

// As above for an operator of any library, judged only by its effects: for the user's own code.
std::string effect_of(const c10::OperatorHandle& op);

// Why a call of an accepted operator cannot run here, given its arguments: it draws random numbers unless its arguments
// disable training or dropout. Empty if it can.
std::string draws_of(const GraphNode& node);

// Whether the operator is a matrix product or a convolution.
bool is_product(const std::string& name);

// The operator, or nothing if libtorch has none of this name.
std::optional<c10::OperatorHandle> find_operator(const std::string& name, const std::string& overload);

inline constexpr const char* kDropout = "aten::dropout";
inline constexpr const char* kAttention = "aten::scaled_dot_product_attention";
inline constexpr const char* kCrossEntropy = "aten::cross_entropy_loss";
inline constexpr const char* kSquaredError = "aten::mse_loss";
inline constexpr const char* kBinaryLoss = "aten::binary_cross_entropy_with_logits";
inline constexpr const char* kLookup = "aten::embedding";
inline constexpr const char* kBatchNorm = "aten::batch_norm";
inline constexpr const char* kGroupedProduct = "aten::_grouped_mm";
inline constexpr const char* kSizeOf = "aten::sym_size";
// The index of an argument in the operator's schema; asserts that it exists.
int place_of_argument(const GraphNode& node, const char* argument);

}  // namespace shardline
