// The predictions of a run that are farthest from its data's labels.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/report/run_history.h"

namespace shardline {

struct JudgedPrediction {
  std::int64_t row = 0;  // counted from 1
  // How bad it is: a wrong label or answer counts 1 + its score, a right one 1 - its score; a number counts its error;
  // lists count their wrong elements.
  double badness = 0;
  bool is_wrong = false;
  std::string text, expected, predicted, score;
};
// Unset if the row has no label. names: label names by id.
std::optional<JudgedPrediction> judged(const nlohmann::json& prediction, const nlohmann::json& row,
                                       const Config& config, const std::vector<std::string>& names);

struct PredictionReport {
  std::int64_t count = 0, wrong = 0;
  std::vector<JudgedPrediction> worst;  // the worst first
};
// Compares predictions.jsonl with the rows of data.test, or else data.validation. Unset if there are no predictions;
// also unset, with a note, if the rows cannot be read or if the predictions were made for other files according to
// their record.
std::optional<PredictionReport> read_predictions(RunHistory& run);

}  // namespace shardline
