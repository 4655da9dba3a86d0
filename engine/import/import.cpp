#include "engine/import/import.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "core/error.h"
#include "core/files/json_reader.h"
#include "core/files/json_text.h"
#include "engine/config/keys/registry.h"
#include "engine/import/keys/job_facts.h"
#include "engine/import/keys/values.h"

namespace shardline {
namespace {

using nlohmann::json;
using Steps = std::vector<std::string>;

constexpr int kMostFiles = 16;  // files in a chain in which each names the next

// Walks over all keys of the files, then reads them.
class Importer {
 public:
  Importer(Draft& draft, const ReadFile& read_file) : draft_(draft), read_file_(read_file) {}

  void walk(const JobFile& file) {
    values_.push_back(file.value);
    objects_.emplace_back(&file.keys, &values_.back());
    walk_object({file.keys, values_.back(), file.place, /*is_off=*/false}, {}, values_.back());
  }

  std::vector<ImportedKey> read() {
    for (auto& found : found_)
      if (found.key && found.key->facts && !found.is_off && !is_unset(*found.value))
        found.key->facts(given(found), draft_);
    int last = 0;
    for (const auto& found : found_) last = std::max(last, found.key ? found.key->phase : 0);
    for (int phase = 0; phase <= last; ++phase)
      for (auto& found : found_)
        if ((found.key ? found.key->phase : 0) == phase) found.outcome = outcome_of(found);
    for (const auto& [vocabulary, root] : objects_)
      if (vocabulary->add_defaults) vocabulary->add_defaults(*root, draft_);
    for (auto& found : found_)
      if (const auto other = draft_.contradictions().find(found.name); other != draft_.contradictions().end())
        found.outcome = refused(other->second);
    std::vector<ImportedKey> keys;
    for (auto& found : found_) keys.push_back({found.name, *found.value, found.outcome});
    return keys;
  }

 private:
  // An object that a vocabulary describes.
  struct Scope {
    const Vocabulary& vocabulary;
    const json& root;
    std::string place;  // where its keys are, for messages
    bool is_off;        // something above it is switched off
  };
  struct Found {
    std::string name;
    Steps steps;
    const json* value;
    const json* root;
    const ForeignKey* key;  // null: unknown
    bool is_off;
    Outcome outcome;  // for keys that the walk itself decides about
    bool decided = false;
  };

  static Given given(const Found& found) { return {found.name, found.steps, *found.value, *found.root}; }

  static std::string name_of(const Scope& scope, const Steps& steps) {
    std::string name = scope.place;
    for (const auto& step : steps) {
      const bool is_plain = step.find_first_of(".\"") == std::string::npos && !step.empty();
      name += (name.empty() ? "" : ".") + (is_plain ? step : json(step).dump());
    }
    return name;
  }

  void walk_object(const Scope& scope, const Steps& steps, const json& value) {
    const bool off = scope.is_off || (value.is_object() && value.contains("enabled") && is_off(value["enabled"]));
    const Scope inner{scope.vocabulary, scope.root, scope.place, off};
    size_t index = 0;
    for (const auto& item : value.items()) {
      Steps next = steps;
      next.push_back(value.is_array() ? std::to_string(index++) : item.key());
      visit(item.key() == "enabled" ? Scope{scope} : inner, next, item.value());
    }
  }

  void visit(const Scope& above, const Steps& steps, const json& written) {
    const Vocabulary& vocabulary = above.vocabulary;
    const bool is_unused = steps.size() == 1 && vocabulary.is_unused && vocabulary.is_unused(above.root, steps[0]);
    const Scope scope{vocabulary, above.root, above.place, above.is_off || is_unused};
    const ForeignKey* key = vocabulary.find(steps);
    const ForeignKey* negated = key ? nullptr : negated_key(vocabulary, steps, written);
    if (negated) key = negated;
    const json& value = negated ? values_.emplace_back(false) : written;
    if (key && key->inner) return open(scope, steps, value, *key);
    const bool has_keys = value.is_structured() && scope.vocabulary.has_below(steps);
    if (has_keys && !value.empty()) return walk_object(scope, steps, value);
    Found found{name_of(scope, steps), steps, &value, &scope.root, key, scope.is_off, {}};
    if (has_keys) {
      found.outcome = neutral("is empty");
      found.decided = true;
    } else if (!key && vocabulary.has_below(steps)) {
      found.outcome = is_off(value) ? neutral("is empty") : refused("must be an object with keys of its own");
      found.decided = true;
    } else if (!key) {
      found.outcome = refused(unknown_key(scope.vocabulary, steps));
      found.decided = true;
    }
    found_.push_back(std::move(found));
  }

  // The key that an argument such as --no_keep_linebreaks sets to false.
  static const ForeignKey* negated_key(const Vocabulary& vocabulary, const Steps& steps, const json& written) {
    const std::string name = plain_name(steps.back());
    if (!vocabulary.names_vary || steps.size() != 1 || !name.starts_with("no_") || !is_on(written)) return nullptr;
    return vocabulary.find({name.substr(3)});
  }

