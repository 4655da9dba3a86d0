#include "models/program/split/split_choice.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "models/program/operators.h"

namespace shardline {
namespace {

constexpr double kLeastSaved = 16;  // multiplications for each number that ranks exchange
constexpr const char* kGatheredColumns = "gathered columns";

std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

// The longest path that contains all modules; the first module's path if there is none.
std::string common_path(const std::vector<std::string>& modules) {
  std::string path = modules.front();
  const auto is_within = [&](const std::string& module) { return module == path || module.starts_with(path + "."); };
  while (!std::ranges::all_of(modules, is_within)) {
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) return modules.front();
    path.resize(dot);
  }
  return path;
}

class Chooser {
 public:
  Chooser(const Program& program, const ModelSpec& spec, const ProgramDimensions& found, int ranks,
          const SplitChoices& choices)
      : program_(program), spec_(spec), found_(found), ranks_(ranks), choices_(choices) {
    for (const auto& input : program.graph().inputs)
      if (const auto known = found.of_value.find(input.value);
          known != found.of_value.end() && input.kind == GraphInput::Kind::parameter)
        parameters_[input.name] = &known->second;
  }

  AtomChoice choose() {
    find_neighbours();
    find_parts();
    find_flops();
    add_marked_atoms();
    add_greatest_atoms();
    choice_.units.resize(program_.layers.size());
    for (size_t layer = 0; layer < program_.layers.size(); ++layer) add_divided_units(layer);
    for (const int atom : whole_by_choice_) choice_.atoms.erase(atom);
    for (size_t layer = 0; layer < program_.layers.size(); ++layer) add_whole_units(layer);
    double all = 0, divided = 0;
    for (const auto& product : found_.products) {
      all += product.flops;
      divided += product.flops * divided_share(product, choice_.atoms);
    }
    choice_.share = all > 0 ? divided / all : 0;
    return std::move(choice_);
  }

 private:
  std::vector<int> atoms_of(const Dimensions& dimensions) const {
    std::vector<int> atoms;
    for (const auto& dimension : dimensions) {
      const Dimension leaves = found_.atoms.leaves(dimension);
      atoms.insert(atoms.end(), leaves.begin(), leaves.end());
    }
    return atoms;
  }

  bool is_divided(const WeightProduct& product, const std::set<int>& atoms) const {
    return std::ranges::any_of(atoms_of({product.rows, product.summed, product.columns}),
                               [&](int atom) { return atoms.contains(atom); });
  }

  // The fraction of a product that the ranks divide; sections of its columns may stay whole.
  double divided_share(const WeightProduct& product, const std::set<int>& atoms) const {
    const auto share = [&](const Dimension& dimension) {
      double most = 0;
      for (const int atom : found_.atoms.resolved(dimension)) {
        if (atoms.contains(atom)) most = 1;
        for (const auto& section : found_.atoms.sections(atom))
          if (std::ranges::any_of(found_.atoms.leaves(section), [&](int leaf) { return atoms.contains(leaf); }))
            most += 1.0 * found_.atoms.size_of(section) / found_.atoms.size(atom);
      }
      return most;
    };
    return std::max({share(product.rows), share(product.summed), share(product.columns)});
  }

  // Two atoms that are adjacent in a tensor are neighbours; sections of the same atom are not.
  void add_neighbours(const Dimension& atoms) {
    for (size_t i = 0; i < atoms.size(); ++i) {
      for (const auto& section : found_.atoms.sections(atoms[i])) add_neighbours(section);
      for (size_t j = 0; j < atoms.size(); ++j)
        if (i != j)
          for (const int leaf : found_.atoms.leaves({atoms[i]})) {
            const Dimension others = found_.atoms.leaves({atoms[j]});
            neighbours_[leaf].insert(others.begin(), others.end());
          }
    }
  }

  void find_neighbours() {
    const auto add = [&](const Dimensions& dimensions) {
      Dimension all;
      for (const auto& dimension : dimensions) {
        const Dimension atoms = found_.atoms.resolved(dimension);
        all.insert(all.end(), atoms.begin(), atoms.end());
      }
      add_neighbours(all);
    };
    for (const auto& [value, dimensions] : found_.of_value) add(dimensions);
    for (const auto& [node, dimensions] : found_.gathered) add(dimensions);
    for (const auto& [node, dimensions] : found_.sliced) add(dimensions);
    for (const auto& [reading, dimensions] : found_.of_reading) add(dimensions);
  }

  void find_flops() {
    for (const auto& [node, summed] : found_.summed)  // embedding tables have no products
      for (const int atom : found_.atoms.leaves(summed)) flops_[atom] += 1;
    for (const auto& product : found_.products)
      for (const int atom : atoms_of({product.rows, product.summed, product.columns})) flops_[atom] += product.flops;
  }

