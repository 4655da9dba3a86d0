// Saves the model of a training run. What can be known to fail is found before the first step: the files are made and
// their room is reserved then, and the hosts that will write them must see the same ones.
#pragma once
#include <map>
#include <string>

#include "core/comm/long_work.h"
#include "engine/run/model_source.h"
#include "models/files/hf_writer.h"

namespace shardline {

class ModelSaver {
 public:
  // Collective over groups.world. `directory` becomes one that transformers opens. `dtype`: of the weights there, that
  // of StageParameters::trained_type. `tokenizer` as in the config: its files, or ones that mean the same, are put
  // beside the weights. RunError where the disk has no room, or where a rank of the first replica, which writes the
  // model, does not see the directory of rank 0.
  ModelSaver(const std::string& directory, const ModelSource& source, at::ScalarType dtype,
             const std::string& tokenizer, const RankGroups& groups);
  // Removes the files unless save() has begun.
  ~ModelSaver();
  ModelSaver(const ModelSaver&) = delete;
  ModelSaver& operator=(const ModelSaver&) = delete;

  // Collective over the world: each rank writes its own slices, for as long as bytes arrive on the disk. `show` is told
  // of all ranks' bytes. When it returns, on any rank, the model is there.
  void save(StageParameters& parameters, const LongWork::Show& show = {});

 private:
  HfWriter writer_;
  nlohmann::json config_;                          // config.json
  std::map<std::string, std::string> companions_;  // on rank 0: contents by name
  bool removes_files_;
};

}  // namespace shardline
