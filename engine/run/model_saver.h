// Saves the model of a training run. Foreseeable failures are found before the first step: at that point the files are
// created, their disk space is reserved, and the hosts that will write them are checked to see the same files.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/comm/long_work.h"
#include "engine/run/model_source.h"
#include "models/files/hf_writer.h"

namespace shardline {

// Files to put next to the weights, contents by name: the tokenizer's, and the other files of the directory that the
// model came from. `tokenizer` is the config's.
std::map<std::string, std::string> companions_of(const ModelSource& source, const std::string& tokenizer);

class ModelSaver {
 public:
  // Collective over groups.world. `directory` becomes a directory that transformers can load. `dtype` is that of the
  // saved weights, StageParameters::trained_type. `tokenizer` is the config's: its files, or equivalent ones, are put
  // next to the weights. Throws RunError if the disk is too full, or if a rank of the first replica, which writes the
  // model, does not see the directory of rank 0.
  ModelSaver(const std::string& directory, const ModelSource& source, at::ScalarType dtype,
             const std::string& tokenizer, const RankGroups& groups);
  // Removes the files unless save() has been called.
  ~ModelSaver();
  ModelSaver(const ModelSaver&) = delete;
  ModelSaver& operator=(const ModelSaver&) = delete;

  // Collective over the world. Each rank writes its own slices; the time limit is renewed while bytes arrive on the
  // disk. `show` receives the bytes of all ranks. When save returns on any rank, the model is complete. The buffers of
  // a program, which rank 0 writes, are those after `steps` training steps. For an exported program, it also writes
  // model.pt2, alone and without renewing the time limit of the waiting ranks.
  void save(StageParameters& parameters, const LongWork::Show& show = {}, int64_t steps = 0);

 private:
  void create();
  void discard() const;
  void finish(int64_t steps);
  void write_program(int64_t steps) const;
  std::string unfinished_program() const;

  std::string directory_;
  HfWriter writer_;
  nlohmann::json config_;                          // config.json
  std::map<std::string, std::string> companions_;  // on rank 0: file contents by name
  std::shared_ptr<const ExportedModel> exported_;  // null: the model belongs to a family
  std::vector<BufferSpec> buffers_;
  std::function<BufferValues(int64_t steps)> values_of_buffers_;
  bool removes_files_;
};

}  // namespace shardline
