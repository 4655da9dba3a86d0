#include "engine/config/keys/spellings.h"

#include <set>

#include "core/error.h"

namespace shardline {
namespace {

using nlohmann::json;

void check_older_names(const Config& config, JsonReader& training) {
  const json* ratio = training.peek("warmup_ratio");
  const json* steps = training.peek("warmup_steps");
  if (ratio && *ratio != 0 && !ratio->is_null() && steps && *steps != 0)
    training.fail("warmup_ratio", cat("contradicts warmup_steps ", steps->dump()), "keep warmup_steps");
  const json *adafactor = training.peek("adafactor"), *optim = training.peek("optim");
  if (adafactor && *adafactor == true && optim && *optim != "adafactor")
    training.fail("adafactor", cat("contradicts optim ", optim->dump()), "keep optim");
  const json* accelerator = training.peek("accelerator_config");
  if (accelerator && accelerator->is_object() && accelerator->value("split_batches", json(false)) == true)
    training.fail("accelerator_config",
                  "\"split_batches\" is not supported: it makes per_device_train_batch_size the "
                  "batch of all devices",
                  "give that batch as global_batch_size");
  if (config.training.use_cpu && config.runtime.device == "cuda")
    training.fail(training.has("no_cuda") ? "no_cuda" : "use_cpu", "contradicts runtime.device \"cuda\"",
                  "keep one of them");
}

// transformers', SageMaker's and our spellings of which activations are computed again.
void check_recompute_spellings(JsonReader& training, JsonReader& smp) {
  struct Spelling {
    JsonReader* section;
    std::string key, full_name;
    json given, strategy;
  };
  std::vector<Spelling> spellings;
  const auto add = [&](JsonReader& section, const char* prefix, const char* key, const json& strategy) {
    const json* given = section.peek(key);
    if (!given || given->is_null() || *given == false) return;
    spellings.push_back({&section, key, cat(prefix, key), *given, strategy.is_null() ? *given : strategy});
  };
  add(smp, "smp_options.", "activation_checkpointing", nullptr);
  add(smp, "smp_options.", "checkpoint_attentions", "selective");
  add(training, "training.", "activation_checkpointing", "each");
  add(training, "training.", "gradient_checkpointing", "each");
  for (const auto& [section, key, full_name, given, strategy] : spellings)
    if (strategy != spellings.front().strategy)
      section->fail(key,
                    cat("means activation_checkpointing ", strategy.dump(), " and contradicts ",
                        spellings.front().full_name, " ", spellings.front().given.dump()),
                    "keep one of them");
}

// Arguments that transformers gives to PyTorch's checkpoint.
void check_recompute_arguments(JsonReader& training, JsonReader& smp) {
  static const std::set<std::string> without_effect = {"use_reentrant", "preserve_rng_state", "determinism_check",
                                                       "early_stop", "debug"};
  for (const char* key : {"activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"}) {
    const json* arguments = training.peek(key);
    if (!arguments || !arguments->is_object()) continue;
    for (const auto& [name, value] : arguments->items()) {
      const json* offload = smp.peek("offload_activations");
      if (name == "every_n_layers" && value != 1)
        training.fail(key, cat("\"every_n_layers\" is not supported"),
                      "list the layers in smp_options.activation_checkpointing");
      else if (name == "offload" && !value.is_boolean())
        training.fail(key, "\"offload\" must be true or false", "change it");
      else if (name == "offload" && offload && offload->is_boolean() && *offload != value)
        training.fail(key, cat("\"offload\" contradicts smp_options.offload_activations ", offload->dump()),
                      "keep one of them");
      else if (name != "every_n_layers" && name != "offload" && !without_effect.contains(name))
        training.fail(key, cat("there is no argument \"", name, '"'), "leave it out");
    }
  }
}

}  // namespace

void check_spellings(const Config& config, JsonReader& training, JsonReader& smp) {
  check_older_names(config, training);
  check_recompute_spellings(training, smp);
  check_recompute_arguments(training, smp);
}

}  // namespace shardline