  // Walks over a value that is an object of another vocabulary, the text of one, or the name of a file with one.
  void open(const Scope& scope, const Steps& steps, const json& value, const ForeignKey& key) {
    const std::string name = name_of(scope, steps);
    const auto decide = [&](Outcome outcome) {
      found_.push_back({name, steps, &value, &scope.root, &key, scope.is_off, std::move(outcome), true});
    };
    if (is_off(value)) return decide(neutral("is empty"));
    json object = value;
    std::string file;
    if (value.is_string()) {
      const std::string text = plain_text(value);
      object = json_in_text(text);
      if (!object.is_object()) {
        file = text;
        if (++files_ > kMostFiles) throw ConfigError(cat(name, ": too many files refer to other files; give one file"));
        object = read_object(read_file_(file), file, key.inner());
      }
    }
    if (!object.is_object()) return decide(refused(cat("must be an object, not ", json_shown(value))));
    if (!file.empty()) decide(neutral("the keys of this file follow"));
    if (object.empty() && file.empty()) return decide(neutral("is empty"));
    values_.push_back(std::move(object));
    if (!scope.is_off) objects_.emplace_back(&key.inner(), &values_.back());
    walk_object({key.inner(), values_.back(), name, scope.is_off}, {}, values_.back());
  }

  static std::string unknown_key(const Vocabulary& vocabulary, const Steps& steps) {
    const std::string& last = steps.back();
    const std::string near = nearest_word(last, vocabulary.names_at(steps.size() - 1));
    if (!near.empty()) return cat("unknown key; did you mean ", near, "?");
    const auto hint = spelling_hints().find(plain_name(last));
    if (hint != spelling_hints().end()) return cat("unknown key; a config has ", hint->second);
    return "unknown key; remove it, or set the key of shardline that corresponds to it with --set";
  }

  Outcome outcome_of(const Found& found) {
    if (found.decided) return found.outcome;
    const ForeignKey& key = *found.key;
    if (found.is_off) return neutral("the option that it belongs to is off");
    if (key.fate == Fate::neutral && !key.read) return neutral(key.note);
    if (key.fate == Fate::mapped && is_unset(*found.value)) return neutral("unset");
    if (key.read) return key.read(given(found), draft_);
    return draft_.give(key.target, *found.value, found.name, key.note);
  }

  Draft& draft_;
  const ReadFile& read_file_;
  std::deque<json> values_;  // a deque keeps their addresses
  std::vector<std::pair<const Vocabulary*, const json*>> objects_;
  std::vector<Found> found_;
  int files_ = 0;
};

// Whether the job sets fp16 of SageMaker's library, whose loss scale is the default here.
bool scales_as_sagemaker(const std::vector<ImportedKey>& keys, const Draft& draft) {
  const auto is_of_library = [](const ImportedKey& key) {
    return key.name.ends_with("modelparallel.parameters.fp16") || key.name.ends_with("mp_parameters.fp16");
  };
  return draft.script.value_or("").starts_with("train_gpt_simple") || std::ranges::any_of(keys, is_of_library);
}

// The loss scale of transformers' Trainer and of accelerate, if the job does not determine the scale.
void add_scale_of_grad_scaler(const std::vector<ImportedKey>& keys, Draft& draft) {
  constexpr int kFirst = 65536, kStepsToGrow = 2000;
  const auto is_given = [&](const char* key) { return draft.has(cat("training.", key)); };
  if (!is_given("fp16") || draft.value("training.fp16") != true || scales_as_sagemaker(keys, draft)) return;
  for (const char* key :
       {"static_loss_scale", "dynamic_loss_scale", "dynamic_loss_args", "dynamic_loss_args.init_scale",
        "dynamic_loss_args.scale_window", "dynamic_loss_args.min_scale", "dynamic_loss_args.delayed_shift",
        "dynamic_loss_args.consecutive_hysteresis"})
    if (is_given(key)) return;
  draft.add("training.dynamic_loss_args.init_scale", kFirst, "where torch's GradScaler starts; the default is 2^32");
  draft.add("training.dynamic_loss_args.scale_window", kStepsToGrow,
            "steps after which torch's GradScaler raises the scale; the default is 1000");
}

}  // namespace

std::vector<const ImportedKey*> Import::refused() const {
  std::vector<const ImportedKey*> all;
  for (const auto& key : keys)
    if (key.outcome.fate == Fate::refused) all.push_back(&key);
  return all;
}

Import import_job(const std::vector<JobFile>& files, const ImportOptions& options, const ReadFile& read_file) {
  Draft draft(options);
  Importer importer(draft, read_file);
  Import result;
  for (const auto& file : files) {
    result.kinds.push_back(file.kind);
    importer.walk(file);
  }
  if (!options.hosts.empty()) draft.machines = options.hosts.size();
  result.keys = importer.read();
  add_defaults_of_script(draft);
  add_scale_of_grad_scaler(result.keys, draft);
  if (!options.hosts.empty()) draft.add("mpi_options.hosts", options.hosts, "from --hosts");
  const bool uses_ranks = options.ranks > 0 && !draft.has("mpi_options.processes_per_host");
  if (uses_ranks && options.ranks % draft.machines.value_or(1) != 0)
    throw ConfigError(cat("--ranks ", options.ranks, ": must be a multiple of the ", *draft.machines,
                          " machines, which all have the same number of processes"));
  if (uses_ranks) draft.add("mpi_options.processes_per_host", draft.processes_per_host(), "from --ranks");
  for (const auto& [channel, place] : options.channels) add_channel(channel, place, draft);
  const auto is_of_sagemaker = [](const JobFile& file) {
    return &file.keys == &training_job_keys() || &file.keys == &estimator_keys();
  };
  if (std::ranges::any_of(files, is_of_sagemaker))
    draft.add("output_dir", cat(kContainerFolder, "/model"), "where a container stores its model");
  result.additions = draft.additions();
  result.config = draft.config();
  return result;
}

}  // namespace shardline
