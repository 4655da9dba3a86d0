// What the engine knows about accelerators: devices that run queued work in streams while the host continues. Only this
// file and kernels check the device of a tensor. Everything uses torch's device-neutral interface, which supports both
// CUDA and the test device of tests/fake_device.
//
// The host waits for a device only in these functions or while a HostWait exists, and every wait states a reason. A
// test counts the waits of a training step by reason and fails if one has none.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>

namespace shardline {

// False for CPUs. Meta tensors represent CPU tensors unless a RepresentedDevice of this thread says otherwise.
bool is_accelerator(at::Device device);
inline bool is_accelerator(const at::Tensor& tensor) {
  return is_accelerator(tensor.device());
}

// While the object exists, this thread's meta tensors represent tensors on the kind of device, accelerator or CPU, that
// a dry run (models/graph/dry_run.h) simulates.
class RepresentedDevice {
 public:
  explicit RepresentedDevice(bool accelerator);
  ~RepresentedDevice();
  RepresentedDevice(const RepresentedDevice&) = delete;
  RepresentedDevice& operator=(const RepresentedDevice&) = delete;

 private:
  bool outer_;
};

int accelerator_count();  // on this host; 0 in builds for CPUs and without a driver
at::Device accelerator(int index);

c10::StreamId current_stream_id(at::Device device);  // on this thread; 0 for CPUs

// While such an object exists, this thread may wait for a device. `reason` must be a literal.
class HostWait {
 public:
  explicit HostWait(const char* reason);
  ~HostWait();
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

  static const char* reason();  // the reason of this thread's innermost HostWait; null without one

 private:
  const char* outer_;
};

// Waits until all work that this thread has queued on its current stream is done; returns at once for CPUs. It does not
// wait for other streams: they may hold a receive that was posted early and whose message is sent only after this
// rank's next work.
void wait_for_device(at::Device device, const char* reason);

// Waits for the work queued on the current stream and copies a tensor to host memory. Returns CPU tensors unchanged.
at::Tensor on_host(const at::Tensor& tensor, const char* reason);

// An asynchronous copy of a tensor to the host: it runs after the work queued on the current stream, and get() waits
// for the copy, but not for work that is queued later. A CPU tensor is not copied.
class HostValues {
 public:
  explicit HostValues(const at::Tensor& tensor);
  const at::Tensor& get(const char* reason);

 private:
  at::Tensor values_;
  std::optional<c10::Event> made_;
};

// Copies a host tensor to `device` without waiting: the copy runs after the work queued on the current stream. The host
// tensor may be changed or freed immediately.
at::Tensor on_device(const at::Tensor& host, at::Device device);

// allocated: bytes of tensors on the device. active: also freed memory that other streams may still use
// (record_stream). reserved: bytes that torch's allocator holds. Peaks count from the start of the process.
struct DeviceMemory {
  int64_t allocated = 0, active = 0, reserved = 0;  // now
  int64_t peak_allocated = 0, peak_active = 0, peak_reserved = 0;
};
DeviceMemory device_memory(at::Device device);
int64_t device_memory_size(at::Device device);  // bytes
int64_t free_device_memory(at::Device device);  // bytes that no process has allocated
// Returns memory of freed tensors, which torch's allocator keeps for reuse, to the current device.
void release_device_memory();

}  // namespace shardline
