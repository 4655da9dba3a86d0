// The timeline of a step in a run's output_dir, as rows of a picture.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule/pictures/interval_picture.h"

namespace shardline {

// What each rank computed in a step, up to the first 64 ranks.
struct RunTimeline {
  std::int64_t step = 0;
  double seconds = 0;
  std::vector<PictureRow> rows;
};
// Reads the contents of timeline/step-N.json. Throws DataError.
RunTimeline timeline_in(const nlohmann::json& trace, const std::string& file, std::int64_t step);

// The timeline of the first step that has one; unset if no step has. Throws DataError.
std::optional<RunTimeline> read_timeline(const std::string& output_dir);

}  // namespace shardline
