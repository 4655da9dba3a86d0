#include "core/model/work_notes.h"

#include "core/error.h"

namespace shardline {
namespace {

thread_local WorkNotes* notes = nullptr;

}  // namespace

WorkNotes::WorkNotes(const WorkShape& shape_) : shape(shape_) {
  SL_ASSERT(!notes, "this thread already records work");
  notes = this;
}

WorkNotes::~WorkNotes() {
  notes = nullptr;
}

WorkNotes* work_notes() {
  return notes;
}

void note_product(int64_t m, int64_t n, int64_t k) {
  if (notes) notes->work.products.push_back({notes->phase, m, n, k});
}

void note_sweep(int64_t elements, double values, double bytes, int kernels, bool core) {
  if (!notes) return;
  notes->work.sweeps.push_back({notes->phase, elements * (values * notes->shape.value_bytes + bytes), kernels, core});
}

void note_collective(Collective::Kind kind, double bytes) {
  if (notes) notes->work.collectives.push_back({kind, notes->phase, bytes});
}

}  // namespace shardline
