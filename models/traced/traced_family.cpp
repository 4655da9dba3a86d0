#include "models/traced/traced_family.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "core/error.h"
#include "models/families/module_family.h"
#include "models/program/trace/traced_archive.h"
#include "models/traced/program_head.h"

namespace shardline {

Family family_of_traced(const std::string& name, HeadChoice::Kind head, MakeTraced make) {
  const auto read = [name, make = std::move(make)](HfConfigReader& reader, HfModel& described) {
    const HeadChoice& of = described.head;
    TracedModel model;
    try {
      model = make(own_keys(reader, of));
      const bool has_tokens = model.columns.empty() || of.kind != HeadChoice::Kind::sequence_classification;
      if ((has_tokens && model.vocab_size < 1) || !model.make)
        throw ConfigError("the model has no vocab_size or no module; set TracedModel::vocab_size and make");
    } catch (const std::exception& error) {
      reader.complain({"model_type"}, error.what());
      return;
    }
    model.name = name;
    described.vocab_size = std::max<int64_t>(model.vocab_size, 1);
    described.columns = model.columns;
    described.max_positions = model.max_positions > 0 ? model.max_positions : std::numeric_limits<int32_t>::max();
    const bool are_numbers = of.problem && *of.problem != HeadChoice::Problem::single_label;
    const TracedLabels labels{.predicts = predicts_of(of.kind), .count = of.labels, .are_numbers = are_numbers};
    described.trace = [model, labels](uint64_t seed, int64_t longest) {
      return traced_archive(model, labels, seed, longest);
    };
  };
  return {.heads = {{head, name}}, .read = read, .is_traced = true};
}

}  // namespace shardline
