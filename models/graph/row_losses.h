// Losses by name, for models of a user's own modules. A loss gives a number for each row, not their mean, so that the
// sum over microbatches and replicas is that of one process.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace shardline {

// outputs: [rows, n], what the model makes of each row that has a label. labels: [rows] int64, or numbers of the
// outputs' type, [rows] or [rows, n]. Returns the loss of each row, [rows].
using RowLoss = std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& labels)>;

// For losses of a program's own; call it before a config is read. Throws ConfigError if the name is taken.
void add_loss(const std::string& name, RowLoss loss);

// cross_entropy, squared_error (the mean over a row's outputs), binary_cross_entropy (likewise, of logits), and those
// that were added. Throws ConfigError for another name.
const RowLoss& loss_named(const std::string& name);

// The sum over the rows. Throws RunError if the loss does not give one number for each.
at::Tensor sum_of_rows(const std::string& name, const RowLoss& loss, const at::Tensor& outputs,
                       const at::Tensor& labels);

}  // namespace shardline
