#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/commands/job_parts.h"
#include "engine/commands/used_model.h"
#include "engine/config/config.h"
#include "engine/config/rules/sizes.h"
#include "engine/generate/generator.h"

namespace shardline {

namespace {

// Encodes and checks every prompt before the first one is continued.
std::vector<std::vector<int64_t>> encode_prompts(const GenerateOptions& options, const Tokenizer& tokenizer,
                                                 const ModelSpec& spec) {
  std::vector<std::vector<int64_t>> prompts;
  for (const auto& prompt : options.prompts) {
    const std::string which = cat("prompt ", prompts.size() + 1, " of ", options.prompts.size());
    const auto ids = tokenizer.encode(prompt);
    if (ids.empty()) throw ConfigError(cat(which, " is empty; give at least one token to continue"));
    if (std::ssize(ids) >= spec.max_positions)
      throw ConfigError(cat(which, " has ", ids.size(), " tokens, which leaves no room in the model's ",
                            spec.max_positions, " positions; shorten it"));
    for (const auto id : ids)
      if (id >= spec.vocab_size)
        throw ConfigError(cat(which, ": the tokenizer gives id ", id, ", but the model's vocab_size is ",
                              spec.vocab_size, "; use the model's own tokenizer"));
    prompts.emplace_back(ids.begin(), ids.end());
  }
  return prompts;
}

}  // namespace

void check_generate(const Config& config, const GenerateOptions& options) {
  require_weights(config);
  const auto planned = plan_model(config, configured_world_size(config));
  encode_prompts(options, *require_tokenizer(config), planned.model.spec);
}

void generate_job(const Config& written, const GenerateOptions& options, RankContext& context) {
  require_weights(written);
  const Config config = completed_config(written, *context.world);
  JobParts parts = make_parts(config, context);
  const auto tokenizer = require_tokenizer(config);
  const auto prompts = encode_prompts(options, *tokenizer, parts.model.spec);
  explain_memory(parts, context, /*trains=*/false, [&] {
    Trainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, 0);
    load_parameters(config, parts, trainer.parameters());

    const Sampling sampling{
        .temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p, .seed = options.seed};
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto tokens =
          generate(trainer, parts.model.spec, prompts[i], options.max_new_tokens, tokenizer->eos(), sampling, i);
      if (!context.out) continue;
      const auto text = tokenizer->decode(tokens);
      if (options.json)
        *context.out << nlohmann::json{{"prompt", options.prompts[i]}, {"text", text}, {"tokens", tokens}}.dump(
                            -1, ' ', false, nlohmann::json::error_handler_t::replace)
                     << '\n';
      else
        *context.out << options.prompts[i] << text << '\n';
      context.out->flush();
    }
  });
}

}  // namespace shardline
