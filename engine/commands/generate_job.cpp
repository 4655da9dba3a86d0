#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/used_model.h"
#include "engine/config/config.h"
#include "engine/config/rules/program_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/generate/continued_text.h"
#include "engine/generate/generator.h"
#include "engine/generate/target_generator.h"

namespace shardline {

namespace {

std::vector<std::string> prompts_of(const GenerateOptions& options) {
  std::vector<std::string> prompts = options.prompts;
  const std::string& path = options.prompts_file;
  if (!path.empty()) {
    if (!std::filesystem::is_regular_file(path)) throw ConfigError(cat("--prompts: ", path, " is not a file"));
    std::ifstream file(path);
    if (!file) throw ConfigError(cat("--prompts: ", path, " cannot be read"));
    for (std::string prompt; std::getline(file, prompt);) prompts.push_back(prompt);
  }
  if (prompts.empty()) throw ConfigError("generate needs --prompt TEXT or --prompts FILE");
  return prompts;
}

void require_language_model(const Config& config) {
  if (reads_columns(config))
    throw ConfigError(
        "/model/inputs: generate takes texts, but the program takes columns of tensors; use eval, which "
        "generates targets for validation data and scores them");
  const auto head = traits_of(config.task).head;
  if (head == HeadChoice::Kind::causal_lm || head == HeadChoice::Kind::seq2seq_lm) return;
  throw ConfigError(cat("/task: generate needs a language model, so the task must be \"", kCausalLm, "\" or \"",
                        kSeq2SeqLm, "\"; got \"", config.task, "\"; use predict"));
}

// Whether the model takes prompts as sources and writes targets for them, instead of continuing them.
bool writes_targets(const Config& config) {
  return config.task == kSeq2SeqLm;
}

std::vector<int32_t> encode_prompt(const Config& config, const std::string& prompt, const Tokenizer& tokenizer) {
  if (!writes_targets(config)) return tokenizer.encode(prompt);
  const std::string source = config.data.prefix + prompt;
  return tokenizer.encode_example(std::string_view(source), nullptr, {}).front().ids;
}

// Encodes and checks every prompt before the first one is continued.
std::vector<std::vector<int64_t>> encode_prompts(const Config& config, const std::vector<std::string>& texts,
                                                 const Tokenizer& tokenizer, const ModelSpec& spec) {
  std::vector<std::vector<int64_t>> prompts;
  for (const auto& prompt : texts) {
    const std::string which = cat("prompt ", prompts.size() + 1, " of ", texts.size());
    const auto ids = encode_prompt(config, prompt, tokenizer);
    if (ids.empty()) throw ConfigError(cat(which, " is empty; give at least one token to continue"));
    if (const int64_t most = spec.max_positions - spec.most_targets; spec.most_targets > 0 && std::ssize(ids) > most)
      throw ConfigError(cat(which, " has ", ids.size(), " tokens, but the model takes ", most, "; shorten it"));
    if (std::ssize(ids) >= spec.max_positions)
      throw ConfigError(cat(which, " has ", ids.size(), " tokens, which leaves no room in the model's ",
                            spec.max_positions, " positions; shorten it"));
    for (const auto id : ids)
      if (id >= spec.vocab_size)
        throw ConfigError(cat(which, ": the tokenizer returns the id ", id, ", but the model's vocab_size is ",
                              spec.vocab_size, "; use the model's own tokenizer"));
    prompts.emplace_back(ids.begin(), ids.end());
  }
  return prompts;
}

}  // namespace

void check_generate(const Config& config, const GenerateOptions& options) {
  const auto prompts = prompts_of(options);
  require_language_model(config);
  require_weights(config);
  const auto planned = plan_model(config, configured_world_size(config));
  require_whole(planned.model);
  encode_prompts(config, prompts, *require_tokenizer(config), planned.model.spec);
}

void generate_job(const Config& written, const GenerateOptions& options, RankContext& context) {
  require_language_model(written);
  require_weights(written);
  const Config config = completed_config(written, *context.world, /*trains=*/false);
  JobParts parts = make_parts(config, context);
  require_whole(parts.model);
  // The first rank alone has prompts and tokenizer: another host's files may differ.
  std::vector<std::string> texts;
  TokenizerPtr tokenizer;
  nlohmann::json encoded;
  if (context.first()) {
    texts = prompts_of(options);
    tokenizer = require_tokenizer(config);
    encoded["prompts"] = encode_prompts(config, texts, *tokenizer, parts.model.spec);
    if (const auto eos = tokenizer->eos()) encoded["eos"] = *eos;
  }
  encoded = nlohmann::json::parse(broadcast_string(*context.world, encoded.dump(), 0));
  const std::vector<std::vector<int64_t>> prompts = encoded["prompts"];
  const auto eos = encoded.contains("eos") ? std::optional<int32_t>(encoded["eos"]) : std::nullopt;
  explain_memory(parts, context, /*trains=*/false, [&] {
    RankTrainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, 0);
    load_parameters(config, parts, trainer.parameters());

    const Sampling sampling{
        .temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p, .seed = options.seed};
    std::vector<std::vector<int32_t>> targets;
    if (writes_targets(config)) {
      std::vector<std::vector<int32_t>> sources;
      for (const auto& prompt : prompts) sources.emplace_back(prompt.begin(), prompt.end());
      const TargetRule rule{.most_tokens = options.max_new_tokens, .end = eos};
      targets = generate_targets(trainer, parts.model.spec, sources, rule, sampling, trainer.evaluated_together());
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto tokens = writes_targets(config)
                              ? targets[i]
                              : generate(trainer, parts.model.spec, prompts[i], options.max_new_tokens, eos, sampling,
                                         i, parts.model.has_caches());
      if (!context.out) continue;
      std::vector<int32_t> before;
      if (!writes_targets(config)) before.assign(prompts[i].begin(), prompts[i].end());
      const auto text = continued_text(*tokenizer, before, tokens);
      if (options.json)
        *context.out << nlohmann::json{{"prompt", texts[i]}, {"text", text}, {"tokens", tokens}}.dump(
                            -1, ' ', false, nlohmann::json::error_handler_t::replace)
                     << '\n';
      else
        *context.out << (writes_targets(config) ? "" : texts[i]) << text << '\n';
      context.out->flush();
    }
  });
}

}  // namespace shardline
