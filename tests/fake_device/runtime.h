// What the parts of the fake device share: clocks, blocks of memory, copies that the host has not seen the end of.
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
  size_t stream;  // that it was allocated on
  std::vector<Use> uses;
  std::vector<size_t> recorded;          // streams of record_stream
  std::vector<OutsidePtr> outside = {};  // that may use it
};

// A copy between a device and pinned memory that the host did not wait for.
struct Transfer {
  size_t stream;
  uint64_t time;
  bool to_host;
  at::Tensor host;    // CPU handles to the pinned memory,
  at::Tensor values;  // and to what was copied
};

class Runtime {
 public:
  explicit Runtime(int device_count) : devices(device_count) {}

  // All below: under the mutex.
  std::recursive_mutex mutex;
  const int devices;
  std::map<const char*, Block> blocks;  // by address
  std::list<Transfer> transfers;
  std::vector<std::string> faults;
  void (*on_fault)(const std::string&) = nullptr;
  std::map<int, std::string> broken;  // devices, with the error
  Counts counts;

  size_t number(const c10::Stream& stream);  // makes it known
  std::string name(size_t stream) const;
  Clock& clock(size_t stream) { return clocks_[stream]; }
  std::vector<size_t> streams_of(int device) const;
  std::vector<OutsidePtr>& outside(size_t stream);  // that have not ended
  Clock& host_clock();                              // of this thread
  Clock& host_asked();                              // what it was told when it asked, without waiting for it
  Block* block_of(const void* pointer);

  // Work is queued: what the host knows has happened before it. Returns its time.
  uint64_t queue(size_t stream);
  void use(const std::string& what, size_t stream, uint64_t time, const Access& access);
  // This thread now knows that `clock` has happened.
  void host_sees(const Clock& clock);
  void count_wait();
  void release(char* address);  // frees it as soon as nothing outside uses it
  void check_unseen_transfers();
  void fault(std::string text);
  void check_works(int device) const;  // throws c10::Error if it is broken

 private:
  void end_transfer(Transfer& transfer);
  void free_released();

  std::vector<Clock> clocks_;                                        // by number
  std::vector<std::vector<OutsidePtr>> outside_;                     // too
  std::vector<std::pair<char*, std::vector<OutsidePtr>>> released_;  // that something outside may use
  std::vector<c10::Stream> streams_;
  std::map<std::pair<int, int64_t>, size_t> numbers_;
};

Runtime& runtime();
bool is_installed();

void forget_ended(std::vector<OutsidePtr>& outside);
// Without the mutex: waits until nothing outside is in the way. Throws after a minute.
void await_outside(const std::function<std::vector<OutsidePtr>()>& in_the_way);

// Of the current thread.
int current_device();
c10::Stream current_stream(int device);

void install_streams();    // streams, events and devices
void install_memory();     // allocators
void install_operators();  // the operators

// CPU tensor on the same memory.
at::Tensor cpu_alias(const at::Tensor& tensor);
// What an operator uses of it.
Access access_of(const at::Tensor& tensor, bool writes);
c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);

}  // namespace shardline::fake
