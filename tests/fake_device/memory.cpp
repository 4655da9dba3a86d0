#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <new>
#include <vector>

#include "tests/fake_device/runtime.h"

namespace shardline::fake {
namespace {

constexpr size_t kAlignment = 64;
constexpr int kUnwritten = 0xff;
std::atomic<size_t> device_bytes{kDeviceBytes};

// Torch's allocator hands out memory that work queued earlier on the stream may still use: other streams must wait for
// it before they use the memory.
std::vector<Use> earlier_use(size_t bytes, size_t stream) {
  const Clock& clock = runtime().clock(stream);
  if (stream >= clock.size()) return {};  // nothing was queued there
  return {{0, bytes, stream, clock[stream], true, "the memory's earlier owner"}};
}

char* make_block(size_t bytes, int device, size_t stream) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes) != 0) throw std::bad_alloc();
  std::memset(memory, kUnwritten, bytes);
  runtime().blocks[static_cast<char*>(memory)] = {
      bytes, device, stream, device >= 0 ? earlier_use(bytes, stream) : std::vector<Use>(), {}};
  return static_cast<char*>(memory);
}

class DeviceMemoryAllocator : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const std::scoped_lock lock(runtime().mutex);
    const int index = current_device();
    if (bytes == 0) return {nullptr, device(index)};
    TORCH_CHECK_WITH(OutOfMemoryError, stats(index).current + bytes <= device_bytes, "Fake device ", index,
                     " out of memory. Tried to allocate ", bytes, " bytes.");
    stats(index).increase(bytes);
    reuse_recorded();
    active(index).increase(bytes);
    char* memory = make_block(bytes, index, runtime().number(current_stream(index)));
    return {memory, memory, &free_memory, device(index)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    const std::scoped_lock lock(runtime().mutex);
    if (Block* block = runtime().block_of(pointer.get())) block->recorded.push_back(runtime().number(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const std::scoped_lock lock(runtime().mutex);
    c10::CachingDeviceAllocator::DeviceStats result;
    result.allocated_bytes[0] = stats(index);
    result.active_bytes[0] = result.reserved_bytes[0] = active(index);
    return result;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex index) override {
    const std::scoped_lock lock(runtime().mutex);
    stats(index).reset_peak();
    active(index).reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const std::scoped_lock lock(runtime().mutex);
    runtime().check_works(index);
    ++runtime().counts.memory_questions;
    return {device_bytes - stats(index).current, device_bytes};
  }

 private:
  using Stats = std::vector<c10::CachingAllocator::Stat>;
  static c10::CachingAllocator::Stat& stats(int index) {  // memory of tensors
    static auto* of_devices = new Stats(runtime().devices);
    return of_devices->at(index);
  }
  static c10::CachingAllocator::Stat& active(int index) {  // as above, for recorded()
    static auto* of_devices = new Stats(runtime().devices);
    return of_devices->at(index);
  }

  // Memory that was freed after record_stream. Torch reuses it when a later allocation finds the other streams past
  // that point; here, only when the host knows that they are, as if the device were as late as possible.
  struct Recorded {
    int device;
    size_t bytes, stream;
    uint64_t time;
  };
  static std::list<Recorded>& recorded() {
    static auto* all = new std::list<Recorded>;
    return *all;
  }
  static void reuse_recorded() {
    const Clock& host = runtime().host_clock();
    recorded().remove_if([&](const Recorded& freed) {
      const bool is_over = freed.stream < host.size() && host[freed.stream] >= freed.time;
      if (is_over) active(freed.device).decrease(freed.bytes);
      return is_over;
    });
  }

  static void free_memory(void* memory) {
    const std::scoped_lock lock(runtime().mutex);
    auto* address = static_cast<char*>(memory);
    const Block& block = runtime().blocks.at(address);
    stats(block.device).decrease(block.bytes);
    if (block.recorded.empty()) {
      active(block.device).decrease(block.bytes);
    } else {
      const size_t stream = block.recorded.back();
      const Clock& clock = runtime().clock(stream);
      recorded().push_back({block.device, block.bytes, stream, stream < clock.size() ? clock[stream] : 0});
    }
    runtime().release(address);
  }
};

class PinnedMemoryAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const std::scoped_lock lock(runtime().mutex);
    if (bytes == 0) return {nullptr, at::kCPU};
    char* memory = make_block(bytes, -1, runtime().number(current_stream(current_device())));
    return {memory, memory, &free_memory, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void free_memory(void* memory) {
    const std::scoped_lock lock(runtime().mutex);
    runtime().release(static_cast<char*>(memory));
  }
};

DeviceMemoryAllocator device_allocator;
PinnedMemoryAllocator host_allocator;

}  // namespace

void set_device_bytes(size_t bytes) {
  device_bytes = bytes;
}

size_t pinned_bytes() {
  const std::scoped_lock lock(runtime().mutex);
  size_t bytes = 0;
  for (const auto& [address, block] : runtime().blocks)
    if (block.device < 0) bytes += block.bytes;
  return bytes;
}

void install_memory() {
  c10::SetAllocator(at::kPrivateUse1, &device_allocator);
}

c10::Allocator* pinned_allocator() {
  return &host_allocator;
}

bool is_pinned(const void* pointer) {
  const std::scoped_lock lock(runtime().mutex);
  const Block* block = runtime().block_of(pointer);
  return block != nullptr && block->device < 0;
}

}  // namespace shardline::fake
