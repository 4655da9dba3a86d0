// What the state_dict() of a program's module has in addition to trained parameters: the persistent buffers. In files,
// they are next to the parameters (ModelSpec::buffers).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "models/files/hf_directory.h"
#include "models/program/program.h"

namespace shardline {

// By name in files, on the CPU. The tensors must not be changed.
using BufferValues = std::map<std::string, at::Tensor>;

// The persistent buffers. Those of a dtype that safetensors does not have are missing.
std::vector<BufferSpec> program_buffers(const Pt2Archive& archive);

// Their values after `steps` training steps.
BufferValues buffer_values(const Program& program, int64_t steps);

// Replaces the buffers of a program that is not cut yet by those that the files have. Throws a DataError as
// HfDirectory::buffer does.
void read_buffers(const HfDirectory& files, Pt2Archive& archive);

// Continues after `steps` training steps with the buffers that the files have. Throws a DataError if a buffer that the
// program does not change differs, because the layers were made for its values.
void continue_buffers(const HfDirectory& files, const Program& program, int64_t steps);

}  // namespace shardline
