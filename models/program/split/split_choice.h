// Which atoms of a program the T ranks divide.
#pragma once
#include <set>
#include <vector>

#include "core/model/model_spec.h"
#include "models/program/split/dimensions.h"

namespace shardline {

struct AtomChoice {
  std::set<int> atoms;                        // no tensor has two of them
  std::vector<std::vector<SplitUnit>> units;  // by layer: what is divided, and what stays whole and why
  double share = 0;                           // fraction of the FLOPs of products with weights that is divided
};

// Divides what the program's marks name (Pt2Archive::marks) and then the atoms whose products have most FLOPs, each if
// every rank gets a part of it and no tensor has another divided atom. A unit is the parameters of a layer that have an
// atom; its name is the path that their modules have in common, otherwise the first one's. Units that `choices` keeps
// whole are not divided. A product that stays whole for other reasons is also a unit, with a count of 0. spec: of the
// program, without splits. Throws a ConfigError if `choices` requires such a unit to be split, or if a mark's parts
// cannot be.
AtomChoice choose_atoms(const Program& program, const ModelSpec& spec, const ProgramDimensions& found, int ranks,
                        const SplitChoices& choices);

// The nodes of products whose columns are divided and gathered because the program's marks say so.
std::set<int> marked_gathers(const Program& program, const ProgramDimensions& found);

// The nodes of products with weights that these atoms do not divide, but whose columns the ranks can divide and gather,
// if this saves enough.
std::set<int> gathered_products(const ProgramDimensions& found, const std::set<int>& divided, int ranks);

}  // namespace shardline
