#include "engine/checkpoint/trainer_state.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/files/json_data.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr const char *kCallbacks = "stateful_callbacks", *kOwn = "shardline";

// Arithmetic with numbers up to these limits does not overflow.
constexpr double kMostSteps = 1LL << 40, kMostEpochs = 1LL << 31, kMostSamples = 1LL << 53;

JsonValue member(const JsonValue& object, const char* key) {
  if (!object.has(key)) object.fail(cat("must have \"", key, '"'), "use another checkpoint");
  return object.at(key);
}

int64_t count_at(const JsonValue& object, const char* key, double least = 0, double most = kMostSteps) {
  return member(object, key).require(json_integer(least, most)).get<int64_t>();
}

double number_at(const JsonValue& object, const char* key, double least = -INFINITY, double most = INFINITY) {
  return member(object, key).require(json_number(least, most)).get<double>();
}

json scaler_json(const std::optional<LossScaler::State>& state) {
  if (!state) return nullptr;
  return {{"scale", state->scale},
          {"step", state->step},
          {"last_overflow", state->last_overflow},
          {"hysteresis", state->hysteresis},
          {"skipped", state->skipped}};
}

LossScaler::State scaler_from(const JsonValue& object) {
  object.require(json_object());
  return {.scale = number_at(object, "scale", std::numeric_limits<double>::min()),
          .step = count_at(object, "step"),
          .last_overflow = count_at(object, "last_overflow", -1),
          .hysteresis = count_at(object, "hysteresis", 1),
          .skipped = count_at(object, "skipped")};
}

json plateau_json(const std::optional<PlateauRate::State>& state) {
  if (!state) return nullptr;
  return {{"share", state->share},
          {"best", state->best ? json(*state->best) : json(nullptr)},
          {"spent", state->spent},
          {"cooldown", state->cooldown}};
}

PlateauRate::State plateau_from(const JsonValue& object) {
  object.require(json_object());
  PlateauRate::State state{.share = number_at(object, "share", 0, 1),
                           .spent = count_at(object, "spent"),
                           .cooldown = count_at(object, "cooldown")};
  if (object.has("best")) state.best = number_at(object, "best");
  return state;
}

json patience_json(const std::optional<Patience>& patience) {
  if (!patience) return nullptr;
  return {{"best", patience->best ? json(*patience->best) : json(nullptr)}, {"spent", patience->spent}};
}

Patience patience_from(const JsonValue& object) {
  object.require(json_object());
  Patience patience{.spent = count_at(object, "spent")};
  if (object.has("best")) patience.best = number_at(object, "best");
  return patience;
}

}  // namespace

std::string trainer_state_text(const TrainerState& state) {
  const auto& best = state.best;
  json text = {{"best_global_step", best ? json(best->step) : json(nullptr)},
               {"best_metric", best ? json(best->metric) : json(nullptr)},
               {"best_model_checkpoint", best && !best->checkpoint.empty() ? json(best->checkpoint) : json(nullptr)},
               {"epoch", state.epoch},
               {"eval_steps", state.eval_steps},
               {"global_step", state.step},
               {"is_hyper_param_search", false},
               {"is_local_process_zero", true},
               {"is_world_process_zero", true},
               {"log_history", state.log_history},
               {"logging_steps", state.logging_steps},
               {"max_steps", state.total_steps},
               {"num_input_tokens_seen", state.tokens},
               {"num_train_epochs", state.num_train_epochs},
               {"save_steps", state.save_steps},
               {"total_flos", 0},
               {"train_batch_size", state.train_batch_size},
               {"trial_name", nullptr},
               {"trial_params", nullptr},
               {kCallbacks,
                {{kOwn,
                  {{"samples", state.samples},
                   {"updates", state.updates},
                   {"loss_scaler", scaler_json(state.loss_scaler)},
                   {"plateau_rate", plateau_json(state.plateau_rate)},
                   {"logged_loss", std::isfinite(state.logged_loss) ? json(state.logged_loss) : json(nullptr)},
                   {"logged_steps", state.logged_steps},
                   {"best_of", state.best_of},
                   {"patience", patience_json(state.patience)},
                   {"curve", state.curve}}}}}};
  return text.dump(2) + "\n";
}

TrainerState parse_trainer_state(const std::string& text, const std::string& path) {
  const json parsed = parse_data_json(text, path);
  const JsonValue root(parsed, path);
  const JsonValue callbacks = member(root, kCallbacks);
  callbacks.require(json_object());
  if (!callbacks.has(kOwn))
    callbacks.fail("has no state saved by shardline", "resume from a checkpoint that shardline has saved");
  const JsonValue own = callbacks.at(kOwn);
  own.require(json_object());
  TrainerState state;
  state.total_steps = count_at(root, "max_steps");
  state.step = count_at(root, "global_step", 0, state.total_steps);
  state.epoch = number_at(root, "epoch", 0, kMostEpochs);
  state.tokens = count_at(root, "num_input_tokens_seen", 0, kMostSamples);
  state.samples = count_at(own, "samples", 0, kMostSamples);
  state.updates = count_at(own, "updates", 0, state.step);
  state.logged_steps = count_at(own, "logged_steps", 0, state.step);
  state.logged_loss = own.has("logged_loss") ? number_at(own, "logged_loss") : NAN;
  if (own.has("loss_scaler")) state.loss_scaler = scaler_from(own.at("loss_scaler"));
  if (own.has("plateau_rate")) state.plateau_rate = plateau_from(own.at("plateau_rate"));
  if (own.has("patience")) state.patience = patience_from(own.at("patience"));
  if (own.has("best_of")) state.best_of = own.at("best_of").require(json_object());
  if (own.has("curve")) state.curve = own.at("curve").require(json_object());
  if (root.has("num_train_epochs")) state.num_train_epochs = number_at(root, "num_train_epochs");
  if (root.has("log_history")) state.log_history = root.at("log_history").require(json_array());
  if (root.has("best_metric"))
    state.best = {number_at(root, "best_metric"), count_at(root, "best_global_step", 0, state.step),
                  root.text("best_model_checkpoint", "")};
  return state;
}

}  // namespace shardline
