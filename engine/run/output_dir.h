// The output directory of a training run, between an earlier run and the new one.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <vector>

#include "core/model/model_spec.h"
#include "engine/config/keys/options.h"
#include "engine/run/output_lock.h"

namespace shardline {

// The result of `shardline profile`; a run leaves it in place.
inline constexpr const char* kProfileFile = "profile.json";
// The file beside predictions.jsonl that records which data the predictions were made for: {"files": names, "digest":
// of their contents}.
inline constexpr const char* kPredictedDataFile = "predictions.data.json";

// Whether an entry of an output directory is a record, which a new run removes. config.resolved.json is none: it is
// replaced when the run writes its own, because the run may have been started with it, and a user's only copy must not
// be removed while the run can still fail.
bool is_record(const std::filesystem::path& name);

// Throws ConfigError if another run uses the directory or the directory of checkpoints, if files would be overwritten,
// or if it cannot be created or written to; RunError if the disk lacks space for the run's files. A run that continues
// from a checkpoint finds its own files there.
void check_output_dir(const Config& config, const ModelSpec& spec);

// output_dir/stop: a run whose rank 0 sees this file stops, as if it had received a signal.
std::filesystem::path stop_file(const Config& config);
bool is_asked_by_file(const Config& config);
void remove_stop_file(const Config& config);  // after the request has been handled
// Call it once when a run starts, not when its ranks are started again: a request that already exists was meant for
// an earlier run. Removes it and prints a note.
void forget_earlier_request(const Config& config, std::ostream& log);

// Where an earlier run's model is kept until the new run has saved its own.
std::filesystem::path previous_model(const Config& config);

// Checks, creates and locks the directory and the directory of checkpoints; the locks last as long as the result.
// Removes only the unfinished files and the flight records of earlier processes.
[[nodiscard]] std::vector<OutputLock> lock_output_dir(const Config& config, const ModelSpec& spec);

// Locks only the directory of checkpoints, on a host that has one of its own. Throws ConfigError if there are
// checkpoints that the run would neither continue nor replace.
[[nodiscard]] OutputLock lock_checkpoint_directory(const Config& config);
// Call it on such a host, too, before the first step. Throws RunError if the disk lacks space for the host's part of
// the checkpoints. bytes: the size of one checkpoint.
void check_checkpoint_room(const Config& config, double bytes);

// Whether checkpoints and records in the run's directories are its own: a run that starts from the beginning or from a
// checkpoint elsewhere, or from one that was set aside there, finds only those of other runs.
bool continues_in_place(const Config& config);
// Whether the path names a checkpoint, or a part of one, in the directory of checkpoints, under its own name.
bool is_in_place(const Config& config, const std::string& checkpoint);

// Call these under the lock, in this order, once the run can no longer be refused. resumed: the step after which the
// run continues its own records and checkpoints; those up to it stay.
// Sets aside checkpoints of an earlier run, or of an attempt that continued after that step. Returns how many.
int set_aside_checkpoints(const Config& config, std::optional<int64_t> resumed = {});
// Removes records of an earlier run and moves its model to previous_model(), so that a run that fails leaves nothing
// that looks like its result.
void replace_earlier_run(const Config& config, std::optional<int64_t> resumed = {});

// Copies the records of the run, with its resolved config, into another directory, which is created; files of the same
// name there are replaced. Throws std::exception if it cannot.
void copy_records(const Config& config, const std::filesystem::path& directory);

// Call it after the new model is complete.
void remove_previous_model(const Config& config);

}  // namespace shardline
