// The tensors of a checkpoint, in the coordinates of the model's Hugging Face files, and which of their elements this
// rank holds. Neither the files nor the names depend on the layout of the ranks.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "engine/config/keys/options.h"
#include "models/files/file_boxes.h"
#include "models/files/file_layout.h"
#include "optim/update/optimizer.h"

namespace shardline {

inline constexpr const char *kModelStem = "model", *kOptimizerStem = "optimizer";  // stems of the files' names

struct CheckpointTensor {
  size_t file;    // in CheckpointContents::files
  int64_t begin;  // bytes, in the file
  at::ScalarType dtype;
  // Where its elements are in a logical parameter. Null: they are in none, and every holder has the whole tensor.
  const ParamSpec* spec = nullptr;
  const ParamSource* source = nullptr;
  std::vector<int64_t> sizes;  // the shape in which its boxes are given: the source's view, or its own

  int64_t elements() const;
};

class CheckpointContents {
 public:
  // values: the type of the trained values. optimizer: unset for the model alone. The spec must outlive the object.
  CheckpointContents(const ModelSpec& spec, at::ScalarType values, const std::optional<OptimizerOptions>& optimizer);
  CheckpointContents(const CheckpointContents&) = delete;
  CheckpointContents& operator=(const CheckpointContents&) = delete;

  const std::vector<const FileLayout::File*>& files() const { return files_; }  // the model's first
  std::vector<std::pair<std::string, std::string>> indexes() const;             // names and texts of index files
  int64_t total_bytes() const;                                                  // in all files
  bool has_states() const { return layouts_.size() > 1; }                       // includes the optimizer's states
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }     // in the order of their bytes
  size_t number(const std::string& tensor) const { return numbers_.at(tensor); }

 private:
  void add(const FileLayout& layout, const std::map<std::string, CheckpointTensor>& known);

  std::vector<FileLayout> layouts_;
  std::vector<const FileLayout::File*> files_;
  std::vector<CheckpointTensor> tensors_;
  std::map<std::string, size_t> numbers_;
};

// "h.0.attn.c_attn.weight" and "exp_avg" -> the name of that state in the optimizer's files.
std::string state_name(const std::string& tensor, const std::string& state);

// The size in bytes of all tensors in one checkpoint of the run; 0 if the run saves no checkpoints.
int64_t checkpoint_bytes(const Config& config, const ModelSpec& spec);

// Elements of a tensor that this rank holds.
struct HeldPart {
  size_t tensor;      // its number in CheckpointContents::tensors
  SlicePart slice;    // the part of the logical parameter; without one, the whole tensor
  at::Tensor values;  // [slice.length] or all elements: the memory of parameters and optimizer
};

// optimizer: null if the contents include only the model.
std::vector<HeldPart> held_parts(const CheckpointContents& contents, StageParameters& parameters, Optimizer* optimizer);

// The boxes of a part in its tensor.
std::vector<FileBox> boxes_of(const CheckpointTensor& tensor, const SlicePart& slice, const at::Tensor& values);

}  // namespace shardline
