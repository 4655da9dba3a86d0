// Makes the configs with which a study runs one of its points.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/study/study_file.h"

namespace shardline {

struct StudyRun {
  std::string name;   // names the run and its directory
  std::string group;  // the point's name, which repeats share
  const StudyPoint* point = nullptr;
  std::string cluster;  // the file of the machines for which the run is planned; empty: it is trained here
  int devices = 1, nodes = 1;
  int64_t global_batch = 1;
  double batch_per_device = 1;     // samples of a step, divided by the devices
  std::optional<int64_t> samples;  // in an epoch, as far as the config determines it
  // Optimizer steps. steps: as the config states or the epochs require, each epoch ending with a shorter batch if
  // necessary. nominal_steps: samples x epochs / global batch. 0: known only with the data.
  int64_t steps = 0;
  double nominal_steps = 0;
  // With output_dir output_of(study, name), and training.resume_from_checkpoint only if it names a checkpoint.
  Config config;

  bool planned() const { return !cluster.empty(); }
};

// The directory of a run, and within it output_dir, training.checkpoint_dir if the config sets one, config, and what
// the run prints.
std::string directory_of(const StudyFile& study, const std::string& run);
std::string output_of(const StudyFile& study, const std::string& run);
std::string checkpoints_of(const StudyFile& study, const std::string& run);
std::string config_of(const StudyFile& study, const std::string& run);
std::string log_of(const StudyFile& study, const std::string& run);

// Gives a run another name and directory.
void move_to(StudyRun& run, const StudyFile& study, const std::string& name);
// Equal for runs that do the same work, whatever their names.
std::string work_of(const StudyRun& run);

// How many ranks can compute here at the same time: GPUs if the config's runs use them, else cores.
int devices_here(const Config& config);
// The cores that a run takes on this host: all of them if its threads are not set or it uses GPUs, one for a plan.
int cores_of(const StudyRun& run);

// All runs, in the order of the study; its points must outlive them. Throws ConfigError for a config with a mistake
// that shows without its data and model, and for runs that do not fit this machine while no cluster is given.
std::vector<StudyRun> expand(const StudyFile& study);

}  // namespace shardline
