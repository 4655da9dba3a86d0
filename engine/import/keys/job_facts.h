// What several kinds of job definitions say: machines, data channels, the script, where checkpoints are.
#pragma once
#include "engine/import/keys/vocabulary.h"

namespace shardline {

inline constexpr const char* kContainerFolder = "/opt/ml";

// The machines. Their GPUs become processes unless mpi.processes_per_host says how many of these there are.
ForeignKey reads_instance_type(const std::string& name);
ForeignKey reads_instance_count(const std::string& name);
// Machines whose names the file does not say, and the processes of all of them.
ForeignKey reads_machines(const std::string& name);
ForeignKey reads_processes(const std::string& name);

// The script, from which the task follows.
ForeignKey reads_script(const std::string& name);
// Whether the job runs one of the scripts that train only with --do_train.
bool trains_only_if_told(const Draft& draft);
// Defaults of the script that the job leaves open, and the task where a key tells it.
void add_defaults_of_script(Draft& draft);

// A key of a data channel, whose name `channel_of` finds: where its files are. `folder_of` finds the place that the
// container has for them.
ForeignKey reads_channel(const std::string& name, const std::string& note,
                         std::function<std::string(const Given&)> channel_of,
                         std::function<std::string(const Given&)> folder_of);
// The same for a channel of the command line, if no key of the job has named its files.
void add_channel(const std::string& channel, const std::string& place, Draft& draft);
// A path in the container as one here, if --channel says where the channel's files are.
std::string local_path(const std::string& path, const Draft& draft);

// File is the only mode in which the data has a place.
Outcome read_input_mode(const Given& given, Draft& draft);

// Whether each host has all files, as it must.
Outcome read_replication(const Given& given, Draft& draft);

// Spot machines and checkpoints: the job continues from the newest checkpoint.
Outcome read_spot(const Given& given, Draft& draft);
Outcome read_local_checkpoints(const Given& given, Draft& draft);
Outcome read_stored_checkpoints(const Given& given, Draft& draft);

}  // namespace shardline
