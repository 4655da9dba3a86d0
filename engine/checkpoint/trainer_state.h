// trainer_state.json of a checkpoint: the progress of a run. The keys are those of transformers' TrainerState; what
// only shardline needs is under "stateful_callbacks", where programs keep their own state.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "optim/update/loss_scaler.h"
#include "optim/update/plateau_rate.h"

namespace shardline {

inline constexpr const char* kTrainerStateFile = "trainer_state.json";

// The best evaluation according to metric_for_best_model.
struct BestEvaluation {
  double metric = 0;
  int64_t step = 0;
  std::string checkpoint;  // its directory; empty: none was saved at this step
  bool operator==(const BestEvaluation&) const = default;
};

// The state of early stopping after the evaluations so far.
struct Patience {
  std::optional<double> best;  // their best metric; unset: no metric was a number
  int64_t spent = 0;           // number of evaluations since the last one that improved the metric
  bool operator==(const Patience&) const = default;
};

struct TrainerState {
  int64_t step = 0, total_steps = 0;  // optimizer steps
  double epoch = 0;
  int64_t samples = 0, tokens = 0;  // trained on so far, over all epochs
  int64_t updates = 0;              // steps that did not overflow
  std::optional<LossScaler::State> loss_scaler;
  std::optional<PlateauRate::State> plateau_rate;
  std::optional<BestEvaluation> best;
  nlohmann::json best_of =
      nlohmann::json::object();  // what `best` and `patience` compare: metric, direction, data; empty if unknown
  std::optional<Patience> patience;
  nlohmann::json log_history = nlohmann::json::array();  // entries as transformers' Trainer makes them
  // The sum and the number of the losses since the last entry with a loss.
  double logged_loss = 0;
  int64_t logged_steps = 0;
  nlohmann::json curve = nlohmann::json::object();  // see curve_settings.h
  // The config's values of keys that transformers repeats here.
  int64_t logging_steps = 0, eval_steps = 0, save_steps = 0, train_batch_size = 0;
  double num_train_epochs = 0;
};

std::string trainer_state_text(const TrainerState& state);
// Throws DataError. `path` is for messages.
TrainerState parse_trainer_state(const std::string& text, const std::string& path);

}  // namespace shardline
