// Hidden states that pass from one layer of a program to the next.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/program/program.h"
#include "models/program/program_inputs.h"

namespace shardline {

// A tensor of a border that holds the rows of values of the source and of the target.
struct BorderSlot {
  int64_t features = 0;
  int source = -1, target = -1;  // values

  bool holds(int value) const { return source == value || target == value; }
};

std::vector<BorderSlot> border_slots(const Program& program, const std::vector<int>& border);

// A value as rows of a border [rows of the microbatch, features]. others: the rows of the slot's other value;
// undefined: zeros.
at::Tensor rows_of_value(int value, const at::Tensor& tensor, const ProgramBatch& batch, const at::Tensor& others);
// The inverse.
at::Tensor value_of_rows(int value, const at::Tensor& rows, const ProgramBatch& batch);

}  // namespace shardline
