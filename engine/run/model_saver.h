// Saves the model of a training run. Foreseeable failures are found before the first step: the files are created and
// their disk space is reserved then, and the hosts that will write them must see the same files.
#pragma once
#include <map>
#include <string>

#include "core/comm/long_work.h"
#include "engine/run/model_source.h"
#include "models/files/hf_writer.h"

namespace shardline {

class ModelSaver {
 public:
  // Collective over groups.world. `directory` becomes a directory that transformers can load. `dtype`: of the weights
  // there, that of StageParameters::trained_type. `tokenizer` as in the config: its files, or equivalent ones, are put
  // next to the weights. RunError if the disk has no room, or if a rank of the first replica, which writes the model,
  // does not see the directory of rank 0.
  ModelSaver(const std::string& directory, const ModelSource& source, at::ScalarType dtype,
             const std::string& tokenizer, const RankGroups& groups);
  // Removes the files unless save() has begun.
  ~ModelSaver();
  ModelSaver(const ModelSaver&) = delete;
  ModelSaver& operator=(const ModelSaver&) = delete;

  // Collective over the world: each rank writes its own slices, for as long as bytes arrive on the disk. `show` gets
  // the bytes of all ranks. When save returns, on any rank, the model is complete.
  void save(StageParameters& parameters, const LongWork::Show& show = {});

 private:
  HfWriter writer_;
  nlohmann::json config_;                          // config.json
  std::map<std::string, std::string> companions_;  // on rank 0: contents by name
  bool removes_files_;
};

}  // namespace shardline
