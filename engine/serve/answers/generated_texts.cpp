#include <algorithm>
#include <iterator>
#include <random>
#include <span>

#include "core/error.h"
#include "engine/generate/continued_text.h"
#include "engine/serve/answers/answers.h"
#include "engine/serve/answers/request_text.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr int64_t kUsualNewTokens = 256;
constexpr double kMostSeed = 9007199254740991;
constexpr int kMostContinuations = 64;  // per prompt
constexpr size_t kMostStops = 16;
constexpr size_t kMostStopBytes = 256;  // per text

struct TextOptions {
  std::optional<int64_t> most_new, most_tokens;
  TokenRules rules;
  std::shared_ptr<const StopTexts> stops;
  Sampling sampling{.temperature = 0};
  int64_t count = 1;
  bool with_prompt = true;
};

// Containers, generate and the pipeline have different names for the same parameter.
std::shared_ptr<const StopTexts> stops_in(const JsonValue& parameters, const TokenizerPtr& tokenizer) {
  std::optional<JsonValue> given;
  for (const char* name : {"stop", "stop_strings", "stop_sequence"}) {
    if (!parameters.has(name)) continue;
    if (given) parameters.at(name).fail("means the same as another parameter", "give only stop");
    given = parameters.at(name);
  }
  if (!given || (given->json().is_array() && given->json().empty())) return nullptr;
  std::vector<std::string> texts;
  for (const JsonValue& one : given->json().is_array() ? given->items() : std::vector{*given}) {
    texts.push_back(one.text());
    if (texts.back().empty()) one.fail("is empty", "name a text after which to stop");
    if (texts.back().size() > kMostStopBytes) one.fail(cat("must have at most ", kMostStopBytes, " bytes"));
  }
  if (texts.size() > kMostStops) given->fail(cat("must be at most ", kMostStops, " texts"));
  return std::make_shared<StopTexts>(tokenizer, std::move(texts));
}

TokenRules rules_in(const JsonValue& parameters, const ModelFacts& facts) {
  TokenRules rules{.repetition_penalty = number_in(parameters, "repetition_penalty", 1e-3, 1e3, 1),
                   .no_repeat_ngram_size = integer_in(parameters, "no_repeat_ngram_size", 0).value_or(0),
                   .least_new = integer_in(parameters, "min_new_tokens", 0).value_or(0)};
  std::ranges::copy_if(facts.ends, std::back_inserter(rules.ends),
                       [&](int32_t id) { return id >= 0 && id < facts.vocab_size; });
  return rules;
}

// The defaults of sampling are those of transformers.
TextOptions text_options(const JsonValue& parameters, const ModelFacts& facts) {
  require_parameters_among(
      parameters, {"max_new_tokens", "max_length", "min_new_tokens", "do_sample", "temperature", "top_k", "top_p",
                   "repetition_penalty", "no_repeat_ngram_size", "stop", "stop_strings", "stop_sequence", "seed",
                   "return_full_text", "num_return_sequences", "num_beams"});
  if (integer_in(parameters, "num_beams", 1).value_or(1) > 1)
    parameters.at("num_beams")
        .fail("must be 1, because beam search is not supported",
              "leave it out to take the most likely token at each place, or set do_sample to true for several texts");
  TextOptions options{.most_new = integer_in(parameters, "max_new_tokens", 1),
                      .most_tokens = integer_in(parameters, "max_length", 1),
                      .rules = rules_in(parameters, facts),
                      .stops = stops_in(parameters, facts.tokenizer)};
  if (options.most_tokens > facts.most_tokens)
    parameters.at("max_length").fail(cat("must be at most ", facts.most_tokens, ", the model's maximum"));
  options.with_prompt = parameters.flag("return_full_text", true);
  const bool samples = parameters.flag("do_sample", false);
  if (samples) {
    options.sampling = {.temperature = number_in(parameters, "temperature", 1e-3, 1e3, 1),
                        .top_k = integer_in(parameters, "top_k", 0).value_or(50),
                        .top_p = number_in(parameters, "top_p", 0, 1, 1)};
    if (parameters.has("seed"))
      options.sampling.seed = parameters.at("seed").require(json_integer(0, kMostSeed)).get<uint64_t>();
    else
      options.sampling.seed = std::random_device()();
  } else {
    for (const char* key : {"temperature", "top_k", "top_p"})
      if (parameters.has(key)) parameters.at(key).fail("has no effect without sampling", "set do_sample to true");
  }
  if (parameters.has("num_return_sequences")) {
    const JsonValue given = parameters.at("num_return_sequences");
    options.count = given.integer(1, kMostContinuations);
    if (options.count > 1 && !samples)
      given.fail("is more than one, but all texts would be the same", "set do_sample to true");
  }
  return options;
}

