#include "engine/checkpoint/checkpoint_reader.h"

#include <ATen/core/grad_mode.h>

#include "core/error.h"
#include "core/files/regular_file.h"
#include "core/memory/transposing_copy.h"
#include "engine/checkpoint/contents.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/piece_files.h"
#include "engine/checkpoint/state_files.h"
#include "models/files/hf_layout.h"

namespace shardline {
TrainerState read_trainer_state(const std::string& checkpoint) {
  const std::string path = file_in(checkpoint, stored_name(kTrainerStateFile, !!checkpoint_of_part(checkpoint)));
  const std::string text = read_regular_file(path);
  const Manifest manifest = read_manifest(checkpoint);
  const auto pieces = manifest.files.find(kTrainerStateFile);
  if (!manifest.part && (pieces == manifest.files.end() || !matches(pieces->second, text)))
    throw DataError(cat(path, ": does not match its checksum; it is damaged; use another checkpoint"));
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
    const auto stored = files.tensor(name, part.tensor.by_element ? file_shape(*part.spec, source) : part.tensor.shape)
                            .view(tensor.sizes);
    const SlicePart slice = part.tensor.by_element
                                ? SlicePart{part.spec, groups.coordinates.t, groups.mesh.t(), part.offset, part.length}
                                : SlicePart{};
    for (const auto& box : boxes_of(tensor, slice, part.values)) {
      at::Tensor from = stored;
      for (size_t d = 0; d < box.begin.size(); ++d) from = from.narrow(d, box.begin[d], box.length[d]);
      copy_transposing(box.values, from);
    }
  }
}

}  // namespace shardline
