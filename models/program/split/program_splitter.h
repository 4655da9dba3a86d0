// Splits a program over tensor-parallel ranks.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "models/program/program_split.h"
#include "models/program/split/dimensions.h"
#include "models/program/split/program_rows.h"

namespace shardline {

class ProgramSplitter {
 public:
  // spec: the program's spec, without splits.
  ProgramSplitter(std::shared_ptr<const Program> program, const ModelSpec& spec);

  // Splits for this number of ranks, restricted to units that `choices` allows to split. divides_rows: see
  // ProgramSplit. Throws a ConfigError if `choices` requires what cannot be split, or if the program does not run on
  // the few tokens that are used to determine its dimensions.
  std::shared_ptr<const ProgramSplit> split(int ranks, const SplitChoices& choices, bool divides_rows = false) const;

 private:
  struct Found {
    ProgramDimensions dimensions;
    ProgramRows rows;
    Found(const Program& program, const ObservedSizes& sizes, const std::set<int>& gathers)
        : dimensions(dimensions_of(program, sizes, gathers)), rows(program, dimensions) {}
  };
  // gathers: see ProgramDimensions::gathered.
  std::shared_ptr<const Found> found(const std::set<int>& gathers) const;

  const std::shared_ptr<const Program> program_;
  const ModelSpec spec_;
  mutable std::mutex mutex_;
  mutable std::optional<ObservedSizes> sizes_;                           // unset: not computed yet
  mutable std::map<std::set<int>, std::shared_ptr<const Found>> found_;  // by gathered nodes
};

}  // namespace shardline
