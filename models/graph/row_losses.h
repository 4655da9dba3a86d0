// Losses by name, for models of a user's own modules and programs. A loss returns a number for each row, not their
// mean, so that the sum over microbatches and replicas equals that of one process.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace shardline {

// outputs: [rows, n], the model's outputs for each row that has a label. labels: [rows] int64, or numbers of the
// outputs' type, [rows] or [rows, n]. Returns the loss of each row, [rows].
using RowLoss = std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& labels)>;

// Adds a user-defined loss; must be called before a config is read. Throws ConfigError if the name is taken.
void add_loss(const std::string& name, RowLoss loss);

// cross_entropy, squared_error (averaged over a row's outputs), binary_cross_entropy (likewise, from logits), or an
// added loss. Throws ConfigError for other names.
const RowLoss& loss_named(const std::string& name);

bool has_loss(const std::string& name);

// The sum of this loss over the rows that have a label: all rows if labels are numbers, which are converted to the
// outputs' type, otherwise those whose label is not kNoLabel. Throws RunError unless the loss returns one number for
// each row.
at::Tensor sum_of_rows(const std::string& name, const at::Tensor& outputs, const at::Tensor& labels);

}  // namespace shardline
