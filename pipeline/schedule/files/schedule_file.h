// Schedules written by a user, by hand or with a program.
//
// *.csv: one line per stage with cells separated by commas or blanks: F0 forward, B0 backward, W0 weight gradient of
// microbatch 0; F0/3 for chunk 3 if stages have several (chunks are numbered through the model; without "/", the
// chunk's number is the stage's). A microbatch without a W cell on a chunk runs its whole backward in its B cell. "."
// is idle time and ignored, "#" begins a comment, a leading "stage 2" is skipped, so the output of text_grid can be
// read. Messages and reductions are inserted.
//
// *.json: either the same cells, [["F0", "B0"], ["F0", "B0"]], or the object that `shardline plan --json` shows as
// "schedule"; messages are inserted if it has none. The reductions of gradients depend on the run's sharding, so those
// in the file are ignored, and those for a run without sharding are inserted.
#pragma once
#include <string>

#include "pipeline/schedule/schedule.h"

namespace shardline {

// The schedule gets the file's name. Throws ConfigError that names line and cell. Only check_schedule checks whether
// the lists make sense.
Schedule read_schedule_file(const std::string& path);

// text: as in *.csv files. `name` appears in messages.
Schedule schedule_from_cells(const std::string& text, const std::string& name);

}  // namespace shardline
