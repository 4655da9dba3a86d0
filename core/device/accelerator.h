// Accelerators, as far as the engine knows them: devices that run queued work in streams while the host goes on. Only
// here and in kernels is it asked what device something is on. Everything goes through torch's device-neutral
// interface, which serves CUDA and the test device of tests/fake_device alike.
//
// The host waits for a device only through these functions, or inside a HostWait of its own, and each of them names the
// reason: a test counts the waits of a training step by reason and fails for one that has none.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>

namespace shardline {

// False for CPUs. Meta tensors represent tensors of a CPU, unless a RepresentedDevice of this thread says otherwise.
bool is_accelerator(at::Device device);
inline bool is_accelerator(const at::Tensor& tensor) {
  return is_accelerator(tensor.device());
}

// While it lives, this thread's meta tensors represent tensors of an accelerator, or of a CPU: those of the run that a
// dry run (models/graph/dry_run.h) stands for.
class RepresentedDevice {
 public:
  explicit RepresentedDevice(bool accelerator);
  ~RepresentedDevice();
  RepresentedDevice(const RepresentedDevice&) = delete;
  RepresentedDevice& operator=(const RepresentedDevice&) = delete;

 private:
  bool outer_;
};

int accelerator_count();  // of this host; 0 in builds for CPUs and without a driver
at::Device accelerator(int index);

c10::StreamId current_stream_id(at::Device device);  // of this thread; 0 for CPUs

// While it lives, this thread may wait for a device, for `reason`: a literal.
class HostWait {
 public:
  explicit HostWait(const char* reason);
  ~HostWait();
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

  static const char* reason();  // of the innermost in this thread; null outside

 private:
  const char* outer_;
};

// Until all work that this thread has queued on its current stream is done; returns at once for CPUs. Other streams may
// hold a receive that is posted ahead, whose message is sent only after what this rank does next.
void wait_for_device(at::Device device, const char* reason);

// The values in host memory; waits for the work queued on the current stream. A CPU tensor is returned as it is.
at::Tensor on_host(const at::Tensor& tensor, const char* reason);

// Values on their way to the host: they are copied after the work queued on the current stream, and get() waits for
// that copy, not for what is queued later. A CPU tensor is returned as it is.
class HostValues {
 public:
  explicit HostValues(const at::Tensor& tensor);
  const at::Tensor& get(const char* reason);

 private:
  at::Tensor values_;
  std::optional<c10::Event> made_;
};

// The values on `device`, without a wait: they are copied after the work queued on the current stream. The host tensor
// may be changed and dropped at once.
at::Tensor on_device(const at::Tensor& host, at::Device device);

// Bytes of tensors on the device, and of what torch's allocator holds for them; peaks are since the process began.
struct DeviceMemory {
  int64_t allocated = 0, reserved = 0;  // now
  int64_t peak_allocated = 0, peak_reserved = 0;
};
DeviceMemory device_memory(at::Device device);
int64_t device_memory_size(at::Device device);  // bytes
int64_t free_device_memory(at::Device device);  // of which no process has taken

}  // namespace shardline
