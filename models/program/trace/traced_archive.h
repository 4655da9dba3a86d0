// Converts a module of a C++ program to a program that can be cut into layers and trained like an exported one.
#pragma once
#include <cstdint>
#include <string>

#include "models/program/program.h"
#include "models/program/pt2_archive.h"
#include "models/program/trace/traced_model.h"

namespace shardline {

// The kind of labels in the data, from which example arguments are made.
struct TracedLabels {
  ProgramUse::Predicts predicts = ProgramUse::Predicts::next_row;
  int64_t count = 0;         // classes, or numbers per sample; for language models, words
  bool are_numbers = false;  // the labels of a sample are numbers
};

// Parameters and buffers have the names that the module gives them; weights have its initial values under this seed. It
// is run on a few short batches, and on one sample of `longest` tokens. Throws a ConfigError that begins with the
// model's name if the module cannot be traced (see trace_graph).
Pt2Archive traced_archive(const TracedModel& model, const TracedLabels& labels, uint64_t seed, int64_t longest);

}  // namespace shardline
