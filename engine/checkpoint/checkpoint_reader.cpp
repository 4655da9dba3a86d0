#include "engine/checkpoint/checkpoint_reader.h"

#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "engine/checkpoint/contents.h"
#include "engine/checkpoint/piece_files.h"
#include "models/files/hf_layout.h"
#include "models/files/safetensors_files.h"

namespace shardline {
namespace {

class StateFiles {
 public:
  explicit StateFiles(const std::string& checkpoint)
      : checkpoint_(checkpoint), files_(open_safetensors(checkpoint, kOptimizerStem)) {
    for (const auto& [name, file] : files_)
      for (const auto& [tensor, entry] : file.tensors()) file_of_[tensor] = &file;
  }

  // [tensor.sizes]
  at::Tensor tensor(const std::string& name, const CheckpointTensor& wanted, at::IntArrayRef shape) const {
    const auto found = file_of_.find(name);
    if (found == file_of_.end())
      throw DataError(cat(checkpoint_, ": has no tensor ", name,
                          files_.empty()
                              ? "; it was saved with training.save_only_model, so training cannot continue from it"
                              : "; it was saved with another training.optim or training.optim_args"));
    const auto& entry = found->second->tensors().at(name);
    if (entry.shape != shape || !c10::isFloatingType(entry.dtype))
      throw DataError(cat(found->second->path(), ": tensor ", name, " has the shape ", at::IntArrayRef(entry.shape),
                          " and the dtype ", safetensors_dtype(entry.dtype), ", but the optimizer needs ", shape,
                          " of a floating type; resume with the model that wrote the checkpoint"));
    return found->second->tensor(name).view(wanted.sizes);
  }

 private:
  std::string checkpoint_;
  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, const SafetensorsFile*> file_of_;
};

}  // namespace

TrainerState read_trainer_state(const std::string& checkpoint) {
  const std::string path = file_in(checkpoint, stored_name(kTrainerStateFile, !!checkpoint_of_part(checkpoint)));
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw DataError(cat(path, ": cannot be read; name a checkpoint of shardline"));
  return parse_trainer_state(text, path);
}

void read_optimizer_state(const std::string& checkpoint, StageParameters& parameters, Optimizer& optimizer,
                          const OptimizerOptions& options, const ModelSpec& spec) {
  const at::NoGradGuard values_only;
  const CheckpointContents contents(spec, parameters.trained_type(), options);
  const StateFiles files(checkpoint);
  const auto& groups = parameters.groups();
  for (const auto& part : optimizer.state()) {
    const ParamSource& source = part.spec->sources[part.tensor.source];
    const std::string name = state_name(source.tensor, part.tensor.name);
    const CheckpointTensor& tensor = contents.tensors()[contents.number(name)];
    const auto stored =
        files.tensor(name, tensor, part.tensor.by_element ? file_shape(*part.spec, source) : part.tensor.shape);
    const SlicePart slice = part.tensor.by_element
                                ? SlicePart{part.spec, groups.coordinates.t, groups.mesh.t(), part.offset, part.length}
                                : SlicePart{};
    for (const auto& box : boxes_of(tensor, slice, part.values)) {
      at::Tensor from = stored;
      for (size_t d = 0; d < box.begin.size(); ++d) from = from.narrow(d, box.begin[d], box.length[d]);
      box.values.copy_(from);
    }
  }
}

}  // namespace shardline
