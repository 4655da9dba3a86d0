// Copies that only some runs of a function make.
#pragma once
#include "models/program/trace/traced_run.h"

namespace shardline {

// Tensor::contiguous calls no operator if the tensor is already contiguous, as after a transpose with a batch of 1.
// Adds such calls to the run that lacks them, for two runs that otherwise make the same calls: what uses the copy in
// one run also uses it in the other. Runs that differ in anything else stay different. Returns whether it has added a
// call.
bool align_copies(TracedRun& a, TracedRun& b);

}  // namespace shardline
