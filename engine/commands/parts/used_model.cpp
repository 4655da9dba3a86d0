#include "engine/commands/parts/used_model.h"

#include <filesystem>

#include "core/error.h"
#include "engine/config/rules/model_rules.h"
#include "engine/run/model_source.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

}  // namespace

void require_weights(const Config& config) {
  if (config.model.pretrained() || config.model.init) return;
  const std::string& out = config.output_dir;
  throw ConfigError(cat("/model/path: is not given, so the weights would be random; ",
                        holds_model(out) ? cat("use the model in output_dir with ", setting_of_model(out))
                                         : cat("name the directory of a model, for instance ", setting_of_model(out),
                                               " after a run has saved one there"),
                        ", or set model.init to \"random\" if you want random weights"));
}

void require_whole(const ModelSource& model) {
  if (!model.names.grown.empty())
    throw ConfigError(cat("/model/config/vocab_size: the files in ", model.directory->path(),
                          " have rows for fewer words: ", model.names.grown.front(),
                          "; train the model first, or leave vocab_size out"));
  if (model.names.missing.empty()) return;
  throw ConfigError(cat("/model/path: ", model.directory->path(), " has no ", model.names.missing.front(),
                        ", which the task needs and which would have initial values; train the model for the task "
                        "first, or set task to the one that it has been trained for"));
}

std::string used_model_line(const Config& config) {
  std::error_code ignored;
  const std::string& out = config.output_dir;
  const bool is_another = holds_model(out) && !fs::equivalent(config.model.path, path_of_model(out), ignored);
  return cat("model: ", weights_text(config.model),
             is_another ? cat("; the model in output_dir is used with ", setting_of_model(out)) : "");
}

std::string samples_line(const Config& config, bool is_stated) {
  const auto model = described_model(config.model, head_choice(config));
  const int64_t usual = DataOptions().sequence_length, length = config.data.sequence_length;
  const bool is_cut = !is_stated && model && length == model->max_positions && length < usual;
  return cat("samples: ", length, " tokens", is_cut ? cat(", the model's maximum (the default is ", usual, ')') : "");
}

}  // namespace shardline
