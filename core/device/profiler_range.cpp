#include "core/device/profiler_range.h"

#ifdef SHARDLINE_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace shardline {

#ifdef SHARDLINE_CUDA
ProfilerRange::ProfilerRange(const char* name) {
  nvtxRangePushA(name);
}
ProfilerRange::~ProfilerRange() {
  nvtxRangePop();
}
#else
ProfilerRange::ProfilerRange(const char*) {}
ProfilerRange::~ProfilerRange() = default;
#endif

}  // namespace shardline
