// Records the work that ops do in a dry run (models/graph/dry_run.h). An op notes its work where it does it, so
// skipped work, such as the gradient of a frozen weight, is not recorded. Outside a dry run, the functions do
// nothing.
#pragma once
#include "core/model/layer_work.h"

namespace shardline {

// Collects this thread's notes during its lifetime; only one may exist per thread.
class WorkNotes {
 public:
  explicit WorkNotes(const WorkShape& shape);
  ~WorkNotes();
  WorkNotes(const WorkNotes&) = delete;
  WorkNotes& operator=(const WorkNotes&) = delete;

  const WorkShape shape;
  Phase phase = Phase::forward;  // the phase to which noted work belongs
  LayerWork work;
};

// Null outside a dry run.
WorkNotes* work_notes();

// One product [m, k] x [k, n] whose factors and result are in memory.
void note_product(int64_t m, int64_t n, int64_t k);
// `kernels` kernels that read and write `values` activations and `bytes` bytes of other types per element. core: see
// Sweep.
void note_sweep(int64_t elements, double values, double bytes = 0, int kernels = 1, bool core = false);
// bytes: see Collective.
void note_collective(Collective::Kind kind, double bytes);

}  // namespace shardline
