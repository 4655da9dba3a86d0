// Work spread over threads whose results are used one after the other in the order of the work.
#pragma once
#include <cstdint>
#include <functional>

#include "engine/data/source/data_source.h"

namespace shardline {

// Calls make(i) for i in 0..count-1 on `threads` threads and use(i, piece) on the calling thread in ascending order. No
// more than a few results per thread wait at any time. The first exception, by i, ends the work and is thrown here.
void ordered_work(int64_t count, int threads, const std::function<EncodedPiece(int64_t)>& make,
                  const std::function<void(int64_t, EncodedPiece)>& use);

}  // namespace shardline
