// Writes a trained program as an archive that torch.export.load opens.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "models/program/pt2_archive.h"

namespace shardline {

// Writes a copy of the archive with other values of its parameters, by name in archive.weights; those of which
// `value_of` returns an undefined tensor keep theirs. Everything else is as in the file, which must still exist. The
// file appears under `path` when it is complete. Throws a RunError when the disk fails.
void write_pt2(const Pt2Archive& archive, const std::function<at::Tensor(const std::string& name)>& value_of,
               const std::string& path);

}  // namespace shardline
