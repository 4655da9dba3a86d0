#include "models/program/layers/program_buffers.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/memory/tensor_data.h"
#include "models/files/safetensors.h"

namespace shardline {
namespace {

std::vector<std::string> other_names(const Pt2Archive& archive, const std::string& name) {
  const auto found = archive.names.find(name);
  return found == archive.names.end() ? std::vector<std::string>() : found->second;
}

// The value of the graph in which the program changes a buffer; -1 if it does not.
int changed_value(const Program& program, const BufferSpec& buffer) {
  if (!program.buffers) return -1;
  for (const auto& input : program.graph().inputs) {
    const bool is_this =
        input.name == buffer.name || std::ranges::find(buffer.other_names, input.name) != buffer.other_names.end();
    if (input.kind == GraphInput::Kind::buffer && is_this && program.is_changed(input.value)) return input.value;
  }
  return -1;
}

// Whether the values are equal; NaN equals NaN here.
bool same_values(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor one = a.contiguous(), other = b.contiguous();
  return one.nbytes() == other.nbytes() && std::memcmp(data_of<char>(one), data_of<char>(other), one.nbytes()) == 0;
}

}  // namespace

std::vector<BufferSpec> program_buffers(const Pt2Archive& archive) {
  std::vector<BufferSpec> buffers;
  for (const auto& name : archive.buffers) {
    const at::Tensor& tensor = archive.constants.at(name);
    if (has_safetensors_dtype(tensor.scalar_type()))
      buffers.push_back({name, tensor.sizes().vec(), tensor.scalar_type(), other_names(archive, name)});
  }
  return buffers;
}

BufferValues buffer_values(const Program& program, int64_t steps) {
  const auto changed = program.buffers ? program.buffers->before(steps + 1) : BufferStates::Values();
  BufferValues values;
  for (const auto& buffer : program_buffers(program.archive)) {
    const int value = changed_value(program, buffer);
    values[buffer.name] = value < 0 ? program.archive.constants.at(buffer.name) : changed.at(value);
  }
  return values;
}

void read_buffers(const HfDirectory& files, Pt2Archive& archive) {
  for (const auto& buffer : program_buffers(archive)) {
    const at::Tensor stored = files.buffer(buffer);
    if (!stored.defined()) continue;
    archive.constants[buffer.name] = stored;
    for (const auto& other : buffer.other_names) archive.constants[other] = stored;
  }
}

void continue_buffers(const HfDirectory& files, const Program& program, int64_t steps) {
  auto changed = program.buffers ? program.buffers->before(steps + 1) : BufferStates::Values();
  bool differ = false;
  for (const auto& buffer : program_buffers(program.archive)) {
    const at::Tensor stored = files.buffer(buffer);
    const int value = changed_value(program, buffer);
    const at::Tensor& own = value < 0 ? program.archive.constants.at(buffer.name) : changed.at(value);
    if (!stored.defined() || same_values(stored, own)) continue;
    if (value < 0)
      throw DataError(cat(files.path(), ": the buffer ", buffer.name, " has different values from those in ",
                          program.archive.path, "; continue with the program with which it was saved"));
    changed[value] = stored.clone();  // the run may remove the files
    differ = true;
  }
  if (differ) program.buffers->restart(steps + 1, changed);
}

}  // namespace shardline
