// Records which of our kernels a thread has started and the device memory that each reads and writes, where they are
// started.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
struct CUstream_st;
#endif

namespace shardline::cuda {

using Stream = CUstream_st*;  // cudaStream_t

struct LoggedLaunch {
  std::string kernel;
  int64_t bytes_read, bytes_written;
};

// Records the launches of its thread while it exists. If several exist, only the newest records them.
class LaunchLog {
 public:
  LaunchLog();
  ~LaunchLog();
  LaunchLog(const LaunchLog&) = delete;
  LaunchLog& operator=(const LaunchLog&) = delete;

  const std::vector<LoggedLaunch>& launches() const { return launches_; }

 private:
  friend void log_launch(const char*, int64_t, int64_t);
  std::vector<LoggedLaunch> launches_;
  LaunchLog* previous_;
};

void log_launch(const char* kernel, int64_t bytes_read, int64_t bytes_written);

}  // namespace shardline::cuda
