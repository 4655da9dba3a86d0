#include "models/families/families.h"

#include <map>

#include "core/error.h"
#include "models/families/bert.h"
#include "models/families/distilbert.h"
#include "models/families/gpt2.h"
#include "models/families/gpt_neo.h"
#include "models/families/gptj.h"
#include "models/families/roberta.h"
#include "models/graph/dry_run.h"

namespace shardline {
namespace {

std::map<std::string, Family>& families() {
  static std::map<std::string, Family> all = {
      {"bert", family_of(bert_heads(), bert_config, bert_spec)},
      {"distilbert", family_of(distilbert_heads(), distilbert_config, distilbert_spec)},
      {"gpt2", family_of(gpt2_heads(), gpt2_config, gpt2_spec)},
      {"gpt_neo", family_of(gpt_neo_heads(), gpt_neo_config, gpt_neo_spec)},
      {"gptj", family_of(gptj_heads(), gptj_config, gptj_spec)},
      {"roberta", family_of(roberta_heads(), roberta_config, roberta_spec)},
      {"xlm-roberta", family_of(xlm_roberta_heads(), xlm_roberta_config, xlm_roberta_spec)}};
  return all;
}

// Whether the family has this head; reports a mistake if not.
bool has_head(const std::string& type, const Family& family, HeadChoice::Kind kind, HfModel& model) {
  if (family.heads.contains(kind)) return true;
  std::string rule = cat("must be a task for which ", type, " has a head:");
  for (const auto& [known, name] : family.heads) rule += cat(rule.ends_with(":") ? " " : ", ", task_name(known));
  model.mistakes.push_back({.key = "task", .rule = rule, .value = task_name(kind), .of_task = true});
  return false;
}

}  // namespace

void add_family(const std::string& model_type, Family family) {
  families()[model_type] = std::move(family);
}

bool has_family(const std::string& model_type) {
  return families().contains(model_type);
}

bool is_traced_family(const std::string& model_type) {
  const auto found = families().find(model_type);
  return found != families().end() && found->second.is_traced;
}

HfModel read_hf_model(const nlohmann::json& file, const nlohmann::json& overrides, const HeadChoice& head) {
  std::string rule = "must name the model family; known:";
  for (const auto& [name, family] : families()) rule += (rule.ends_with(":") ? " " : ", ") + name;
  HfModel model{.head = head};
  HfConfigReader read(file, overrides);
  std::string type;
  read.text("model_type", type);
  const auto family = families().find(type);
  if (family == families().end()) {
    read.complain({"model_type"}, rule, "export another model with torch.export to train it (docs/programs.md)");
  } else if (has_head(type, family->second, head.kind, model)) {
    const std::string& head_class = family->second.heads.at(head.kind);
    complete_head(read, model.head);
    family->second.read(read, model);
    if (!head_class.empty())
      read.accept_only("architectures", {{head_class}}, cat("leave it out: the task is ", task_name(head.kind)));
    read.finish();
  }
  model.mistakes.insert(model.mistakes.end(), read.mistakes().begin(), read.mistakes().end());
  model.config = read.merged();
  if (model.mistakes.empty()) put_head(model.config, model.head, family->second.heads.at(head.kind));
  model.only_saved = read.only_saved();
  return model;
}

ModelSpec model_spec(const nlohmann::json& hf_config, const std::string& where, bool sequence_parallel,
                     const SplitChoices& choices, const std::function<void(ModelSpec&)>& adjust,
                     const HeadChoice& head) {
  if (!hf_config.is_object())
    throw ConfigError(cat(where, ": a model's config must be an object; got ", hf_config.dump()));
  const HfModel model = read_hf_model(hf_config, nlohmann::json::object(), head);
  if (!model.mistakes.empty()) throw ConfigError(mistakes_text(model.mistakes, where + ": ", ""));
  ModelSpec spec = model.make_spec(sequence_parallel, choices);
  spec.predicts_next = head.kind == HeadChoice::Kind::causal_lm;
  if (head.kind == HeadChoice::Kind::token_classification) spec.row_labels = model.head.labels;
  if (adjust) adjust(spec);
  add_costs_of_ops(spec);
  return spec;
}

}  // namespace shardline
