// A named time range on this thread, for NVIDIA's profilers (NVTX). Does nothing in builds without CUDA.
#pragma once

namespace shardline {

class ProfilerRange {
 public:
  explicit ProfilerRange(const char* name);  // copied
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace shardline
