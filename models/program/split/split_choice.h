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
  double share = 0;                           // of the FLOPs of products with weights, which are divided
};

// Divides the atoms in whose products most FLOPs are, each if every rank gets a part of it and no tensor has a divided
// atom already. A unit is the parameters of a layer that have an atom; its name is the path that their modules have in
// common, or else the first one's. Units that `choices` keeps whole are not divided. A product that stays whole for
// other reasons is a unit, too, with a count of 0. spec: of the program, without splits. Throws a ConfigError if
// `choices` asks for such a unit to be split.
AtomChoice choose_atoms(const Program& program, const ModelSpec& spec, const ProgramDimensions& found, int ranks,
                        const SplitChoices& choices);

// The products with weights that these atoms do not divide, but whose columns the ranks can divide and gather, if this
// saves enough: their nodes.
std::set<int> gathered_products(const ProgramDimensions& found, const std::set<int>& divided, int ranks);

}  // namespace shardline
