// What the parts of the fake device share: clocks, blocks of memory, and copies whose end the host has not seen.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/fake_device/fake_device.h"

namespace shardline::fake {

// For every stream, how much of its work has happened.
using Clock = std::vector<uint64_t>;
void join(Clock& clock, const Clock& other);

// One use of memory by work on a stream.
struct Use {
  size_t begin, end;  // bytes of the block
  size_t stream;      // number
  uint64_t time;      // on its clock
  bool writes;
  std::string what;
};
bool covers(const Clock& clock, const Use& use);

// Memory of a device, or pinned memory of the host.
struct Block {
  size_t bytes;
  int device;     // -1: the host's
  size_t stream;  // on which it was allocated
  std::vector<Use> uses;
  std::vector<size_t> recorded;          // streams of record_stream
  std::vector<OutsidePtr> outside = {};  // work that may use it
};

// A copy between a device and pinned memory for which the host has not waited.
struct Transfer {
  size_t stream;
  uint64_t time;
  bool to_host;
  at::Tensor host;    // a CPU handle to the pinned memory
  at::Tensor values;  // and to what was copied
};

class Runtime {
 public:
  explicit Runtime(int device_count) : devices(device_count) {}

  // The mutex must be locked when anything below is used.
  std::recursive_mutex mutex;
  const int devices;
  std::map<const char*, Block> blocks;  // by address
  std::list<Transfer> transfers;
  std::vector<std::string> faults;
  void (*on_fault)(const std::string&) = nullptr;
  std::map<int, std::string> broken;  // device -> its error
  Counts counts;

  size_t number(const c10::Stream& stream);  // registers a new stream
  std::string name(size_t stream) const;
  Clock& clock(size_t stream) { return clocks_[stream]; }
  std::vector<size_t> streams_of(int device) const;
  std::vector<OutsidePtr>& outside(size_t stream);  // the outside work that has not ended
  Clock& host_clock();                              // this thread's
  Clock& host_asked();                              // what this thread learned by queries, without waiting
  Block* block_of(const void* pointer);

  // Queues work, which happens after everything that the host knows of. Returns its time.
  uint64_t queue(size_t stream);
  void use(const std::string& what, size_t stream, uint64_t time, const Access& access);
  // Records that this thread now knows that `clock` has happened.
  void host_sees(const Clock& clock);
  void count_wait();
  void release(char* address);            // frees the memory as soon as no outside work uses it
  void end_transfer(Transfer& transfer);  // checks the host memory of a transfer that has ended, and fills it
  void check_unseen_transfers();
  void fault(std::string text);
  void check_works(int device) const;  // throws c10::Error if the device is broken

 private:
  void free_released();

  std::vector<Clock> clocks_;                                        // by number
  std::vector<std::vector<OutsidePtr>> outside_;                     // also by number
  std::vector<std::pair<char*, std::vector<OutsidePtr>>> released_;  // blocks that outside work may still use
  std::vector<c10::Stream> streams_;
  std::map<std::pair<int, int64_t>, size_t> numbers_;
};

Runtime& runtime();
bool is_installed();

void forget_ended(std::vector<OutsidePtr>& outside);
// Waits until in_the_way returns no outside work that is still running; throws after a minute. The mutex must not be
// locked.
void await_outside(const std::function<std::vector<OutsidePtr>()>& in_the_way);

// The current device and stream of the calling thread.
int current_device();
c10::Stream current_stream(int device);

void install_streams();    // streams, events and devices
void install_memory();     // allocators
void install_operators();  // the operators

// A CPU tensor on the same memory.
at::Tensor cpu_alias(const at::Tensor& tensor);
// The memory of a tensor that an operator uses.
Access access_of(const at::Tensor& tensor, bool writes);
c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);

}  // namespace shardline::fake
