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
  // Costs come from runs on sequences of this length (spec_of_program, which says what it throws).
  ProgramSpecs(const std::shared_ptr<const Program>& program, int64_t traced_length);

  // Every rank has everything.
  const ModelSpec& whole() const { return whole_; }
  // The same with the units that two ranks would split, for rules that name them.
  ModelSpec with_units(const SplitChoices& choices) const;
  // Nothing is divided, because of `why`, which its units have as their reason. Throws a ConfigError if `choices` wants
  // something else.
  ModelSpec undivided(const SplitChoices& choices, const std::string& why) const;
  // Divided over so many ranks; ProgramSplitter::split says what it throws. Made once for each division.
  ModelSpec split(int ranks, const SplitChoices& choices) const;

 private:
  std::shared_ptr<const Program> program_;
  int64_t traced_length_;
  ModelSpec whole_;
  std::shared_ptr<const ProgramSplitter> splitter_;
  std::shared_ptr<std::map<std::string, ModelSpec>> made_;  // by ranks and what they divide
};

}  // namespace shardline
