// An accelerator without hardware, for tests: devices of torch's type PrivateUse1 whose operators run at once on the
// calling thread, on CPU memory, with the arithmetic of torch's CPU operators.
//
// What real devices do later and in parallel is checked through the happens-before relation, with vector clocks
// (Mattern 1989, "Virtual time and global states of distributed systems"): every stream and every host thread has a
// clock, events and waits join them, and each use of memory must come after those that it depends on. A missing wait, a
// wrong stream, an early read on the host or an early release is thus found in every run, whatever the timing.
// Violations are:
//
//  - memory that is used on one stream while another may still use it, even as the memory of the tensor that was
//    there before;
//  - an operator on a device that is not the thread's current one (a missing guard);
//  - memory of one stream that is freed while another may still use it, without record_stream;
//  - host memory that is written before a copy has filled it, or changed while a copy to the device reads it.
//
// Host memory that a copy fills reads as 0xff bytes until the host has waited for the copy, and fresh device memory is
// full of 0xff bytes, too. Operators with tensors of several devices throw, as on CUDA.
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

// Registers the devices as this process's accelerator. Call it once, before anything queries the accelerator.
void install(int devices);

at::Device device(int index = 0);

// Bytes of memory of each device; an allocation beyond them throws c10::OutOfMemoryError.
inline constexpr size_t kDeviceBytes = size_t{1} << 34;
void set_device_bytes(size_t bytes);  // initially kDeviceBytes

// Bytes of page-locked host memory in use.
size_t pinned_bytes();

// Number of existing events.
int live_events();

// From now on the device's streams and events, and queries of its memory, throw c10::Error with this text, as after a
// kernel has failed; "" ends that.
void break_device(at::Device device, const std::string& text);

// Returns the violations since the last call, in the order in which they were found. Also checks that the sources of
// copies to the device for which the host never waited are unchanged, and calls joined_threads().
std::vector<std::string> take_faults();

// Call it after threads that used devices were joined: the caller then knows what they knew.
void joined_threads();

// Sets a function that is called with each violation when it is found, for programs that never call take_faults().
void call_on_fault(void (*handler)(const std::string& fault));

// What all devices did since the last call.
struct Counts {
  std::map<std::string, int64_t> launches;  // by operator
  int64_t bytes = 0;                        // bytes that the launches read and wrote
  std::map<std::string, int64_t> waits;     // by the host for a device, by HostWait::reason(); "" without one
  int64_t memory_questions = 0;             // queries of free memory, which initialize a real device in the process

  int64_t launched() const;
};
Counts take_counts();

// Whether operators for products and for flash attention compute, which they do initially. Otherwise they are only
// checked and counted, and their results are arbitrary.
void make_products(bool made);

// Records work that is not an operator of torch, such as a kernel or a collective. Call it on the thread that queues
// the work, before the memory is accessed.
struct Access {
  const void* begin = nullptr;
  size_t bytes = 0;
  bool writes = false;
  size_t gaps = 0;  // how many of `bytes` are unused because they lie between rows
};
void launch(const std::string& name, const c10::Stream& stream, const std::vector<Access>& accesses);

// Work of a stream in which other devices take part, such as a collective. It may end late, or never. What is queued on
// the stream after it, or after a later event, runs only then; here the thread that queues it waits. Memory that the
// work uses is not returned to the system before its end.
class Outside {
 public:
  virtual ~Outside() = default;
  virtual std::optional<std::chrono::steady_clock::time_point> ended() = 0;  // on any thread; takes no lock
};
using OutsidePtr = std::shared_ptr<Outside>;
void launch(const std::string& name, const c10::Stream& stream, const std::vector<Access>& accesses,
            const OutsidePtr& outside);
// Returns the outside work that a stream, or any stream of a device, has reached and that has not ended.
std::vector<OutsidePtr> outside_of(const c10::Stream& stream);
std::vector<OutsidePtr> outside_of(at::Device device);
// Call it after this thread has called a library that waited until the device was idle: the thread may then free memory
// that the device used.
void waited_outside(at::Device device);

}  // namespace shardline::fake
