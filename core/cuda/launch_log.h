// Records which of our kernels a thread starts and how much device memory each reads and writes. launch() makes the
// entries.
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

// Records the launches of its thread while it exists. If there are several, only the newest records.
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
