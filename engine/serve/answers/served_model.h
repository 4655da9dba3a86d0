// The model as seen by the code that answers requests.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/data/examples/example_set.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/generate/generator.h"
#include "engine/generate/stop_texts.h"
#include "engine/generate/token_rules.h"
#include "models/families/head_choice.h"

namespace shardline {

// What the model predicts for one example: a row for the example, for each of its tokens, or for each of its labels,
// depending on its head.
struct Logits {
  int64_t width = 0;
  std::vector<double> values;  // [rows, width]

  int64_t rows() const { return width == 0 ? 0 : std::ssize(values) / width; }
  std::span<const double> row(int64_t i) const { return std::span(values).subspan(i * width, width); }
};

// A prompt and how to continue it.
struct Continuation {
  std::vector<int64_t> prompt;  // not empty
  int64_t most_new = 0;         // tokens, at least 1; they and the prompt fit into the model's positions
  Sampling sampling;
  int64_t sequence = 0;       // keys the random numbers
  std::vector<int32_t> ends;  // tokens after which it ends
  TokenRules rules = {};
  std::shared_ptr<const StopTexts> stops = nullptr;  // texts after which it ends; null: none
};

struct ModelFacts {
  HeadChoice head;
  TokenizerPtr tokenizer;
  int64_t vocab_size = 0;
  int64_t most_tokens = 0;                                         // per example
  int64_t tokenizer_tokens = std::numeric_limits<int64_t>::max();  // model_max_length, to which truncation cuts
  bool is_regression = false;  // a classification whose outputs are numbers, according to its config
  std::vector<int32_t> ends;   // tokens that end a text

  int64_t cut_tokens() const { return std::min(most_tokens, tokenizer_tokens); }
};

class ServedModel {
 public:
  explicit ServedModel(ModelFacts facts) : facts_(std::move(facts)) {}
  virtual ~ServedModel() = default;
  const ModelFacts& facts() const { return facts_; }

  // Both wait for the model, which computes examples of several requests at a time, and return results in the order of
  // their arguments. Examples have labels only if the head predicts words. Throw HttpError if the time of the request
  // is over.
  virtual std::vector<Logits> logits(std::vector<Example> examples) const = 0;
  virtual std::vector<std::vector<int32_t>> continued(std::vector<Continuation> prompts) const = 0;
  // Code that computes for a long time outside the model calls this from time to time. Throws HttpError if the request
  // has run out of time.
  virtual void require_time() const {}

 private:
  ModelFacts facts_;
};

}  // namespace shardline
