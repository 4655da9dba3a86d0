// Schedules that a user writes by hand or with a program.
//
// *.csv: a line per stage with cells between commas or blanks: F0 forward, B0 backward, W0 weight gradient of
// microbatch 0; F0/3 of chunk 3, where a stage has several (chunks count through the model; without "/" it is the
// number of the stage). A microbatch without W cell on a chunk goes backward as a whole in its B. "." is idle time and
// means nothing, "#" begins a comment, a leading "stage 2" is skipped: text_grid's output can be read. Messages and
// reductions are inserted.
//
// *.json: either the same cells, [["F0", "B0"], ["F0", "B0"]], or the object that `shardline plan --json` shows as
// "schedule"; if it holds no message at all, messages are inserted. Reductions of gradients depend on the run's
// sharding, so those in the file are ignored and those of a run without sharding are inserted.
#pragma once
#include <string>

#include "pipeline/schedule/schedule.h"

namespace shardline {

// The schedule has the file's name. Throws ConfigError naming line and cell. Whether the lists make sense, only
// check_schedule says.
Schedule read_schedule_file(const std::string& path);

// text as in *.csv files. `name` is used in messages.
Schedule schedule_from_cells(const std::string& text, const std::string& name);

}  // namespace shardline
