#include "models/graph/storage_watch.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string_view>

#include "core/error.h"

namespace shardline {
namespace {

thread_local StorageWatch* watch = nullptr;  // because callbacks are plain functions

// [.., m, k] x [.., k, n]
Product product_of(const at::Tensor& a, const at::Tensor& b) {
  const double count = a.dim() == 3 ? a.size(0) : 1;
  return {.m = a.size(-2), .n = b.size(-1), .k = a.size(-1), .count = count};
}

void add_products(const at::RecordFunction& op, std::vector<Product>& products) {
  const std::string_view name = op.name();
  const auto tensor = [&](size_t argument) { return op.inputs()[argument].toTensor(); };
  // Our own ops call these overloads, but not always, so they are counted by their own names instead.
  if (op.operator_name() && op.operator_name()->overload_name == "out") return;
  if (name == "aten::mm" || name == "aten::bmm") products.push_back(product_of(tensor(0), tensor(1)));
  if (name == "aten::addmm" || name == "aten::baddbmm") products.push_back(product_of(tensor(1), tensor(2)));
  if (name == "shardline::linear_forward") products.push_back(product_of(tensor(0), tensor(1).t()));
  if (name != "aten::_scaled_dot_product_flash_attention_for_cpu" && name != "shardline::attention_forward") return;
  const auto query = tensor(0), key = tensor(1);  // [batch, heads, length, head_dim]
  Product scores{.m = query.size(2), .n = key.size(2), .k = query.size(3), .stored = false};
  scores.count = query.size(0) * query.size(1);
  products.push_back(scores);
  std::swap(scores.n, scores.k);
  products.push_back(scores);
}

}  // namespace

StorageWatch::StorageWatch(const std::vector<at::Tensor>& known) {
  SL_ASSERT(!watch, "two StorageWatches in one thread");
  for (const auto& tensor : known) seen_.insert(tensor.storage().unsafeGetStorageImpl());
  watch = this;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin, end).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
}

StorageWatch::~StorageWatch() {
  at::removeCallback(handle_);
  watch = nullptr;
}

std::unique_ptr<at::ObserverContext> StorageWatch::begin(const at::RecordFunction& op) {
  if (watch) add_products(op, watch->products_);
  return nullptr;
}

void StorageWatch::end(const at::RecordFunction& op, at::ObserverContext*) {
  if (!watch) return;
  for (const auto& output : op.outputs()) {
    if (output.isTensor()) watch->see(output.toTensor());
    if (output.isTensorList())
      for (const auto& tensor : output.toTensorVector()) watch->see(tensor);
  }
  watch->peak_ = std::max(watch->peak_, watch->live());
}

void StorageWatch::see(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const auto storage = tensor.storage();
  if (!seen_.insert(storage.unsafeGetStorageImpl()).second) return;
  storages_.push_back(storage.getWeakStorageImpl());  // prevents its address from being reused
  made_ += storage.nbytes();
}

int64_t StorageWatch::live() const {
  int64_t bytes = 0;
  for (const auto& storage : storages_)
    if (const auto strong = storage.lock()) bytes += strong->nbytes();
  return bytes;
}

}  // namespace shardline
