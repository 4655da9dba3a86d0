#include "core/device/accelerator.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace shardline {
namespace {

thread_local const char* wait_reason = nullptr;
thread_local bool meta_is_accelerator = false;

}  // namespace

bool is_accelerator(at::Device device) {
  return device.is_meta() ? meta_is_accelerator : !device.is_cpu();
}

RepresentedDevice::RepresentedDevice(bool accelerator) : outer_(std::exchange(meta_is_accelerator, accelerator)) {}

RepresentedDevice::~RepresentedDevice() {
  meta_is_accelerator = outer_;
}

int accelerator_count() {
  return at::accelerator::deviceCount();
}

at::Device accelerator(int index) {
  return at::Device(at::getAccelerator(/*checked=*/true).value(), index);
}

c10::StreamId current_stream_id(at::Device device) {
  return is_accelerator(device) ? c10::impl::VirtualGuardImpl(device.type()).getStream(device).id() : 0;
}

HostWait::HostWait(const char* reason) : outer_(std::exchange(wait_reason, reason)) {}

HostWait::~HostWait() {
  wait_reason = outer_;
}

const char* HostWait::reason() {
  return wait_reason;
}

void wait_for_device(at::Device device, const char* reason) {
  if (!is_accelerator(device)) return;
  const HostWait wait(reason);
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

at::Tensor on_host(const at::Tensor& tensor, const char* reason) {
  const HostWait wait(reason);
  return tensor.cpu();
}

HostValues::HostValues(const at::Tensor& tensor) : values_(tensor) {
  if (!is_accelerator(tensor)) return;
  values_ = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
  values_.copy_(tensor, /*non_blocking=*/true);
  made_.emplace(tensor.device().type());
  made_->record(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
}

const at::Tensor& HostValues::get(const char* reason) {
  if (made_) {
    const HostWait wait(reason);
    made_->synchronize();
  }
  return values_;
}

at::Tensor on_device(const at::Tensor& host, at::Device device) {
  if (!is_accelerator(device)) return host;
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

DeviceMemory device_memory(at::Device device) {
  const auto stats = at::accelerator::getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {.allocated = stats.allocated_bytes[kAll].current,
          .active = stats.active_bytes[kAll].current,
          .reserved = stats.reserved_bytes[kAll].current,
          .peak_allocated = stats.allocated_bytes[kAll].peak,
          .peak_active = stats.active_bytes[kAll].peak,
          .peak_reserved = stats.reserved_bytes[kAll].peak};
}

int64_t device_memory_size(at::Device device) {
  return at::accelerator::getMemoryInfo(device.index()).second;
}

int64_t free_device_memory(at::Device device) {
  return at::accelerator::getMemoryInfo(device.index()).first;
}

void release_device_memory() {
  at::accelerator::emptyCache();
}

}  // namespace shardline
