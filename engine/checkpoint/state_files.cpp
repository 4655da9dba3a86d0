#include "engine/checkpoint/state_files.h"

#include <algorithm>

#include "core/error.h"
#include "engine/checkpoint/contents.h"
#include "models/files/safetensors.h"

namespace shardline {

bool has_states(const Manifest& manifest) {
  return std::ranges::any_of(manifest.files, [](const auto& file) {
    return file.first.starts_with(kOptimizerStem) && file.first.ends_with(".safetensors");
  });
}

StateFiles::StateFiles(const std::string& checkpoint)
    : checkpoint_(checkpoint), files_(open_safetensors(checkpoint, kOptimizerStem)) {
  for (const auto& [name, file] : files_)
    for (const auto& [tensor, entry] : file.tensors()) file_of_[tensor] = &file;
}

at::Tensor StateFiles::tensor(const std::string& name, at::IntArrayRef shape) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end())
    throw DataError(cat(checkpoint_, ": has no tensor ", name,
                        files_.empty()
                            ? "; it was saved with training.save_only_model, so training cannot continue from it"
                            : "; it was saved with another training.optim, training.optim_args or training.trainable"));
  const auto& entry = found->second->tensors().at(name);
  if (entry.shape != shape || !c10::isFloatingType(entry.dtype))
    throw DataError(cat(found->second->path(), ": tensor ", name, " has the shape ", at::IntArrayRef(entry.shape),
                        " and the dtype ", safetensors_dtype(entry.dtype), ", but the optimizer needs ", shape,
                        " with a floating-point dtype; resume with the model that wrote the checkpoint"));
  return found->second->tensor(name);
}

}  // namespace shardline
