// Facts that several kinds of job definitions state: machines, data channels, the script, where checkpoints are.
#pragma once
#include "engine/import/keys/vocabulary.h"

namespace shardline {

inline constexpr const char* kContainerFolder = "/opt/ml";

// The machines. Each of their GPUs becomes a process, unless mpi.processes_per_host sets the number of processes.
ForeignKey reads_instance_type(const std::string& name);
ForeignKey reads_instance_count(const std::string& name);
// Machines whose names are not in the file, and the processes of all of them.
ForeignKey reads_machines(const std::string& name);
ForeignKey reads_processes(const std::string& name);

// The script, from which the task follows.
ForeignKey reads_script(const std::string& name);
// Whether the job runs one of the scripts that train only with --do_train.
bool trains_only_if_told(const Draft& draft);
// Adds defaults of the script that the job leaves open, and the task if a key requires one.
void add_defaults_of_script(Draft& draft);

// A key with the place of a data channel's files; `channel_of` finds the channel's name. `folder_of` finds the place of
// the files in the container.
ForeignKey reads_channel(const std::string& name, const std::string& note,
                         std::function<std::string(const Given&)> channel_of,
                         std::function<std::string(const Given&)> folder_of);
// The same for a channel of the command line, if no key of the job has named its files.
void add_channel(const std::string& channel, const std::string& place, Draft& draft);
// The local path for a path in the container, if --channel names the place of the channel's files.
std::string local_path(const std::string& path, const Draft& draft);

// Only in the modes File and FastFile are there files that can be read more than once.
Outcome read_input_mode(const Given& given, Draft& draft);

// A strategy of PyTorch's FSDP: FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD or NO_SHARD. Reads the degrees and the
// processes, so its key belongs to phase 2.
Outcome shard_as_fsdp(const std::string& strategy, const Given& given, Draft& draft);

// Whether each host has all files, as it must.
Outcome read_replication(const Given& given, Draft& draft);

// Spot machines and checkpoints: makes the job continue from its newest checkpoint.
Outcome read_spot(const Given& given, Draft& draft);
Outcome read_local_checkpoints(const Given& given, Draft& draft);
Outcome read_stored_checkpoints(const Given& given, Draft& draft);

}  // namespace shardline
