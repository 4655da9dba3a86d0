// `shardline train` as the program of a training container: makes a config from the job's description, and writes the
// cause of a failure to the file that the platform shows.
#pragma once
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace shardline {

// Runs the job that is described in `folder` (see engine/import/container.h) and returns the exit code. `train` trains
// with a config file and returns its exit code; it is called on the first host only. settings: as for --set. Throws the
// error that keeps the job from starting. If the job fails, folder/output/failure says why, in at most 1024 bytes.
// The records of the run are copied to the folder of output data when it ends.
int run_container_job(const std::string& folder, const std::vector<std::string>& settings,
                      const std::function<int(const std::string& config)>& train, std::ostream& log);

}  // namespace shardline
