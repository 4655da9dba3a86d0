#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "engine/generator.h"
#include "engine/job.h"
#include "engine/job_parts.h"

namespace shardline {

void generate_job(const Config& config, const GenerateOptions& options, RankContext& context) {
  JobParts parts = make_parts(config, context);
  const auto source = tokenizer_source(config);
  if (source.empty()) throw ConfigError("/data/tokenizer: needed to read prompts; name a directory, a tokenizer.json or \"bytes\"");
  const auto tokenizer = load_tokenizer(source);
  Trainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, 0);
  fill_parameters(config.model, parts.model, static_cast<uint64_t>(config.training.seed), trainer.parameters());

  const Sampling sampling{.temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p,
                          .seed = options.seed};
  for (size_t i = 0; i < options.prompts.size(); ++i) {
    const auto ids = tokenizer->encode(options.prompts[i]);
    const auto tokens = generate(trainer, parts.model.spec, {ids.begin(), ids.end()}, options.max_new_tokens,
                                 tokenizer->eos(), sampling, static_cast<int64_t>(i));
    if (!context.out) continue;
    const auto text = tokenizer->decode(tokens);
    if (options.json)
      *context.out << nlohmann::json{{"prompt", options.prompts[i]}, {"text", text}, {"tokens", tokens}}.dump() << '\n';
    else
      *context.out << options.prompts[i] << text << '\n';
    context.out->flush();
  }
}

}  // namespace shardline
