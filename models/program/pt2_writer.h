// Writes a trained program as an archive that torch.export.load can open.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "models/program/pt2_archive.h"

namespace shardline {

// Reserves disk space for write_pt2 in a file with this path. Throws a RunError if there is too little.
void reserve_pt2(const Pt2Archive& archive, const std::string& path);

// Writes a copy of the archive with new values of its parameters, by name in archive.weights, and of its buffers; those
// for which `value_of` returns an undefined tensor keep theirs. Everything else is copied from the file, which must
// still exist. When it returns, the copy is on disk. Throws a RunError if the disk fails; then `path` is not an
// archive.
void write_pt2(const Pt2Archive& archive, const std::function<at::Tensor(const std::string& name)>& value_of,
               const std::string& path);

}  // namespace shardline
