#include "engine/data/examples/microbatch_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/error.h"

namespace shardline {

Microbatch rows_of_segments(std::vector<int64_t> ends, int64_t first_sample, const std::vector<int64_t>& sample_ends) {
  const int64_t segments = std::ssize(ends), rows = ends.empty() ? 0 : ends.back();
  SL_ASSERT(sample_ends.empty() || sample_ends.back() == segments, "samples of ", sample_ends.back(), " segments");
  const auto integers = [](int64_t size) { return at::empty({size}, at::kLong); };
  const bool is_packed = std::ssize(sample_ends) != 0 && std::ssize(sample_ends) != segments;
  Microbatch made{.ids = integers(rows),
                  .positions = integers(rows),
                  .samples = integers(rows),
                  .segment_samples = integers(segments),
                  .segment_places = integers(segments),
                  .ends = std::move(ends)};
  made.places = is_packed ? integers(rows) : made.positions;
  const auto data = [](at::Tensor& tensor) { return tensor.mutable_data_ptr<int64_t>(); };
  int64_t *positions = data(made.positions), *places = data(made.places), *samples = data(made.samples);
  int64_t *segment_samples = data(made.segment_samples), *segment_places = data(made.segment_places);
  int64_t sample = 0, place = 0;
  for (int64_t segment = 0, row = 0; segment < segments; ++segment) {
    if (segment > 0 && (!is_packed || segment == sample_ends[sample])) {
      ++sample;
      place = 0;
    }
    segment_samples[segment] = first_sample + sample;
    segment_places[segment] = place;
    const int64_t length = made.ends[segment] - row;
    made.position_count = std::max(made.position_count, length);
    for (int64_t position = 0; position < length; ++position, ++row, ++place) {
      positions[row] = position;
      places[row] = place;
      samples[row] = first_sample + sample;
    }
  }
  made.is_rectangular = !is_packed && segments * made.position_count == rows;
  return made;
}

}  // namespace shardline
