// The model families, by HF's model_type. Each is a file in this folder (roberta.h has two) and a line in families.cpp.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/model/microbatch.h"
#include "core/model/model_spec.h"
#include "models/families/head_choice.h"
#include "models/files/hf_config_reader.h"

namespace shardline {

struct Parameter;
struct Pt2Archive;

// The model that a config describes. If there are mistakes, nothing else is set.
struct HfModel {
  std::vector<HfConfigMistake> mistakes;
  nlohmann::json config;             // contents of a saved model's config.json
  std::set<std::string> only_saved;  // the user's keys that change only that file
  int64_t max_positions = 0, vocab_size = 0;
  std::vector<TensorColumn> columns;  // of the data that are arguments of traced modules, under the arguments' names
  int64_t features = 0;  // number of features that the model takes per row in place of ids; 0: it takes ids
  HeadChoice head;       // fully specified
  std::function<ModelSpec(bool sequence_parallel, const SplitChoices&)> make_spec;  // may leave layers' costs unset
  // Used instead of make_spec for traced modules: returns them as a program, with their initial values under a seed.
  // longest: maximum number of tokens in a sample.
  std::function<Pt2Archive(uint64_t seed, int64_t longest)> trace;
  // Fills parameters with the model's own initial values; null: they are drawn according to the spec (ParamSpec::init).
  std::function<std::function<void(Parameter&)>(uint64_t seed)> initial_values;
};

// A family and the heads it has. `read` reads a config and sets the model that it describes, with model.head as its
// head, or reports mistakes to the reader.
struct Family {
  HeadClasses heads;
  std::function<void(HfConfigReader&, HfModel&)> read;
  bool is_traced = false;  // sets HfModel::trace
};

// A family whose config is read by `read_config` and whose layers are described by `make`, which need not state costs.
// read_config(HfConfigReader&) also gets the HeadChoice::Kind if the head decides which values its keys may have.
template <class ReadConfig, class FamilyConfig>
Family family_of(HeadClasses heads, ReadConfig* read_config,
                 ModelSpec (*make)(const FamilyConfig&, const HeadChoice&, bool sequence_parallel,
                                   const SplitChoices&)) {
  const auto read = [read_config, make](HfConfigReader& reader, HfModel& model) {
    FamilyConfig config;
    if constexpr (std::is_invocable_v<ReadConfig*, HfConfigReader&, HeadChoice::Kind>)
      config = read_config(reader, model.head.kind);
    else
      config = read_config(reader);
    model.max_positions = config.n_positions;
    model.vocab_size = config.vocab_size;
    model.make_spec = [config, make, head = model.head](bool sequence_parallel, const SplitChoices& choices) {
      return make(config, head, sequence_parallel, choices);
    };
  };
  return {std::move(heads), read};
}

// Lets a user's program add a family; must be called before a config is read.
void add_family(const std::string& model_type, Family family);
bool has_family(const std::string& model_type);
bool is_traced_family(const std::string& model_type);

// `file`: the config.json of a directory, or an empty object; `overrides`: a user's keys, which override those of the
// file. Only keys of the family are accepted. An unknown model_type and features that the family does not support are
// mistakes. `head` is the task's choice; config.json decides what it leaves open. A head that the family does not have
// is a mistake at "task" (HfConfigMistake::of_task).
HfModel read_hf_model(const nlohmann::json& file, const nlohmann::json& overrides, const HeadChoice& head = {});

// As above for a config alone; `where` names it in messages. Before the costs are determined, `adjust` may change
// everything they depend on. Throws ConfigError with all mistakes.
ModelSpec model_spec(const nlohmann::json& hf_config, const std::string& where, bool sequence_parallel,
                     const SplitChoices& choices = {}, const std::function<void(ModelSpec&)>& adjust = nullptr,
                     const HeadChoice& head = {});

}  // namespace shardline
