#include "models/program/layers/border_slots.h"

#include <algorithm>

#include "core/error.h"

namespace shardline {
namespace {

HiddenForm form_of(const Program& program, int value) {
  const auto form = hidden_form(program, value);
  SL_ASSERT(form, "value ", value, " has passed the checks of borders");
  return *form;
}

}  // namespace

std::vector<BorderSlot> border_slots(const Program& program, const std::vector<int>& border) {
  std::vector<BorderSlot> slots;
  for (const int value : border) {
    const HiddenForm form = form_of(program, value);
    int BorderSlot::*place = form.of_target ? &BorderSlot::target : &BorderSlot::source;
    const auto free = std::ranges::find_if(
        slots, [&](const BorderSlot& slot) { return slot.features == form.features && slot.*place < 0; });
    BorderSlot& slot = free == slots.end() ? slots.emplace_back(BorderSlot{.features = form.features}) : *free;
    slot.*place = value;
  }
  return slots;
}

at::Tensor rows_of_value(int value, const at::Tensor& tensor, const ProgramBatch& batch, const at::Tensor& others) {
  const HiddenForm form = form_of(batch.program, value);
  const RowGrid& grid = form.of_target ? batch.target : batch.source;
  const at::Tensor ordered = samples_first(form, tensor);
  const at::Tensor places = ordered.reshape({grid.samples(), form.length < 0 ? 1 : grid.length(), form.features});
  return grid.among_rows(places.expand({-1, grid.length(), -1}), others);
}

at::Tensor value_of_rows(int value, const at::Tensor& rows, const ProgramBatch& batch) {
  const HiddenForm form = form_of(batch.program, value);
  const RowGrid& grid = form.of_target ? batch.target : batch.source;
  const at::Tensor places = grid.spread(rows);
  std::vector<int64_t> sizes = {form.length < 0 ? -1 : grid.samples()};  // a sample may have several parts
  const auto& of_value = batch.program.graph().values[value].sizes;
  if (form.length >= 0) sizes.push_back(grid.length());
  for (int i = 0; i < std::ssize(of_value); ++i)
    if (i != form.batch && i != form.length) sizes.push_back(of_value[i].number);
  const at::Tensor ordered = form.length < 0 ? places.select(1, 0).reshape(sizes) : places.view(sizes);
  return form.batch == 0 && form.length <= 1 ? ordered : in_own_order(form, ordered).contiguous();
}

}  // namespace shardline
