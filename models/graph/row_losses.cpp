#include "models/graph/row_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

#include <map>

#include "core/error.h"

namespace shardline {
namespace {

at::Tensor cross_entropy(const at::Tensor& outputs, const at::Tensor& labels) {
  return at::cross_entropy_loss(outputs, labels, {}, at::Reduction::None);
}

at::Tensor squared_error(const at::Tensor& outputs, const at::Tensor& labels) {
  return at::mse_loss(outputs, labels.view(outputs.sizes()), at::Reduction::None).mean(1);
}

at::Tensor binary_cross_entropy(const at::Tensor& outputs, const at::Tensor& labels) {
  return at::binary_cross_entropy_with_logits(outputs, labels.view(outputs.sizes()), {}, {}, at::Reduction::None)
      .mean(1);
}

std::map<std::string, RowLoss>& losses() {
  static std::map<std::string, RowLoss> all = {{"cross_entropy", cross_entropy},
                                               {"squared_error", squared_error},
                                               {"binary_cross_entropy", binary_cross_entropy}};
  return all;
}

}  // namespace

void add_loss(const std::string& name, RowLoss loss) {
  if (!losses().emplace(name, std::move(loss)).second)
    throw ConfigError(cat("there is already a loss \"", name, "\"; give the new one another name"));
}

const RowLoss& loss_named(const std::string& name) {
  if (const auto found = losses().find(name); found != losses().end()) return found->second;
  std::string known;
  for (const auto& [other, loss] : losses()) known += cat(known.empty() ? "" : ", ", other);
  throw ConfigError(cat("there is no loss \"", name, "\"; use one of ", known, ", or add it (add_loss)"));
}

at::Tensor sum_of_rows(const std::string& name, const RowLoss& loss, const at::Tensor& outputs,
                       const at::Tensor& labels) {
  const at::Tensor of_rows = loss(outputs, labels);
  if (of_rows.dim() != 1 || of_rows.size(0) != outputs.size(0))
    throw RunError(cat("the loss \"", name, "\" returned ", of_rows.sizes(), " for ", outputs.size(0),
                       " rows; it must return one number per row, not their mean or sum"));
  return of_rows.sum();
}

}  // namespace shardline
