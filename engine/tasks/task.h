// What a task with labels makes of rows of data, and of what a model predicts for them.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/data/dataset/example_source.h"
#include "engine/data/examples/prepare_examples.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "models/families/head_choice.h"

namespace shardline {

// Names without "eval_", with their values.
using MetricValues = std::vector<std::pair<std::string, double>>;

// What a model predicts for a range of examples.
struct Predicted {
  const ExampleRange& data;
  at::Tensor logits;            // double [examples or their tokens, outputs], in the order of the examples (see Layer)
  std::vector<DataFile> files;  // that the examples are made of
};

class LabelledTask {
 public:
  virtual ~LabelledTask() = default;

  virtual ExampleShape shape() const = 0;
  // Throws DataError for a row without the columns or with a label that the model does not have. labelled: false if the
  // labels are not read, because there may be none. Called by several threads at the same time.
  virtual RowExamples encode(const DataRow& row, bool labelled) const = 0;
  // Everything besides the data that the examples depend on.
  virtual std::string settings() const = 0;
  virtual MetricValues metrics(const Predicted& predicted) const = 0;
  // Calls use(object) for each row of the data, in order, with what the model predicts for it.
  using UsePrediction = std::function<void(const nlohmann::json& prediction)>;
  virtual void predictions(const Predicted& predicted, const UsePrediction& use) const = 0;
};

// Null for causal-lm, whose samples are blocks of tokens. head: of the model, nothing of which is left open.
std::unique_ptr<LabelledTask> make_task(const Config& config, const HeadChoice& head, const TokenizerPtr& tokenizer);

}  // namespace shardline