Continuation continuation_of(const JsonValue& input, const TextOptions& options, const ModelFacts& facts) {
  const CutOptions whole{.most = facts.most_tokens, .advice = "send a shorter text"};
  const Encoding encoding = read_text(input, input.text(), nullptr, facts, whole);
  const int64_t room = facts.most_tokens - std::ssize(encoding.ids);
  if (room < options.most_new.value_or(1))
    input.fail(cat("has ", encoding.ids.size(), " tokens, which leaves room for ", room, " of the model's ",
                   facts.most_tokens),
               "send a shorter text, or a smaller parameters.max_new_tokens");
  int64_t most_new = std::min(room, kUsualNewTokens);
  if (options.most_tokens) most_new = *options.most_tokens - std::ssize(encoding.ids);
  if (options.most_new) most_new = *options.most_new;  // as in transformers, even if max_length is given, too
  if (most_new < 1)
    input.fail(cat("has ", encoding.ids.size(), " tokens, and parameters.max_length, which counts them, is ",
                   *options.most_tokens),
               "send a shorter text, a larger parameters.max_length, or parameters.max_new_tokens instead of it");
  return {.prompt = {encoding.ids.begin(), encoding.ids.end()},
          .most_new = most_new,
          .sampling = options.sampling,
          .ends = facts.ends,
          .rules = options.rules,
          .stops = options.stops};
}

// The tokens that represent text of the user.
std::vector<int32_t> without_special(std::span<const int64_t> ids, const Tokenizer& tokenizer) {
  std::vector<int32_t> kept(ids.begin(), ids.end());
  std::erase_if(kept, [&](int32_t id) { return tokenizer.is_special(id); });
  return kept;
}

}  // namespace

json generated_texts(const Invocation& request, const ServedModel& model) {
  const Tokenizer& tokenizer = *model.facts().tokenizer;
  const TextOptions options = text_options(request.parameters(), model.facts());
  const std::vector<JsonValue> inputs = request.each();
  std::vector<Continuation> prompts;
  std::vector<std::vector<int32_t>> prompt_ids;  // by input
  if (std::ssize(inputs) * options.count > kMostInputs)
    request.inputs().fail(cat("would become ", std::ssize(inputs) * options.count, " texts"),
                          cat("ask for at most ", kMostInputs, " in a request"));
  for (const JsonValue& input : inputs) {
    model.require_time();
    const Continuation prompt = continuation_of(input, options, model.facts());
    prompt_ids.push_back(without_special(prompt.prompt, tokenizer));
    for (int64_t i = 0; i < options.count; ++i) {
      prompts.push_back(prompt);
      prompts.back().sequence = std::ssize(prompts) - 1;
    }
  }
  json answers = json::array();
  for (std::vector<int32_t>& ids : model.continued(std::move(prompts))) {
    const size_t made = answers.empty() ? 0 : answers.back().size();
    if (answers.empty() || std::cmp_equal(made, options.count)) answers.push_back(json::array());
    std::erase_if(ids, [&](int32_t id) { return tokenizer.is_special(id); });
    const size_t input = answers.size() - 1;
    const std::string prompt = options.with_prompt ? inputs[input].text() : "";
    answers.back().push_back({{"generated_text", prompt + continued_text(tokenizer, prompt_ids[input], ids)}});
  }
  return request.is_list() ? answers : answers.front();
}

}  // namespace shardline