  double flops_of(int atom) const {
    const auto known = flops_.find(atom);
    return known == flops_.end() ? 0 : known->second;
  }

  bool may_divide(int atom) const { return found_.atoms.why_not(atom).empty() && found_.atoms.size(atom) >= ranks_; }

  // Whether no tensor has both this atom and one that is already divided.
  bool is_free(int atom) const {
    const auto near = neighbours_.find(atom);
    return near == neighbours_.end() ||
           std::ranges::none_of(near->second, [&](int other) { return choice_.atoms.contains(other); });
  }

  void add_greatest_atoms() {
    std::vector<int> candidates;
    for (const auto& [atom, of_atom] : flops_)
      if (may_divide(atom)) candidates.push_back(atom);
    std::ranges::stable_sort(candidates, [&](int a, int b) { return flops_.at(a) > flops_.at(b); });
    for (const int atom : candidates)
      if (is_free(atom)) choice_.atoms.insert(atom);
  }

  // For each mark, divides one atom of the dimension that it names: one that is already divided, otherwise the one with
  // the most FLOPs.
  void add_marked_atoms() {
    for (const auto& mark : program_.archive.marks) {
      if (!mark.parameter.empty() && !parameters_.contains(mark.parameter)) continue;  // its module is not used
      const Dimension parts =
          mark.parameter.empty() ? found_.classes : (*parameters_.at(mark.parameter))[mark.dimension];
      const Dimension leaves = found_.atoms.leaves(parts);
      int best = -1;
      for (const int atom : leaves)
        if (may_divide(atom) && (choice_.atoms.contains(atom) || is_free(atom)) &&
            (best < 0 || choice_.atoms.contains(atom) ||
             (!choice_.atoms.contains(best) && flops_of(atom) > flops_of(best))))
          best = atom;
      if (best < 0) refuse(mark, leaves);
      choice_.atoms.insert(best);
      marked_.emplace(best, mark.kind);
    }
  }

  [[noreturn]] void refuse(const SplitMark& mark, const Dimension& parts) const {
    const bool is_loss = mark.parameter.empty();
    throw ConfigError(
        cat(program_.archive.place(), ": ", mark.module, " is a shardline::nn::", mark.kind, ", but its ", mark.parts,
            " cannot be split over ", ranks_, " ranks (",
            is_loss && parts.empty() ? cat("the loss, ", program_.loss.text,
                                           ", is not a single cross entropy over the outputs of one product or table")
                                     : why_whole(parts),
            "); use torch::nn's module in its place", mark.kind == "ColumnLinear" ? ", let it gather its output" : "",
            ", or change what it is combined with"));
  }

  // The parameters of a layer, under their names in the spec.
  std::map<int, std::vector<std::string>> parameters_by_atom(size_t layer) const {
    std::map<int, std::vector<std::string>> names;
    for (size_t i = 0; i < program_.layers[layer].parameters.size(); ++i)
      if (const auto known = parameters_.find(program_.layers[layer].parameters[i]); known != parameters_.end())
        for (const int atom : atoms_of(*known->second)) names[atom].push_back(spec_.layers[layer].params[i].name);
    return names;
  }

  void find_parts() {
    const auto name = [&](const Dimensions& dimensions, const char* parts) {
      for (const int atom : atoms_of(dimensions)) parts_.emplace(atom, parts);
    };
    name({found_.classes}, kVocabularyWords);
    for (const auto& product : found_.products)
      if (found_.gathered.contains(product.node)) name({product.columns}, kGatheredColumns);
    for (const auto& [node, summed] : found_.summed)
      if (program_.graph().nodes[node].name == "aten::embedding") name({summed}, kVocabularyWords);
    for (const auto& node : program_.graph().nodes) {
      if (node.name != kAttention && node.name != "aten::softmax") continue;
      const auto made = found_.of_value.find(node.results[0].value);
      if (made != found_.of_value.end() && !made->second.empty())
        name({made->second.begin(), made->second.end() - 1}, kAttentionHeads);
    }
  }

