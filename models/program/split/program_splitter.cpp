#include "models/program/split/program_splitter.h"

#include "core/error.h"
#include "models/program/split/divided_graph.h"
#include "models/program/split/split_choice.h"

namespace shardline {

ProgramSplitter::ProgramSplitter(std::shared_ptr<const Program> program, const ModelSpec& spec)
    : program_(std::move(program)), spec_(spec) {}

std::shared_ptr<const ProgramDimensions> ProgramSplitter::dimensions() const {
  const std::scoped_lock lock(mutex_);
  if (dimensions_) return dimensions_;
  try {
    dimensions_ = std::make_shared<ProgramDimensions>(dimensions_of(*program_));
  } catch (const RunError& error) {
    throw ConfigError(cat("/smp_options/tensor_parallel_degree: the program ", program_->archive.path,
                          " does not run on a few tokens, by which its dimensions are found (", error.what(),
                          "); set it to 1, or ", program_->archive.verb(), " it with other sizes"));
  }
  return dimensions_;
}

std::shared_ptr<const ProgramSplit> ProgramSplitter::split(int ranks, const SplitChoices& choices) const {
  const auto found = dimensions();
  const AtomChoice chosen = choose_atoms(*program_, spec_, *found, ranks, choices);
  const auto split = std::make_shared<ProgramSplit>(
      ProgramSplit{.ranks = ranks, .parameters = {}, .units = chosen.units, .share = chosen.share, .divide = nullptr});
  for (const auto& input : program_->graph().inputs) {
    if (input.kind != GraphInput::Kind::parameter || !found->of_value.contains(input.value)) continue;
    if (const auto of = divided_dimension(found->atoms, found->of_value.at(input.value), chosen.atoms))
      split->parameters[input.name] = *of;
  }
  split->divide = [found, atoms = chosen.atoms, ranks](const Graph& graph, const GraphPart& part, int rank) {
    return divide_part(graph, *found, atoms, part, ranks, rank);
  };
  return split;
}

}  // namespace shardline
