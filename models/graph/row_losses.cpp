#include "models/graph/row_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

#include <map>

#include "core/error.h"
#include "core/model/microbatch.h"

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

bool has_loss(const std::string& name) {
  return losses().contains(name);
}

at::Tensor sum_of_rows(const std::string& name, const at::Tensor& outputs, const at::Tensor& labels) {
  at::Tensor rows = outputs, of_rows = labels;
  if (labels.is_floating_point()) {
    of_rows = labels.to(outputs.scalar_type());
  } else {
    const at::Tensor counted = (labels != kNoLabel).nonzero().squeeze(1);
    rows = outputs.index_select(0, counted);
    of_rows = labels.index_select(0, counted);
  }
  const at::Tensor losses_of_rows = loss_named(name)(rows, of_rows);
  if (losses_of_rows.dim() != 1 || losses_of_rows.size(0) != rows.size(0))
    throw RunError(cat("the loss \"", name, "\" returned ", losses_of_rows.sizes(), " for ", rows.size(0),
                       " rows; it must return one number per row, not their mean or sum"));
  return losses_of_rows.sum();
}

}  // namespace shardline
