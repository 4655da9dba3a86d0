// The rows of samples of any lengths, and of samples that several documents are packed into.
#pragma once
#include <cstdint>
#include <vector>

#include "core/model/microbatch.h"

namespace shardline {

// Rows of segments whose first rows are at position 0. ends: rows before the end of each segment. sample_ends: segments
// before the end of each sample; empty: each segment is a sample. first_sample: place of the first one in the global
// batch. The caller fills in the ids; labels and other contents of rows are undefined.
Microbatch rows_of_segments(std::vector<int64_t> ends, int64_t first_sample,
                            const std::vector<int64_t>& sample_ends = {});

}  // namespace shardline
