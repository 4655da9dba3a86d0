#include "core/memory/caching_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace shardline {
namespace {

constexpr size_t kMapped = 128 * 1024;  // larger blocks are mapped pages

thread_local MemoryClass current_class = MemoryClass::workspace;

// The header in front of the data, with the same alignment.
struct alignas(64) Header {
  size_t block, bytes;  // the sizes of the whole block and of the request
  MemoryClass memory;
};
constexpr size_t kHeader = sizeof(Header);

size_t block_size(size_t bytes) {
  const size_t whole = std::max<size_t>(bytes + kHeader, 256);
  const size_t step = std::bit_floor(whole - 1) / 8;
  return (whole + step - 1) / step * step;
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(bytes);
    return {data, data, &free_data, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_data; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }

  MemoryTotals totals() {
    const std::scoped_lock lock(mutex_);
    return totals_;
  }
  void set_cap(int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    cap_ = bytes;
  }
  int64_t trim() {
    const std::scoped_lock lock(mutex_);
    return trim_locked();
  }

  void restart_peaks() {
    const std::scoped_lock lock(mutex_);
    totals_.peak_of_class = totals_.now;
    totals_.peak_live = totals_.live;
  }

  static CachingAllocator& instance() {
    static auto* const allocator = new CachingAllocator;  // never freed, because tensors may outlive everything else
    return *allocator;
  }

 private:
  static void free_data(void* data) {
    if (data) instance().give_back(data);
  }

  struct FreeList {
    std::vector<void*> blocks;
    int64_t last_use = 0;  // the number of the last request for this size
  };

  void* take(size_t bytes) {
    size_t size = block_size(bytes);
    void* block = nullptr;
    {
      const std::scoped_lock lock(mutex_);
      refuse_over_cap(bytes, size);
      FreeList& list = free_[size];
      list.last_use = ++requests_;
      if (!list.blocks.empty()) block = last_of(size, list);
      if (!block && !has_room(size)) {
        block = cached_above(size);
        if (!block) make_room(size);
      }
      totals_.new_blocks += !block;
      if (!block) block = from_system(size);
      if (!block && trim_locked() > 0) block = from_system(size);
      if (!block)
        throw HostMemoryError(cat("the system has no memory left for another ", bytes, " bytes (",
                                  to_string(current_class), "); in use: ", in_use()));
      count(current_class, bytes);
      peak_blocks_ = std::max(peak_blocks_, blocks_ += size);
    }
    void* data = new (block) Header{size, bytes, current_class} + 1;
    report(data, bytes);
    return data;
  }

  bool is_cached(size_t size) const {
    const auto list = free_.find(size);
    return list != free_.end() && !list->second.blocks.empty();
  }

  void* last_of(size_t size, FreeList& list) {
    void* block = list.blocks.back();
    list.blocks.pop_back();
    totals_.cached -= size;
    return block;
  }

  // Whether the memory of all blocks stays close to the highest use so far if a block of this size is added.
  bool has_room(size_t size) const {
    return size < kMapped || blocks_ + totals_.cached + int64_t(size) <= peak_blocks_ + peak_blocks_ / 16;
  }

  // Takes the smallest cached block that is larger than `size` by at most half, and sets `size` to its size; null if
  // there is none.
  void* cached_above(size_t& size) {
    const size_t most = size + size / 2;
    for (auto list = free_.upper_bound(size); list != free_.end() && list->first <= most; ++list)
      if (!list->second.blocks.empty()) return last_of(size = list->first, list->second);
    return nullptr;
  }

  // Returns cached blocks to the system, those of the least recently requested sizes first, until there is room for
  // another block or only small blocks are left.
  void make_room(size_t size) {
    while (!has_room(size)) {
      auto oldest = free_.end();
      for (auto list = free_.lower_bound(kMapped); list != free_.end(); ++list)
        if (!list->second.blocks.empty() && (oldest == free_.end() || list->second.last_use < oldest->second.last_use))
          oldest = list;
      if (oldest == free_.end()) return;
      munmap(last_of(oldest->first, oldest->second), oldest->first);
    }
  }

  void give_back(void* data) {
    Header* header = static_cast<Header*>(data) - 1;
    const int64_t bytes = header->bytes;
    report(data, -bytes);
    const std::scoped_lock lock(mutex_);
    count(header->memory, -bytes);
    blocks_ -= header->block;
    totals_.cached += header->block;
    free_[header->block].blocks.push_back(header);
  }

  void count(MemoryClass memory, int64_t bytes) {
    const auto i = static_cast<size_t>(memory);
    totals_.peak_of_class[i] = std::max(totals_.peak_of_class[i], totals_.now[i] += bytes);
    totals_.peak_live = std::max(totals_.peak_live, totals_.live += bytes);
  }

  void refuse_over_cap(size_t bytes, int64_t size) {
    if (cap_ == 0) return;
    const int64_t more = is_cached(size) ? 0 : size;
    if (blocks_ + totals_.cached + more <= cap_) return;
    trim_locked();
    if (blocks_ + size <= cap_) return;
    throw HostMemoryError(cat("another ", bytes, " bytes (", to_string(current_class),
                              ") would exceed runtime.memory_cap, ", cap_, " bytes; in use: ", in_use()));
  }

  // Bytes in use by class.
  std::string in_use() const {
    std::string classes;
    for (size_t i = 0; i < kMemoryClasses; ++i)
      classes += cat(i ? ", " : "", to_string(static_cast<MemoryClass>(i)), " ", totals_.now[i]);
    return classes;
  }

  // Null if the system has no more memory.
  static void* from_system(size_t size) {
    if (size < kMapped) return std::aligned_alloc(kHeader, (size + kHeader - 1) / kHeader * kHeader);
    void* block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? nullptr : block;
  }

  int64_t trim_locked() {
    for (auto& [size, list] : free_) {
      for (void* block : list.blocks)
        if (size >= kMapped)
          munmap(block, size);
        else
          std::free(block);
      list.blocks.clear();
    }
    return std::exchange(totals_.cached, 0);
  }

  static void report(void* data, int64_t bytes) {
    if (c10::memoryProfilingEnabled())
      c10::reportMemoryUsageToProfiler(data, bytes, 0, 0, c10::Device(c10::DeviceType::CPU));
  }

  std::mutex mutex_;
  std::map<size_t, FreeList> free_;  // by block size
  MemoryTotals totals_;
  int64_t requests_ = 0;
  int64_t blocks_ = 0, peak_blocks_ = 0;  // bytes of the blocks in use, now and at most so far
  int64_t cap_ = 0;
};

}  // namespace

const char* to_string(MemoryClass memory) {
  static constexpr const char* names[] = {"weights",     "gradients",     "optimizer",
                                          "activations", "communication", "workspace"};
  return names[static_cast<size_t>(memory)];
}

MemoryScope::MemoryScope(MemoryClass memory) : before_(std::exchange(current_class, memory)) {}
MemoryScope::~MemoryScope() {
  current_class = before_;
}

void use_caching_allocator() {
  c10::SetCPUAllocator(&CachingAllocator::instance(), /*priority=*/100);
}
MemoryTotals memory_totals() {
  return CachingAllocator::instance().totals();
}
void restart_memory_peaks() {
  CachingAllocator::instance().restart_peaks();
}
void set_memory_cap(int64_t bytes) {
  CachingAllocator::instance().set_cap(bytes);
}
int64_t trim_memory() {
  return CachingAllocator::instance().trim();
}

}  // namespace shardline
