// Tracks the memory that this thread's ops allocate: the bytes that still exist, their peak, and the matrix products.
#pragma once
#include <ATen/record_function.h>
#include <c10/core/Storage.h>

#include <memory>
#include <set>
#include <vector>

#include "core/model/layer_work.h"

namespace shardline {

// Watches from construction to destruction, ignoring the memory of the tensors `known` and what ops use internally.
// Only one watch may exist per thread.
class StorageWatch {
 public:
  explicit StorageWatch(const std::vector<at::Tensor>& known);
  ~StorageWatch();
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

  int64_t made() const { return made_; }  // bytes
  int64_t live() const;
  int64_t peak() const { return peak_; }
  void restart_peak() { peak_ = live(); }
  const std::vector<Product>& products() const { return products_; }  // as forward products

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& op);
  static void end(const at::RecordFunction& op, at::ObserverContext*);
  void see(const at::Tensor& tensor);

  std::set<const c10::StorageImpl*> seen_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
  std::vector<Product> products_;
  int64_t made_ = 0, peak_ = 0;
  at::CallbackHandle handle_;
};

}  // namespace shardline
