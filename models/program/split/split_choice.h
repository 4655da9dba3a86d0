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

// First divides the dimensions that the program's marks name (Pt2Archive::marks), then the atoms whose products have
// the most FLOPs. An atom is divided only if every rank gets a part of it and no tensor has another divided atom. A
// unit is the set of a layer's parameters that have an atom; its name is the longest module path that contains them
// all, or the first parameter's if there is none. Units that `choices` keeps whole are not divided. A product that
// stays whole for another reason is also a unit, with a count of 0. `spec` describes the program before any split.
// Throws a ConfigError if `choices` requires a unit to be split that cannot be, or if the dimension of a mark cannot be
// split.
AtomChoice choose_atoms(const Program& program, const ModelSpec& spec, const ProgramDimensions& found, int ranks,
                        const SplitChoices& choices);

// The products (as node indices) whose columns are divided and then gathered because a mark requires it.
std::set<int> marked_gathers(const Program& program, const ProgramDimensions& found);

// The products with weights (as node indices) that the atoms in `divided` leave whole, but whose columns are worth
// dividing over the ranks and gathering afterwards.
std::set<int> gathered_products(const ProgramDimensions& found, const std::set<int>& divided, int ranks);

}  // namespace shardline
