#include "core/cuda/twin/shared_memory.h"

namespace shardline::twin {
namespace {

[[noreturn]] void race(const char* now, const char* before, const Access& by, const Access& other) {
  throw KernelFault("a race in shared memory: thread " + std::to_string(by.thread) + " " + now +
                    " an element without a barrier since thread " + std::to_string(other.thread) + " " + before +
                    " it");
}

}  // namespace

bool ElementHistory::ordered(const Access& before, const Access& now) {
  if (before.thread < 0 || before.thread == now.thread || before.block_epoch != now.block_epoch) return true;
  return before.warp == now.warp && before.warp_epoch != now.warp_epoch;
}

void ElementHistory::check_no_copy(const Access& by) const {
  if (copied_to_)
    throw KernelFault("thread " + std::to_string(by.thread) + " uses shared memory before thread " +
                      std::to_string(written_.thread) + " has waited for its copy to it");
}

void ElementHistory::read(const Access& by) {
  check_no_copy(by);
  if (written_.thread < 0 && added_.thread < 0)
    throw KernelFault("thread " + std::to_string(by.thread) + " reads shared memory that nothing was written to");
  if (!ordered(written_, by)) race("reads", "wrote", by, written_);
  if (!ordered(added_, by)) race("reads", "added to", by, added_);
  const bool same_epoch = read_.thread >= 0 && read_.block_epoch == by.block_epoch;
  read_by_several_warps_ = same_epoch && (read_by_several_warps_ || read_.warp != by.warp);
  read_by_several_threads_ = same_epoch && (read_.warp_epoch == by.warp_epoch || read_by_several_warps_) &&
                             (read_by_several_threads_ || read_.thread != by.thread);
  read_ = by;
}

void ElementHistory::write(const Access& by) {
  check_no_copy(by);
  if (!ordered(written_, by)) race("writes", "wrote", by, written_);
  if (!ordered(added_, by)) race("writes", "added to", by, added_);
  if (read_.thread >= 0 && read_.block_epoch == by.block_epoch) {
    const bool warps_differ = read_by_several_warps_ || read_.warp != by.warp;
    const bool threads_differ = read_by_several_threads_ || read_.thread != by.thread;
    if (warps_differ || (threads_differ && read_.warp_epoch == by.warp_epoch)) race("writes", "read", by, read_);
  }
  written_ = by;
}

void ElementHistory::start_copy(const Access& by) {
  write(by);
  copied_to_ = true;
}

void ElementHistory::finish_copy(const Access& by) {
  copied_to_ = false;
  written_ = by;
}

void ElementHistory::add_atomically(const Access& by) {
  check_no_copy(by);
  if (written_.thread < 0) throw KernelFault("an atomic addition to shared memory that nothing was written to");
  if (!ordered(written_, by)) race("adds to", "wrote", by, written_);
  const bool read_now = read_.thread >= 0 && read_.block_epoch == by.block_epoch;
  if (read_now && (read_by_several_threads_ || !ordered(read_, by))) race("adds to", "read", by, read_);
  added_ = by;
}

void Copy::finish() const {
  if (from != nullptr)
    std::memcpy(to, from, bytes);
  else
    std::memset(to, 0, bytes);
  for (int64_t i = 0; i < count; ++i) history[i].finish_copy(access_of_this_thread());
}

}  // namespace shardline::twin
