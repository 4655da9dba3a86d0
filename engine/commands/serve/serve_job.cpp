#include "engine/commands/serve/serve_job.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <ostream>
#include <set>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/open_data.h"
#include "engine/commands/parts/used_model.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/run/stop.h"
#include "engine/serve/handlers.h"
#include "engine/serve/http/socket_keeper.h"
#include "engine/serve/model_loop.h"
#include "engine/serve/service.h"

namespace shardline {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

void require_served(const Config& config) {
  if (!has_http_server())
    throw ConfigError(
        "this build of shardline has no server; install libboost-dev and libarchive-dev, and rebuild shardline");
  if (config.model.is_program())
    throw ConfigError(
        cat("/model/path: serve needs a model directory, but ", config.model.path, " is an exported program"));
}

// The model's config.json as written, with the keys that the job's config adds.
json written_config(const Config& config) {
  const std::filesystem::path file = std::filesystem::path(config.model.path) / "config.json";
  json keys = config.model.path.empty() ? json::object() : read_data_json(file.string());
  keys.merge_patch(config.model.config);
  return keys;
}

// The tokens that end a text: from generation_config.json, else from config.json, else from the tokenizer.
std::vector<int32_t> ends_of_text(const Config& config, const json& keys, const Tokenizer& tokenizer) {
  const auto read = [](const json& from, std::vector<int32_t>& ends) {
    const auto found = from.find("eos_token_id");
    if (found == from.end() || found->is_null()) return;
    for (const json& id : found->is_array() ? *found : json::array({*found}))
      if (id.is_number_integer()) ends.push_back(id);
  };
  std::vector<int32_t> ends;
  const std::filesystem::path file = std::filesystem::path(config.model.path) / "generation_config.json";
  if (!config.model.path.empty() && std::filesystem::exists(file)) read(read_data_json(file.string()), ends);
  if (ends.empty()) read(keys, ends);
  if (ends.empty())
    if (const auto eos = tokenizer.eos()) ends.push_back(*eos);
  return ends;
}

// The tokenizer's own maximum, which transformers truncates to.
int64_t most_of_tokenizer(const Config& config) {
  constexpr double kNone = 1e15;  // transformers writes 1e30
  const std::filesystem::path file = std::filesystem::path(tokenizer_source(config)) / "tokenizer_config.json";
  if (std::filesystem::exists(file)) {
    const json keys = read_data_json(file.string());
    const auto most = keys.find("model_max_length");
    if (most != keys.end() && most->is_number() && *most >= 1 && *most < kNone) return most->get<int64_t>();
  }
  return std::numeric_limits<int64_t>::max();
}

ModelFacts facts_of(const Config& config, const ModelSource& model, const TokenizerPtr& tokenizer) {
  const json keys = written_config(config);
  return {.head = model.head,
          .tokenizer = tokenizer,
          .vocab_size = model.spec.vocab_size,
          .most_tokens = model.spec.max_positions,
          .tokenizer_tokens = most_of_tokenizer(config),
          .is_regression = keys.value("problem_type", json()) == "regression",
          .ends = ends_of_text(config, keys, *tokenizer)};
}

// The first rank's work: requests are read on their own threads, the model runs on this one.
void serve_requests(RankModel& model, const ModelFacts& facts, const ServeOptions& options, RankContext& context) {
  ModelQueue queue;
  Service service(options, facts, serve_handlers(), queue);
  auto server = std::make_unique<HttpServer>(
      kept_socket(options.host, options.port), options.http,
      [&](HttpRequest request, HttpServer::Respond respond) { service.handle(std::move(request), std::move(respond)); },
      [&](int status) { service.counts().refused(status); });
  service.show_connections([&] { return server->connections(); });
  enter_phase(RunPhase::serving);
  if (context.out)
    *context.out << "serving " << task_name(facts.head.kind) << " on http://" << options.host << ':' << server->port()
                 << std::endl;

  // After a signal, accepted requests are still answered, within the time limit of a request.
  std::optional<Clock::time_point> stopping;
  const LoopEvents events{.is_over =
                              [&] {
                                if (stop_signal() == 0) return false;
                                if (!stopping) {
                                  stopping = Clock::now() + std::chrono::seconds(options.timeout + 1);
                                  server->begin_stop();
                                }
                                return server->has_stopped() || Clock::now() > *stopping;
                              },
                          .computed = [&](int64_t items, int64_t tokens) { service.counts().computed(items, tokens); }};
  const bool is_alone = context.world->size() == 1;
  const auto end = [&] {
    queue.close("the server is stopping");
    service.finish();
    server.reset();
  };
  try {
    if (facts.head.kind == HeadChoice::Kind::causal_lm)
      serve_continuations(model, queue, options.batch, is_alone, events);
    else
      serve_examples(model, queue, options.batch, is_alone, events);
  } catch (...) {
    end();
    throw;
  }
  end();
  if (context.out) *context.out << "stopped" << std::endl;
}

}  // namespace

void check_serve(const Config& config) {
  require_served(config);
  require_weights(config);
  const Config used = in_evaluation_precision(config);
  const PlannedModel planned = plan_model(used, configured_world_size(used));
  require_whole(planned.model);
  tokenizer_of_task(used, planned.model.spec);
}

void serve_job(const Config& written, const ServeOptions& options, RankContext& context) {
  require_served(written);
  require_weights(written);
  const Config config = completed_config(in_evaluation_precision(written), *context.world, /*trains=*/false);
  JobParts parts = make_parts(config, context);
  require_whole(parts.model);
  ModelFacts facts = facts_of(config, parts.model, tokenizer_of_task(config, parts.model.spec));
  explain_memory(parts, context, /*trains=*/false, [&] {
    RankTrainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, 0);
    load_parameters(config, parts, trainer.parameters());
    RankModel model(trainer, parts.model.spec, facts.head.kind, *context.world);
    if (!context.first()) {
      enter_phase(RunPhase::serving);
      return model.follow();
    }
    serve_handlers().model_fn(config.model.path, facts);
    serve_requests(model, facts, options, context);
    model.end();
  });
}

}  // namespace shardline
