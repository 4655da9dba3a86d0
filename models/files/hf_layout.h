// The positions of the elements of a rank's part of a parameter in a tensor of a Hugging Face file. Reading and writing
// use the same functions, so that they agree.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

// The tensor's sizes in the file.
std::vector<int64_t> file_shape(const ParamSpec& param, const ParamSource& source);
// The sizes with which the tensor is viewed: one dimension for each dimension of the logical parameter.
std::vector<int64_t> file_view(const ParamSpec& param, const ParamSource& source);
// [d]: the dimension of the view that corresponds to dimension d of the parameter.
std::vector<int64_t> permutation(const ParamSpec& param, const ParamSource& source);

// The elements that a rank's part of a parameter shares with one source.
struct SharedPart {
  at::Tensor local;  // the rank's elements, with dimensions in the order of the file's view
  int64_t dim = 0;   // they are the units `range` of this dimension of the view, and all of the other dimensions
  Range range;       // has length 0 if nothing is shared
};

// `local` is the part [param.local_shape(t, t_degree)] of rank t; the result is a view of it.
SharedPart shared_part(const ParamSpec& param, const ParamSource& source, int t, int t_degree, const at::Tensor& local);

// File names in a model directory, the path of a file in it, and whether that file exists.
std::string file_in(const std::string& directory, const std::string& file);
bool has_file(const std::string& directory, const std::string& file);
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kSingleFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";
inline constexpr const char* kTorchFile = "pytorch_model.bin";
inline constexpr const char* kTorchIndexFile = "pytorch_model.bin.index.json";

}  // namespace shardline
