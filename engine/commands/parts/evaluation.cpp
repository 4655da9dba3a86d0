#include "engine/commands/parts/evaluation.h"

#include <ATen/ops/cat.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <ostream>

#include "core/comm/communicator.h"
#include "core/files/disk_file.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/generate/target_generator.h"
#include "engine/run/output_dir.h"
#include "engine/tasks/task_files.h"

namespace shardline {
namespace {

// The first rank's values, on every rank.
MetricValues of_first_rank(Communicator& world, MetricValues values) {
  nlohmann::json sent = nlohmann::json::array();
  // As bits, because JSON has neither NaN nor infinity.
  for (const auto& [name, value] : values) sent.push_back({name, std::bit_cast<uint64_t>(value)});
  const auto received = nlohmann::json::parse(broadcast_string(world, sent.dump(), 0));
  values.clear();
  for (const auto& entry : received)
    values.emplace_back(entry[0].get<std::string>(), std::bit_cast<double>(entry[1].get<uint64_t>()));
  return values;
}

// Loss and metrics of the examples of a task, which `source` reads.
LossTerm evaluate_examples(RankTrainer& trainer, const JobData& data, const EvaluatedExamples& evaluated,
                           EpochSource& source, Communicator& world, MetricValues& values) {
  const LabelledTask& task = *data.task;
  std::vector<at::Tensor> logits;
  const bool first = world.rank() == 0;
  RankTrainer::UseLogits use;
  if (task.uses_predictions())
    use = [&](const at::Tensor& more) {
      if (first && more.size(0) > 0) logits.push_back(more);
    };
  const LossTerm loss = trainer.evaluate(source, source.steps_per_epoch(), use);
  if (loss.weight == 0) throw DataError("evaluation: the samples have no labels");
  const double mean = loss.sum / loss.weight;
  values.emplace_back("eval_loss" + evaluated.suffix, mean);
  MetricValues metrics;
  std::vector<std::vector<int32_t>> targets;
  if (const auto rule = task.targets())
    targets = generate_targets(trainer, trainer.spec(), sources_of(evaluated.examples), *rule, {.temperature = 0},
                               trainer.evaluated_together(), columns_of(evaluated.examples));
  const at::Tensor all = logits.empty() ? at::Tensor() : at::cat(logits);
  if (first) metrics = all_metrics(data.task_name, task, {evaluated.examples, all, evaluated.files, mean, targets});
  for (const auto& [name, value] : of_first_rank(world, metrics))
    values.emplace_back(cat("eval_", name, evaluated.suffix), value);
  return loss;
}

}  // namespace

Evaluation evaluate(RankTrainer& trainer, const JobData& data, Communicator& world, int64_t step, double epoch) {
  Evaluation evaluation{.metrics = {.step = step, .epoch = epoch}};
  auto& values = evaluation.metrics.values;
  if (!data.task) {
    evaluation.loss = trainer.evaluate(*data.validation, data.validation->steps_per_epoch());
    const double mean = evaluation.loss.sum / evaluation.loss.weight;
    values = {{"eval_loss", mean}, {"eval_perplexity", std::exp(mean)}};
    return evaluation;
  }
  for (const EvaluatedExamples& evaluated : data.evaluated) {
    const bool is_other = &evaluated != &data.evaluated.front();
    const LossTerm loss =
        evaluate_examples(trainer, data, evaluated, is_other ? *data.mismatched : *data.validation, world, values);
    if (!is_other) evaluation.loss = loss;
  }
  return evaluation;
}

namespace {

// The file that records which data the predictions were made for. Only reports use it, and they look only for
// predictions.jsonl, so the path is empty for predictions in any other file.
std::filesystem::path record_of(const std::filesystem::path& predictions) {
  if (predictions.filename() != "predictions.jsonl") return "";
  return predictions.parent_path() / kPredictedDataFile;
}

void write_record(const std::vector<DataFile>& files, const std::filesystem::path& path) {
  nlohmann::json names = nlohmann::json::array();
  for (const DataFile& file : files) names.push_back(file.shown_name());
  const nlohmann::json record = {{"files", names}, {"digest", digest_of_contents(files)}};
  write_file(path.string(), record.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

}  // namespace

void write_predictions(RankTrainer& trainer, const PredictedData& data, const std::string& file, RankContext& context) {
  std::vector<at::Tensor> logits;
  trainer.evaluate(*data.source, data.source->steps_per_epoch(), [&](const at::Tensor& more) {
    if (context.first()) logits.push_back(more);
  });
  if (!context.first()) return;
  std::string lines;
  int64_t rows = 0;
  data.task->predictions({data.examples, at::cat(logits), data.files}, [&](const nlohmann::json& prediction) {
    lines += prediction.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
    ++rows;
  });
  std::error_code ignored;
  const bool replaces = std::filesystem::exists(file, ignored);
  const std::filesystem::path record = record_of(file);
  if (!record.empty()) std::filesystem::remove(record, ignored);  // it belongs to earlier predictions
  write_file(file, lines);
  if (!record.empty()) write_record(data.files, record);
  if (context.out)
    *context.out << "wrote " << rows << (rows == 1 ? " prediction to " : " predictions to ") << file
                 << (replaces ? ", in place of an earlier file" : "") << std::endl;
}

}  // namespace shardline
