#include "models/program/split/dimensions.h"

#include <algorithm>
#include <functional>
#include <set>

#include "core/error.h"
#include "models/program/layers/program_positions.h"
#include "models/program/operators.h"
#include "models/program/split/dimension_rules.h"
#include "models/program/split/observed_sizes.h"

namespace shardline {
namespace {

constexpr SampleSizes kMostTokens = {.samples = 5, .source = 7, .target = 6};

// Values that pass to another layer must be whole.
void forbid_borders(const Program& program, ProgramDimensions& found) {
  for (const auto& layer : program.layers)
    for (const int value : layer.border)
      if (const auto known = found.of_value.find(value); known != found.of_value.end())
        for (const auto& dimension : known->second)
          found.atoms.forbid(dimension, cat("they pass to ", layer.name, " as a whole"));
}

// The cross-entropy term that can be computed from parts of its classes; null: none can.
const ProgramLossTerm* divisible_term(const Program& program) {
  const auto predicts = program.use.predicts;
  const bool has_rows = predicts != ProgramUse::Predicts::segment && predicts != ProgramUse::Predicts::span;
  const auto& terms = program.loss.terms;
  const bool is_one = terms.size() == 1 && terms[0].kind == ProgramLossTerm::Kind::cross_entropy;
  return has_rows && is_one ? &terms[0] : nullptr;
}

// The loss can be computed from parts of the classes of rows, but from nothing else that is divided.
void forbid_ends(const Program& program, ProgramDimensions& found) {
  const auto ends = [&](int value, bool may_split_last) {
    const auto known = found.of_value.find(value);
    if (known == found.of_value.end()) return;
    for (size_t i = 0; i < known->second.size(); ++i)
      if (!may_split_last || i + 1 < known->second.size())
        found.atoms.forbid(known->second[i],
                           cat("the program returns them, and its loss, ", program.loss.text, ", needs all"));
  };
  const auto* term = divisible_term(program);
  const auto input = found.of_value.find(term ? term->input : -1);
  // Rows of the data are selected from [segments, length, classes].
  const size_t dimensions = term && term->target >= 0 ? 2 : 3;
  const bool has_classes = input != found.of_value.end() && input->second.size() == dimensions &&
                           found.atoms.leaves(input->second.back()) == found.atoms.resolved(input->second.back()) &&
                           found.atoms.resolved(input->second.back()).size() == 1;
  if (has_classes) found.classes = input->second.back();
  for (const int value : program.loss.values()) ends(value, has_classes && value == term->input);
  for (const int value : program.logits.outputs) ends(value, has_classes);
}

// A rank identifies its words by a single range of ids.
void forbid_parted_words(const Program& program, ProgramDimensions& found) {
  for (const auto& [node, words] : found.summed)
    if (program.graph().nodes[node].name == kLookup && found.atoms.resolved(words).size() != 1)
      found.atoms.forbid(words, "the table's rows are taken apart elsewhere");
}

// A rank cannot take its sections of a value that is whole on all ranks; sections of a weight must be outermost.
void forbid_sections(const Program& program, ProgramDimensions& found) {
  const auto forbid = [&](const Dimension& dimension, size_t first, const char* why) {
    const Dimension atoms = found.atoms.resolved(dimension);
    for (size_t i = first; i < atoms.size(); ++i)
      if (!found.atoms.sections(atoms[i]).empty()) found.atoms.forbid({atoms[i]}, why);
  };
  for (const auto& [reading, dimensions] : found.of_reading)
    for (const auto& dimension : dimensions) forbid(dimension, 0, "masks or constants have sections of them");
  for (const auto& [node, dimensions] : found.sliced)
    for (const auto& dimension : dimensions) forbid(dimension, 0, "a part of a whole value has sections of them");
  for (const auto& input : program.graph().inputs)
    if (const auto known = found.of_value.find(input.value); known != found.of_value.end())
      for (const auto& dimension : known->second) forbid(dimension, 1, "a weight has sections inside others");
  for (const auto& [node, summed] : found.summed) forbid(summed, 0, "a product sums over sections of them");
  for (int atom = 0; atom < found.atoms.count(); ++atom)
    for (const auto& section : found.atoms.sections(atom)) forbid(section, 0, "they are sections of a section");
}

// What is gathered is whole on every rank.
void forbid_gathered(const Program& program, ProgramDimensions& found) {
  for (const auto& product : found.products) {
    const auto gathered = found.gathered.find(product.node);
    if (gathered == found.gathered.end()) continue;
    const Dimensions& whole = found.of_value.at(program.graph().nodes[product.node].results[0].value);
    for (size_t i = 0; i < whole.size(); ++i)
      if (whole[i] != gathered->second[i])
        found.atoms.forbid(whole[i], cat("the columns of ", product.parameter, " are gathered"));
  }
}

// A rank computes its part of a dimension from the sizes inside it, so these must not vary with the batch.
void forbid_outside_of_batch(const Program& program, ProgramDimensions& found) {
  for (const auto& [reading, dimensions] : found.of_reading) {
    const GraphArgument& given = program.graph().nodes[reading.node].arguments[reading.argument];
    const int value = reading.item < 0 ? given.value : given.items[reading.item].value;
    if (value < 0) continue;
    const auto& sizes = program.graph().values[value].sizes;
    for (size_t i = 0; i < dimensions.size(); ++i) {
      if (i < sizes.size() && sizes[i].expression.empty()) continue;
      Dimension outer = found.atoms.resolved(dimensions[i]);
      if (!outer.empty()) outer.pop_back();
      found.atoms.forbid(outer, "they are outside of what varies with the batch");
    }
  }
}

// An atom of a node's argument must be in its result or be summed over, and must occur only once per element.
void forbid_lost(const Program& program, ProgramDimensions& found) {
  Atoms& atoms = found.atoms;
  const std::function<void(const Dimension&, std::set<int>&)> add = [&](const Dimension& dimension,
                                                                        std::set<int>& all) {
    const std::set<int> before = all;
    std::set<int> seen;
    for (const int atom : atoms.resolved(dimension)) {
      std::set<int> own = {atom};
      if (const Dimensions sections = atoms.sections(atom); !sections.empty()) {
        own.clear();
        for (const auto& section : sections) {
          std::set<int> of_section;
          add(section, of_section);
          own.merge(of_section);
        }
      }
      for (const int leaf : own)
        if (before.contains(leaf) || !seen.insert(leaf).second)
          atoms.forbid({leaf}, "a tensor has them in two dimensions");
    }
    all.merge(seen);
  };
  const auto of_all = [&](const Dimensions& dimensions) {
    std::set<int> all;
    for (const auto& dimension : dimensions) add(dimension, all);
    return all;
  };
  for (const int index : whole_part(program).nodes) {
    std::set<int> taken;
    visit_readings(program.graph(), index, [&](const Reading& reading, int) {
      if (const Dimensions* dimensions = found.read_at(program.graph(), reading)) taken.merge(of_all(*dimensions));
    });
    const auto summed = found.summed.find(index);
    if (summed != found.summed.end())
      for (const int atom : atoms.leaves(summed->second)) taken.erase(atom);
    if (const auto gathered = found.gathered.find(index); gathered != found.gathered.end())
      for (const int atom : of_all(gathered->second)) taken.erase(atom);
    if (cuts_sections(program.graph().nodes[index]))  // a result need not have all sections
      visit_readings(program.graph(), index, [&](const Reading& reading, int) {
        if (const Dimensions* dimensions = found.read_at(program.graph(), reading))
          for (const auto& dimension : *dimensions)
            for (const int atom : atoms.resolved(dimension))
              for (const auto& section : atoms.sections(atom))
                for (const int leaf : atoms.leaves(section)) taken.erase(leaf);
      });
    for (const auto& result : program.graph().nodes[index].results) {
      const auto made = found.of_value.find(result.value);
      if (made == found.of_value.end()) continue;
      const std::set<int> all = of_all(made->second);
      for (const int atom : taken)
        if (!all.contains(atom))
          atoms.forbid({atom}, cat(program.graph().nodes[index].text(), " turns them into something else"));
    }
  }
}

}  // namespace

const Dimensions* ProgramDimensions::read_at(const Graph& graph, const Reading& reading) const {
  const GraphArgument& given = graph.nodes[reading.node].arguments[reading.argument];
  const auto known = of_value.find(reading.item < 0 ? given.value : given.items[reading.item].value);
  if (known != of_value.end()) return &known->second;
  const auto own = of_reading.find(reading);
  return own == of_reading.end() ? nullptr : &own->second;
}

SampleSizes samples_for_dimensions(const Program& program) {
  const int64_t most = most_positions(program);
  return {.samples = program.fixed_samples > 0 ? program.fixed_samples : kMostTokens.samples,
          .source = std::min(kMostTokens.source, most),
          .target = std::min(kMostTokens.target, most)};
}

ProgramDimensions dimensions_of(const Program& program, const ObservedSizes& sizes, const std::set<int>& gathers) {
  ProgramDimensions found;
  DimensionRules rules(program, sizes, gathers, found);
  for (const int node : whole_part(program).nodes) rules.apply(node);
  forbid_borders(program, found);
  forbid_ends(program, found);
  forbid_parted_words(program, found);
  forbid_outside_of_batch(program, found);
  forbid_sections(program, found);
  forbid_gathered(program, found);
  forbid_lost(program, found);
  return found;
}

}  // namespace shardline
