// Where ops note the work they do while a layer runs without numbers (models/graph/dry_run.h): each beside the code
// that does it, when it does it, so that what does not run is not noted. Outside of a dry run notes do nothing.
#pragma once
#include "core/model/layer_work.h"

namespace shardline {

// A dry run's notes on this thread, for as long as this object lives.
class WorkNotes {
 public:
  explicit WorkNotes(const WorkShape& shape);
  ~WorkNotes();
  WorkNotes(const WorkNotes&) = delete;
  WorkNotes& operator=(const WorkNotes&) = delete;

  const WorkShape shape;
  Phase phase = Phase::forward;  // of what is noted
  LayerWork work;
};

// Null outside of a dry run.
WorkNotes* work_notes();

// One product [m, k] x [k, n] that reads and writes memory.
void note_product(int64_t m, int64_t n, int64_t k);
// Kernels that read and write so many activations, and bytes of masks and other types, for each element. core: see
// Sweep.
void note_sweep(int64_t elements, double values, double bytes = 0, int kernels = 1, bool core = false);
// bytes: of the whole tensor (Collective).
void note_collective(Collective::Kind kind, int64_t bytes);

}  // namespace shardline
