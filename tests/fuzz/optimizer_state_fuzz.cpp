// The optimizer's files of a checkpoint: one file, or an index and two shards; the input contains their headers. A
// state is returned in the requested shape, or refused.
#include <memory>

#include "engine/checkpoint/state_files.h"
#include "tests/fuzz/safetensors_input.h"

namespace shardline::optimizer_state_fuzz {

FUZZ_TARGET(optimizer_state) {
  auto files = fuzz::files_of(data, size,
                              {"optimizer.safetensors", "optimizer.safetensors.index.json",
                               "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"});
  for (auto& [name, text] : files)
    if (name.ends_with(".safetensors")) text = fuzz::safetensors_of(text);
  fuzz::fill_folder(files);
  Manifest manifest;
  for (const auto& [name, text] : files) manifest.files[name] = {};
  const bool has_tensors = files.size() > files.count("optimizer.safetensors.index.json");
  FUZZ_REQUIRE(has_states(manifest) == has_tensors, "whether there are states of ", files.size(), " files");
  const std::string path = fuzz::folder().string();
  std::unique_ptr<const StateFiles> states;
  if (!fuzz::accepts(size, [&] { states = std::make_unique<StateFiles>(path); })) return false;
  bool accepted = true;
  for (const char* name : {"wte.weight.exp_avg", "wte.weight.exp_avg_sq", "h.0.w.exp_avg_sq_row"}) {
    const std::vector<int64_t> shape =
        std::string_view(name).ends_with("_row") ? std::vector<int64_t>{4} : std::vector<int64_t>{4, 3};
    at::Tensor tensor;
    if (!fuzz::accepts(size, [&] { tensor = states->tensor(name, shape); })) {
      accepted = false;
      continue;
    }
    FUZZ_REQUIRE(tensor.sizes() == at::IntArrayRef(shape) && tensor.is_floating_point(), name, tensor.sizes());
    FUZZ_REQUIRE(tensor.toType(at::kDouble).sum().numel() == 1, name, " cannot be read");
  }
  return accepted;
}

}  // namespace shardline::optimizer_state_fuzz
