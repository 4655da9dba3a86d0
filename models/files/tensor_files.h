// The files of a directory that together hold tensors: one file, or the files named by an index.
#pragma once
#include <map>
#include <string>

#include "models/files/tensor_file.h"

namespace shardline {

using TensorFiles = std::map<std::string, TensorFile>;  // by file name

// STEM.safetensors if it exists, otherwise the files listed in STEM.safetensors.index.json; none if that does not exist
// either. Throws DataError unless index and files agree.
TensorFiles open_safetensors(const std::string& directory, const std::string& stem);

// A model's weights: its safetensors files if there are any, otherwise pytorch_model.bin or the files of its index; may
// be empty. Throws DataError as above.
TensorFiles open_weights(const std::string& directory);
// Whether there are any such files, readable or not.
bool has_weights(const std::string& directory);

}  // namespace shardline
