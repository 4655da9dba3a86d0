// What a training container of SageMaker finds about its job: files below /opt/ml, and variables that a toolkit has
// set.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "engine/import/job_files.h"

namespace shardline {

using Variables = std::map<std::string, std::string>;  // the environment's variables
Variables environment_variables();

// /opt/ml, or the variable SAGEMAKER_BASE_DIR.
std::string container_folder(const Variables& variables);
// Whether a platform has put the description of a job there.
bool has_container_job(const std::string& folder);

struct ContainerJob {
  JobFile file;                    // keys of container_keys()
  std::vector<std::string> hosts;  // in the same order on each of them; empty: this one
  std::string current_host;
  std::string output_data;  // the folder for results other than the model
  bool is_first() const { return hosts.size() < 2 || current_host == hosts.front(); }
};

// Reads input/config/{hyperparameters,resourceconfig,inputdataconfig}.json of the folder, each of which may be missing,
// and the variables SM_HPS, SM_HP_*, SM_FRAMEWORK_PARAMS, SM_CHANNEL_*, SM_HOSTS, SM_CURRENT_HOST, SM_MODEL_DIR and
// SM_OUTPUT_DATA_DIR, which replace values of the files. Throws ConfigError for what is not JSON.
ContainerJob read_container_job(const std::string& folder, const Variables& variables);

}  // namespace shardline