  void add_divided_units(size_t layer) {
    const LayerSpec& spec = spec_.layers[layer];
    for (const auto& [atom, names] : parameters_by_atom(layer)) {
      if (!choice_.atoms.contains(atom)) continue;
      std::vector<std::string> modules;
      for (const auto& name : names) modules.push_back(module_of(name));
      SplitUnit unit{.name = common_path(modules),
                     .parts = parts_.contains(atom) ? parts_.at(atom) : "columns",
                     .count = found_.atoms.size(atom),
                     .why = ""};
      if (const auto asked = choices_.find(spec.full_name(unit)); asked != choices_.end()) {
        unit.split = asked->second.split;
        unit.why = asked->second.why;
      }
      if (!unit.split) whole_by_choice_.insert(atom);
      if (const auto marked = marked_.find(atom); unit.split && marked != marked_.end()) {
        const std::string says = "its module is a shardline::nn::" + marked->second;
        // Choices read from a spec already contain this path.
        if (!unit.why.ends_with(says)) unit.why += (unit.why.empty() ? "" : "; ") + says;
      }
      auto& units = choice_.units[layer];
      const auto same = std::ranges::find(units, unit.name, &SplitUnit::name);
      if (same == units.end())
        units.push_back(unit);
      else
        same->count = std::min(same->count, unit.count);
    }
  }

  std::string why_whole(const Dimension& dimension) const {
    for (const int atom : found_.atoms.leaves(dimension)) {
      if (const auto& why = found_.atoms.why_not(atom); !why.empty()) return why;
      if (found_.atoms.size(atom) < ranks_)
        return cat("there are ", found_.atoms.size(atom), " for ", ranks_, " ranks");
    }
    return "other dimensions of its tensors are split";
  }

  std::string why_whole(const WeightProduct& product) const {
    if (product.columns.empty()) return why_whole(product.summed);
    return cat("columns: ", why_whole(product.columns), "; inputs: ", why_whole(product.summed));
  }

  void add_whole_units(size_t layer) {
    const LayerSpec& spec = spec_.layers[layer];
    const auto& nodes = program_.layers[layer].part.nodes;
    auto& units = choice_.units[layer];
    for (const auto& product : found_.products) {
      if (!std::ranges::binary_search(nodes, product.node) || is_divided(product, choice_.atoms) ||
          is_divided(product, whole_by_choice_))
        continue;
      const auto& names = program_.layers[layer].parameters;
      const size_t place = std::ranges::find(names, product.parameter) - names.begin();
      if (place == names.size()) continue;
      SplitUnit unit{.name = module_of(spec.params[place].name),
                     .parts = "columns",
                     .count = 0,
                     .split = false,
                     .why = why_whole(product)};
      if (std::ranges::find(units, unit.name, &SplitUnit::name) != units.end()) continue;
      if (const auto asked = choices_.find(spec.full_name(unit)); asked != choices_.end() && asked->second.split)
        throw ConfigError(cat("/smp_options/tensor_parallel_layers: ", spec.full_name(unit), " cannot be split over ",
                              ranks_, " ranks (", unit.why, "); leave it out of the list"));
      units.push_back(std::move(unit));
    }
  }

  const Program& program_;
  const ModelSpec& spec_;
  const ProgramDimensions& found_;
  const int ranks_;
  const SplitChoices& choices_;
  std::map<std::string, const Dimensions*> parameters_;
  std::map<int, std::set<int>> neighbours_;  // for each atom: the other atoms of the tensors that have it
  std::map<int, std::string> parts_;         // SplitUnit::parts, if there is a name
  std::map<int, double> flops_;              // by atom
  std::map<int, std::string> marked_;        // for each atom divided because of a mark: the mark's kind
  std::set<int> whole_by_choice_;
  AtomChoice choice_;
};

}  // namespace

std::set<int> marked_gathers(const Program& program, const ProgramDimensions& found) {
  std::set<int> nodes;
  for (const auto& mark : program.archive.marks)
    for (const auto& product : found.products)
      if (mark.gathers && product.parameter == mark.parameter) nodes.insert(product.node);
  return nodes;
}

std::set<int> gathered_products(const ProgramDimensions& found, const std::set<int>& divided, int ranks) {
  std::set<int> nodes;
  const auto is_divided = [&](const Dimension& dimension) {
    return std::ranges::any_of(found.atoms.leaves(dimension), [&](int atom) { return divided.contains(atom); });
  };
  for (const auto& product : found.products) {
    const double columns = found.atoms.size_of(found.atoms.resolved(product.columns)),
                 summed = found.atoms.size_of(found.atoms.resolved(product.summed));
    if (columns < ranks || is_divided(product.rows) || is_divided(product.summed) || is_divided(product.columns))
      continue;
    // For each row: multiplications in three products that each rank saves, and numbers that ranks exchange.
    const double saved = 3 * columns * summed * (1 - 1.0 / ranks);
    const double moved = columns + (product.has_input_gradient ? summed : 0);
    if (saved >= kLeastSaved * moved) nodes.insert(product.node);
  }
  return nodes;
}

AtomChoice choose_atoms(const Program& program, const ModelSpec& spec, const ProgramDimensions& found, int ranks,
                        const SplitChoices& choices) {
  return Chooser(program, spec, found, ranks, choices).choose();
}

}  // namespace shardline
