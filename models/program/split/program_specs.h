// A program as a model for any number of tensor-parallel ranks.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "models/program/layers/program_layers.h"
#include "models/program/split/program_splitter.h"

namespace shardline {

class ProgramSpecs {
 public:
  // Costs come from runs on sequences of this length (spec_of_program, which also documents errors).
  ProgramSpecs(const std::shared_ptr<const Program>& program, int64_t traced_length);

  // The model if every rank has everything.
  const ModelSpec& whole() const { return whole_; }
  // As above, with the units that two ranks would split, for rules that name them.
  ModelSpec with_units(const SplitChoices& choices) const;
  // Divided over `ranks` ranks as by ProgramSplitter::split. Computed once for each division.
  ModelSpec split(int ranks, const SplitChoices& choices, bool divides_rows) const;

 private:
  std::shared_ptr<const Program> program_;
  int64_t traced_length_;
  ModelSpec whole_;
  std::shared_ptr<const ProgramSplitter> splitter_;
  std::shared_ptr<std::map<std::string, ModelSpec>> made_;  // by number of ranks and what they divide
};

}  // namespace shardline
