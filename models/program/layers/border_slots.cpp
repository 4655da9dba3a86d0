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
  at::Tensor places;
  if (form.length < 0)
    places = tensor.reshape({grid.samples(), 1, form.features}).expand({-1, grid.length(), -1});
  else
    places = tensor.movedim(form.length, 1).reshape({grid.samples(), grid.length(), form.features});
  return grid.among_rows(places, others);
}

at::Tensor value_of_rows(int value, const at::Tensor& rows, const ProgramBatch& batch) {
  const HiddenForm form = form_of(batch.program, value);
  const RowGrid& grid = form.of_target ? batch.target : batch.source;
  const at::Tensor places = grid.spread(rows);
  std::vector<int64_t> sizes = {grid.samples()};
  const auto& of_value = batch.program.graph().values[value].sizes;
  if (form.length >= 0) sizes.push_back(grid.length());
  for (int i = 1; i < std::ssize(of_value); ++i)
    if (i != form.length) sizes.push_back(of_value[i].number);
  if (form.length < 0) return places.select(1, 0).reshape(sizes);
  return form.length == 1 ? places.view(sizes) : places.view(sizes).movedim(1, form.length).contiguous();
}

}  // namespace shardline
