// Simulates a disk that fails or is slow: the functions below replace those of the system in a test program if one of
// its sources includes this header.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

namespace shardline::disk_calls {

inline std::atomic<int> until_failure = -1;                   // calls that still succeed; negative: all do
inline std::atomic<bool> only_writes = false;                 // only writes fail: the disk is full, not broken
inline thread_local std::chrono::milliseconds pause{0};       // before each write of this thread
inline thread_local std::chrono::milliseconds read_pause{0};  // after reading a tensor of a mapped file

inline bool fails(bool writes) {
  if (only_writes && !writes) return false;
  if (until_failure < 0 || until_failure-- > 0) return false;
  until_failure = 0;  // a full disk stays full
  errno = ENOSPC;
  return true;
}

}  // namespace shardline::disk_calls

extern "C" {
ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  std::this_thread::sleep_for(shardline::disk_calls::pause);
  return shardline::disk_calls::fails(true) ? -1 : ::syscall(SYS_pwrite64, file, data, bytes, offset);
}
int fsync(int file) {
  return shardline::disk_calls::fails(false) ? -1 : static_cast<int>(::syscall(SYS_fsync, file));
}
int ftruncate(int file, off_t bytes) noexcept {
  return shardline::disk_calls::fails(true) ? -1 : static_cast<int>(::syscall(SYS_ftruncate, file, bytes));
}
int fallocate(int file, int mode, off_t offset, off_t bytes) {
  return shardline::disk_calls::fails(true) ? -1
                                            : static_cast<int>(::syscall(SYS_fallocate, file, mode, offset, bytes));
}
int rename(const char* from, const char* to) noexcept {
  return shardline::disk_calls::fails(false)
             ? -1
             : static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int madvise(void* data, size_t bytes, int advice) noexcept {
  if (advice == MADV_DONTNEED) std::this_thread::sleep_for(shardline::disk_calls::read_pause);
  return static_cast<int>(::syscall(SYS_madvise, data, bytes, advice));
}
}
