#include "pipeline/activations/kept_layers.h"

#include <utility>

#include "core/device/accelerator.h"
#include "core/memory/caching_allocator.h"
#include "core/model/backward.h"

namespace shardline {

std::vector<KeptStorage> KeptLayer::storages() const {
  auto tensors = saved_in_graph(gradients);
  const auto pairs = weight_grads.tensors();
  tensors.insert(tensors.end(), input.begin(), input.end());
  tensors.insert(tensors.end(), pairs.begin(), pairs.end());
  return storages_of(tensors);
}

KeptLayers::KeptLayers(const OffloadOptions& options, at::Device device, const std::string& directory)
    : options_(options) {
  if (options.enabled) offload_ = is_accelerator(device) ? offload_to_host(device) : offload_to_file(directory);
}

void KeptLayers::begin_run(const std::vector<Instruction>& list) {
  live_ = {};
  if (!offload_ || list == list_of_backward_) return;
  list_of_backward_ = list;
  backward_of_ = backward_instructions(list);
}

std::vector<KeptLayer>& KeptLayers::add(const Pass& pass, size_t layers) {
  return kept_.emplace(pass, std::vector<KeptLayer>(layers)).first->second;
}

void KeptLayers::count(KeptLayer& kept) {
  const int64_t bytes = bytes_of(kept.storages());
  live_.add(bytes - kept.bytes);
  kept.bytes = bytes;
}

bool KeptLayers::moves_out(const Pass& pass, size_t place) const {
  return offload_ && shardline::moves_out(options_, place, backward_of_.at({pass.microbatch, pass.chunk}));
}

void KeptLayers::move_out(KeptLayer& kept) {
  if (kept.bytes == 0) return;
  kept.away = std::make_unique<MovedOut>(kept.storages(), *offload_);
  const int64_t before = kept.bytes + leaving_bytes_;
  kept.bytes = bytes_of(kept.storages());
  leaving_bytes_ = offload_->leaving_bytes();
  live_.add(kept.bytes + leaving_bytes_ - before);
}

void KeptLayers::end_run() {
  if (!offload_) return;
  offload_->let_go();
  live_.remove(std::exchange(leaving_bytes_, 0));
}

void KeptLayers::fetch_ahead(const std::vector<Instruction>& list, size_t place) {
  const size_t soon = place + options_.horizon;
  if (!offload_ || soon >= list.size() || list[soon].op != Op::backward_input) return;
  const auto found = kept_.find({list[soon].microbatch, list[soon].chunk});
  if (found == kept_.end()) return;
  const MemoryScope scope(MemoryClass::activations);
  for (auto& kept : found->second) {
    if (!kept.away) continue;
    kept.bytes = kept.away->fetch();
    live_.add(kept.bytes);
  }
}

void KeptLayers::bring_back(KeptLayer& kept) {
  kept.away->take();
  kept.away.reset();
}

}  // namespace shardline
