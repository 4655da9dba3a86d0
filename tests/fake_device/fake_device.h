// An accelerator without hardware, for tests: devices of torch's type PrivateUse1 whose operators run at once on this
// thread, on CPU memory, with the arithmetic of torch's CPU operators.
//
// What real devices do later and in parallel is checked as a relation of what happens before what, by vector clocks
// (Mattern 1989, "Virtual time and global states of distributed systems"): every stream and the host threads have a
// clock, events and waits join them, and each use of memory must come after those that it depends on. A missing wait,
// a wrong stream, an early read on the host or an early release is thus found in every run, whatever the timing:
//   - memory used on one stream while another may still use it;
//   - an operator on a device that is not the thread's current one (a missing guard);
//   - memory of one stream freed while another one may still use it, without record_stream;
//   - host memory that a copy fills reads as 0xff bytes until the host has waited for the copy, and must neither be
//     written before, nor be changed while a copy to the device reads it.
// Fresh device memory is full of 0xff bytes, too. Operators with tensors of several devices throw, as on CUDA.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace shardline::fake {

// Registers the devices as this process's accelerator; once, before anything asks for one.
void install(int devices);

at::Device device(int index = 0);

// Bytes of memory of each device; an allocation beyond them throws c10::OutOfMemoryError.
inline constexpr size_t kDeviceBytes = size_t{1} << 34;
void set_device_bytes(size_t bytes);  // kDeviceBytes at the start

// From now on the device's streams and events throw c10::Error with this text, as after a kernel's fault; "" ends that.
void break_device(at::Device device, const std::string& text);

// The violations since the last call, in the order in which they were found. Asks whether copies to the device that the
// host never waited for still find their source unchanged. Includes
// joined_threads().
std::vector<std::string> take_faults();

// The caller has joined threads that used devices: it knows what they knew.
void joined_threads();

// For programs that are not asked for them: called with each violation when it is found.
void call_on_fault(void (*handler)(const std::string& fault));

// What was done on all devices since the last call.
struct Counts {
  std::map<std::string, int64_t> launches;  // by operator
  int64_t bytes = 0;                        // that these read and wrote
  std::map<std::string, int64_t> waits;     // of the host for a device, by HostWait::reason(); "" without one
  int64_t memory_questions = 0;             // for free memory, which sets up a real device in the process that asks

  int64_t launched() const;
};
Counts take_counts();

// Work that is no operator of torch, such as a kernel or a collective: to be called on the thread that queues it,
// before the memory is touched.
struct Access {
  const void* begin = nullptr;
  size_t bytes = 0;
  bool writes = false;
  size_t gaps = 0;  // of these bytes, those between rows, which are not used
};
void launch(const std::string& name, const c10::Stream& stream, const std::vector<Access>& accesses);

// Work of a stream that other devices take part in, such as a collective. It may end late, or never: what is queued on
// the stream after it, or after an event that comes after it, runs then, and here that means that the thread that
// queues it waits. Memory that it uses is not returned to the system before.
class Outside {
 public:
  virtual ~Outside() = default;
  virtual std::optional<std::chrono::steady_clock::time_point> ended() = 0;  // on any thread; takes no lock
};
using OutsidePtr = std::shared_ptr<Outside>;
void launch(const std::string& name, const c10::Stream& stream, const std::vector<Access>& accesses,
            const OutsidePtr& outside);
// Those that have not ended and that a stream, or any stream of a device, has come to.
std::vector<OutsidePtr> outside_of(const c10::Stream& stream);
std::vector<OutsidePtr> outside_of(at::Device device);
// A library that this thread called has waited until the device was idle: the thread may free memory that it used.
void waited_outside(at::Device device);

}  // namespace shardline::fake
