#include "models/program/split/program_splitter.h"

#include "core/error.h"
#include "models/program/split/divided_graph.h"
#include "models/program/split/split_choice.h"

namespace shardline {

ProgramSplitter::ProgramSplitter(std::shared_ptr<const Program> program, const ModelSpec& spec)
    : program_(std::move(program)), spec_(spec) {}

std::shared_ptr<const ProgramSplitter::Found> ProgramSplitter::found(const std::set<int>& gathers) const {
  const std::scoped_lock lock(mutex_);
  try {
    if (!sizes_) sizes_ = observed_sizes(*program_, samples_for_dimensions(*program_));
  } catch (const RunError& error) {
    throw ConfigError(cat("/smp_options/tensor_parallel_degree: the program ", program_->archive.path,
                          " fails on the few tokens on which its dimensions are analysed (", error.what(),
                          "); set the degree to 1, or ", program_->archive.verb(), " the program with other sizes"));
  }
  auto& known = found_[gathers];
  if (!known) known = std::make_shared<const Found>(*program_, *sizes_, gathers);
  return known;
}

std::shared_ptr<const ProgramSplit> ProgramSplitter::split(int ranks, const SplitChoices& choices,
                                                           bool divides_rows) const {
  const std::set<int> marked = marked_gathers(*program_, found({})->dimensions);
  const auto plain = found(marked);
  const AtomChoice without = choose_atoms(*program_, spec_, plain->dimensions, ranks, {});
  std::set<int> gathers = gathered_products(plain->dimensions, without.atoms, ranks);
  gathers.insert(marked.begin(), marked.end());
  const auto known = found(gathers);
  const ProgramDimensions& dimensions = known->dimensions;
  const AtomChoice chosen = choose_atoms(*program_, spec_, dimensions, ranks, choices);
  const auto split = std::make_shared<ProgramSplit>(ProgramSplit{.ranks = ranks,
                                                                 .parameters = {},
                                                                 .units = chosen.units,
                                                                 .share = chosen.share,
                                                                 .divides_rows = divides_rows,
                                                                 .divide = nullptr});
  for (const auto& input : program_->graph().inputs) {
    if (input.kind != GraphInput::Kind::parameter || !dimensions.of_value.contains(input.value)) continue;
    if (const auto of = divided_dimension(dimensions.atoms, dimensions.of_value.at(input.value), chosen.atoms))
      split->parameters[input.name] = *of;
  }
  split->divide = [known, atoms = chosen.atoms, ranks](const Graph& graph, const GraphPart& part, int rank,
                                                       bool by_rows) {
    const Division division{known->dimensions, atoms, by_rows ? &known->rows : nullptr, ranks, rank};
    return divide_part(graph, part, division);
  };
  return split;
}

}  // namespace shardline
