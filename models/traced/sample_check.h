// Whether a program computes each sample independently. Microbatches and replicas get any of the samples of a step, so
// the result for a sample must not depend on the other samples in its batch.
#pragma once
#include <memory>

#include "core/model/model_spec.h"
#include "models/program/program.h"

namespace shardline {

// Runs the layers on a few samples together and on each alone, in float64: samples of one length and, if the program
// has an argument attention_mask, samples of different lengths. whole: the program's spec for one rank. length: a
// length of samples that the program can process. Throws a ConfigError that names the module and the call, or the
// layer, whose results differ.
//
// This is cheap for large models, too. Of layers that make the same calls, only the first is run, on random hidden
// states of about a hundred tokens in all (or of two samples, if the program fixes their length), and only its weights
// are in memory, in float64.
void check_samples(const std::shared_ptr<const Program>& program, const ModelSpec& whole, int64_t length);

}  // namespace shardline
