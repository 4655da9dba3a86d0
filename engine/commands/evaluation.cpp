#include "engine/commands/evaluation.h"

#include <ATen/ops/cat.h>

#include <cmath>

#include "core/comm/communicator.h"
#include "engine/commands/job_parts.h"

namespace shardline {
namespace {

// The first rank's values, on every rank.
MetricValues of_first_rank(Communicator& world, MetricValues values) {
  nlohmann::json sent = values;
  // JSON has no NaN.
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i].second)) sent[i][1] = nullptr;
  const auto received = nlohmann::json::parse(broadcast_string(world, sent.dump(), 0));
  values.clear();
  for (const auto& entry : received)
    values.emplace_back(entry[0].get<std::string>(), entry[1].is_null() ? std::nan("") : entry[1].get<double>());
  return values;
}

}  // namespace

Evaluation evaluate(Trainer& trainer, const JobData& data, Communicator& world, int64_t step, double epoch) {
  Evaluation evaluation{.metrics = {.step = step, .epoch = epoch}};
  auto& values = evaluation.metrics.values;
  const int64_t steps = data.validation->steps_per_epoch();
  if (!data.task) {
    evaluation.loss = trainer.evaluate(*data.validation, steps);
    const double mean = evaluation.loss.sum / evaluation.loss.weight;
    values = {{"eval_loss", mean}, {"eval_perplexity", std::exp(mean)}};
    return evaluation;
  }
  std::vector<at::Tensor> logits;
  const bool first = world.rank() == 0;
  evaluation.loss = trainer.evaluate(*data.validation, steps, [&](const at::Tensor& more) {
    if (first && more.size(0) > 0) logits.push_back(more);
  });
  if (evaluation.loss.weight == 0) throw DataError("evaluation: the samples have no label");
  const double mean = evaluation.loss.sum / evaluation.loss.weight;
  values = {{"eval_loss", mean}};
  MetricValues metrics;
  if (first) metrics = data.task->metrics({*data.validation_examples, at::cat(logits), data.validation_files, mean});
  for (const auto& [name, value] : of_first_rank(world, metrics)) values.emplace_back("eval_" + name, value);
  return evaluation;
}

}  // namespace shardline
