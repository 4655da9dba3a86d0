#include <algorithm>
#include <cctype>
#include <numeric>

#include "core/error.h"
#include "engine/serve/answers/answers.h"
#include "engine/serve/answers/request_text.h"
#include "engine/tasks/predicted_scores.h"

namespace shardline {
namespace {

using nlohmann::json;

// As in transformers, a model with one output uses a sigmoid unless its config makes it a regression.
ScoreFunction usual(const ModelFacts& facts) {
  return facts.head.labels == 1 && !facts.is_regression ? ScoreFunction::sigmoid
                                                        : score_function_of(*facts.head.problem);
}

ScoreFunction applied(const JsonValue& parameters, const ModelFacts& facts) {
  if (!parameters.has("function_to_apply")) return usual(facts);
  const JsonValue given = parameters.at("function_to_apply");
  std::string name = given.text();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "softmax") return ScoreFunction::softmax;
  if (name == "sigmoid") return ScoreFunction::sigmoid;
  if (name == "none") return ScoreFunction::none;
  if (name == "default") return usual(facts);
  given.fail("must be \"softmax\", \"sigmoid\", \"none\" or \"default\"");
}

// Which labels an answer contains: the one with the highest score, or a list.
struct Wanted {
  bool is_list = false, is_sorted = true;
  size_t most = 1;
};

Wanted wanted_in(const JsonValue& parameters, size_t labels) {
  if (parameters.json().contains("top_k"))  // null: all labels
    return {.is_list = true, .most = size_t(integer_in(parameters, "top_k", 1).value_or(labels))};
  // As in transformers 4: all labels in the order of the model.
  if (parameters.flag("return_all_scores", false)) return {.is_list = true, .is_sorted = false, .most = labels};
  return {};
}

json labels_of(const std::vector<double>& scores, const HeadChoice& head, const Wanted& wanted) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t(0));
  if (wanted.is_sorted) std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  json labels = json::array();
  for (size_t i = 0; i < std::min(wanted.most, order.size()); ++i)
    labels.push_back({{"label", head.names.at(order[i])}, {"score", scores[order[i]]}});
  return labels;
}

Encoding read_input(const JsonValue& input, const ModelFacts& facts, const CutOptions& cut) {
  if (input.json().is_string()) return read_text(input, input.text(), nullptr, facts, cut);
  if (!input.json().is_object()) input.fail("must be a string or {\"text\": ..., \"text_pair\": ...}");
  input.require_keys_among({"text", "text_pair"});
  const std::string text = input.at("text").text();
  if (!input.has("text_pair")) return read_text(input, text, nullptr, facts, cut);
  const std::string pair = input.at("text_pair").text();
  return read_text(input, text, &pair, facts, cut);
}

}  // namespace

json classified_texts(const Invocation& request, const ServedModel& model) {
  const ModelFacts& facts = model.facts();
  const JsonValue parameters = request.parameters();
  require_parameters_among(parameters, {"top_k", "return_all_scores", "function_to_apply", "truncation", "max_length"});
  const ScoreFunction function = applied(parameters, facts);
  const Wanted wanted = wanted_in(parameters, facts.head.labels);
  const CutOptions cut = cut_options(parameters, facts);
  std::vector<Example> examples;
  for (const JsonValue& input : request.each()) {
    model.require_time();
    examples.push_back(example_of(read_input(input, facts, cut)));
  }
  json answers = json::array();
  for (const Logits& logits : model.logits(std::move(examples))) {
    const json labels = labels_of(scores_of(logits.row(0), function), facts.head, wanted);
    answers.push_back(wanted.is_list ? labels : labels.front());
  }
  if (request.is_list()) return answers;
  // Like the pipeline: without top_k, a list of one answer for a text, but not for a pair.
  return parameters.json().contains("top_k") || request.inputs().json().is_object() ? answers.front() : answers;
}

}  // namespace shardline
