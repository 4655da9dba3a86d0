// A block's shared memory, with a record of which thread wrote and read each element since the last barrier. Every run
// detects races, reads of elements that were never written, indices outside an array, and accesses to an element before
// a copy to it has been waited for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "core/alignment.h"

namespace shardline::twin {

// Thrown for a bug in a kernel that a GPU would not report.
struct KernelFault : std::logic_error {
  using std::logic_error::logic_error;
};

// The thread that accesses an element, its warp, and how many barriers of the block and of the warp it has passed.
// Accesses of two threads are ordered if a barrier in which both take part lies between them.
struct Access {
  int thread = -1, warp = -1;
  uint64_t block_epoch = 0, warp_epoch = 0;
};

class ElementHistory {
 public:
  // These throw KernelFault.
  void read(const Access& by);
  void write(const Access& by);
  void add_atomically(const Access& by);
  // A started copy may write at any time until its thread has waited for it.
  void start_copy(const Access& by);
  void finish_copy(const Access& by);

 private:
  static bool ordered(const Access& before, const Access& now);
  void check_no_copy(const Access& by) const;

  Access written_, read_, added_;
  bool read_by_several_threads_ = false, read_by_several_warps_ = false, copied_to_ = false;
};

// Describes an access by the running thread.
Access access_of_this_thread();

// A copy from global to shared memory that a thread has started. It is performed when the thread waits for it.
struct Copy {
  void* to;
  const void* from;  // null: zeros
  size_t bytes;
  ElementHistory* history;
  int64_t count;

  void finish() const;
};
// Remembers a copy of the running thread until the thread waits.
void start_copy(const Copy& copy);

template <class T>
class SharedElement {
 public:
  SharedElement(T* value, ElementHistory* history) : value_(value), history_(history) {}
  operator T() const {
    history_->read(access_of_this_thread());
    return *value_;
  }
  SharedElement& operator=(const T& value) {
    history_->write(access_of_this_thread());
    *value_ = value;
    return *this;
  }
  SharedElement& operator=(const SharedElement& other) {
    const T value = other;
    return *this = value;
  }
  SharedElement& operator+=(const T& value) {
    const T before = *this;
    return *this = before + value;
  }
  void add_atomically(const T& value) {
    history_->add_atomically(access_of_this_thread());
    *value_ += value;
  }

 private:
  T* value_;
  ElementHistory* history_;
};

// An array in shared memory.
template <class T>
class SharedArray {
 public:
  SharedArray(T* values, ElementHistory* history, int64_t count) : values_(values), history_(history), count_(count) {}
  SharedElement<T> operator[](int64_t i) const {
    if (i < 0 || i >= count_)
      throw KernelFault("element " + std::to_string(i) + " of a shared array of " + std::to_string(count_));
    return {values_ + i, history_ + i};
  }
  SharedArray part(int64_t first, int64_t count) const {
    if (first < 0 || count < 0 || first + count > count_)
      throw KernelFault("elements " + std::to_string(first) + " to " + std::to_string(first + count) +
                        " of a shared array of " + std::to_string(count_));
    return {values_ + first, history_ + first, count};
  }
  // Copies zeros if `from` is null.
  void start_copy(int64_t first, int64_t count, const T* from) const {
    const SharedArray target = part(first, count);
    const size_t bytes = count * sizeof(T);
    if (!is_aligned(target.values_, bytes) || !is_aligned(from, bytes))
      throw KernelFault("a copy whose ends are not aligned to its size");
    for (int64_t i = 0; i < count; ++i) target.history_[i].start_copy(access_of_this_thread());
    twin::start_copy({target.values_, from, bytes, target.history_, count});
  }

 private:
  T* values_;
  ElementHistory* history_;
  int64_t count_;
};

// The shared memory that a block was launched with. All threads must take arrays of it in the same order.
class SharedRoom {
 public:
  static constexpr size_t kAlignment = 16;  // bytes, of every array

  explicit SharedRoom(size_t bytes) : bytes_(bytes), history_(bytes) {}

  template <class T>
  SharedArray<T> take(size_t& offset, int64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t begin = (offset + kAlignment - 1) / kAlignment * kAlignment;
    offset = begin + count * sizeof(T);
    if (offset > bytes_.size())
      throw KernelFault(std::to_string(offset) + " bytes of shared memory of a launch with " +
                        std::to_string(bytes_.size()));
    // There is a history for every byte, which is more than enough for one per element: an array uses the first `count`
    // histories of its own bytes.
    return {reinterpret_cast<T*>(bytes_.data() + begin), history_.data() + begin, count};
  }
  void clear() { history_.assign(history_.size(), {}); }

 private:
  std::vector<std::byte> bytes_;
  std::vector<ElementHistory> history_;
};

}  // namespace shardline::twin
