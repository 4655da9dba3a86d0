// Splits a program over tensor-parallel ranks.
#pragma once
#include <memory>
#include <mutex>
#include <optional>

#include "models/program/program_split.h"
#include "models/program/split/dimensions.h"

namespace shardline {

class ProgramSplitter {
 public:
  // spec: of the program, without splits.
  ProgramSplitter(std::shared_ptr<const Program> program, const ModelSpec& spec);

  // For so many ranks, with the units that `choices` leaves to split. Throws a ConfigError if `choices` wants what
  // cannot be split, and if the program does not run on the few tokens on which its dimensions are found.
  std::shared_ptr<const ProgramSplit> split(int ranks, const SplitChoices& choices) const;

 private:
  std::shared_ptr<const ProgramDimensions> dimensions() const;

  const std::shared_ptr<const Program> program_;
  const ModelSpec spec_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const ProgramDimensions> dimensions_;  // null: not asked for
};

}  // namespace shardline
