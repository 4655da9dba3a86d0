#include "engine/checkpoint/checkpoint_reader.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "engine/checkpoint/contents.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/state_files.h"
#include "models/files/hf_layout.h"

namespace shardline {
namespace {

// The manifest as rank 0 reads it, or why it cannot be read.
std::string manifest_or_error(const std::string& path) {
  try {
    return "=" + manifest_text(read_manifest(path));
  } catch (const std::exception& error) {
    return cat("!", error.what());
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

}  // namespace

std::vector<std::string> verify_checkpoint(const std::string& path, Communicator& world, const LongWork::Show& show) {
  const std::string text = broadcast_string(world, world.rank() == 0 ? manifest_or_error(path) : "", 0);
  if (text.front() == '!') return {text.substr(1)};
  const Manifest manifest = parse_manifest(text.substr(1), file_in(path, kManifestFile));
  int64_t total = 0, done = 0;
  for (const auto& [name, pieces] : manifest.files) total += pieces.back().end / world.size();
  LongWork work(world, "verifying a checkpoint", show);
  std::string mine;
  try {
    for (const auto& line : find_damage(path, manifest, world.rank(), world.size(),
                                        [&](int64_t bytes) { work.report(done += bytes, total); }))
      mine += line + "\n";
  } catch (const std::exception& error) {
    mine += cat(error.what(), "\n");
  }
  work.finish();
  std::vector<std::string> damage;
  for (const auto& lines : gather_strings(world, mine))
    for (const auto& line : lines_of(lines))
      if (std::ranges::find(damage, line) == damage.end()) damage.push_back(line);
  return damage;
}

std::optional<std::string> newest_intact_checkpoint(const std::string& directory, Communicator& world,
                                                    std::vector<std::string>& skipped, const LongWork::Show& show) {
  std::string names;
  if (world.rank() == 0)
    for (const auto& place : checkpoints_in(directory)) names += place.path.string() + "\n";
  for (const auto& path : lines_of(broadcast_string(world, names, 0))) {
    const auto damage = verify_checkpoint(path, world, show);
    if (damage.empty()) return path;
    skipped.push_back(cat(path, " is damaged and left out: ", damage.front(),
                          damage.size() > 1 ? cat(" (and ", damage.size() - 1, " more)") : ""));
  }
  return {};
}

TrainerState read_trainer_state(const std::string& checkpoint) {
  const std::string path = file_in(checkpoint, kTrainerStateFile);
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
    const auto stored = files.tensor(name, part.tensor.by_element ? file_shape(*part.spec, source) : part.tensor.shape)
                            .view(tensor.sizes);
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
