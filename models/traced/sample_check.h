// Whether a program computes each sample independently. Microbatches and replicas get any of the samples of a step, so
// the result for a sample must not depend on the other samples in its batch.
#pragma once
#include <memory>

#include "core/model/model_spec.h"
#include "models/program/program.h"

namespace shardline {

// Runs the layers on a few samples together and on each alone, in float64: samples of one length and, if the program
// has an argument attention_mask, of different lengths. whole: the program's spec for one rank. length: of samples with
// which the program can run. Throws a ConfigError that names the module and the call, or the layer, whose results
// differ.
//
// This is cheap for large models, too: of layers that make the same calls only the first is run, on random hidden
// states, with about a hundred tokens in all (two samples, if the program itself says how long they are), and its
// weights alone are in memory, in float64.
void check_samples(const std::shared_ptr<const Program>& program, const ModelSpec& whole, int64_t length);

}  // namespace shardline
