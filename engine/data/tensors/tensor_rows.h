// Files of tensors as rows of data: each tensor is a column, and its first dimension the rows.
#pragma once
#include <memory>

#include "engine/data/source/row_file.h"

namespace shardline {

// A row of a .safetensors file has the values that JSON Lines would have: numbers and, for tensors with two dimensions,
// lists of numbers. Tensors with more dimensions are not among its columns, and are read where they are used. Throws
// DataError unless all tensors have the same number of rows.
std::unique_ptr<RowFile> open_tensor_rows(const DataFile& file);

}  // namespace shardline
