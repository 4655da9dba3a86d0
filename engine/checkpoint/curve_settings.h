// The settings and the data that determine a run's loss curve, whatever its layout. A checkpoint contains them, so that
// a run with other settings cannot continue from it unnoticed.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "engine/config/keys/options.h"
#include "models/program/pt2_archive.h"

namespace shardline {

struct CurveFacts {
  int64_t global_batch = 0;    // samples of a step
  int64_t loader_batches = 1;  // batches of the data loader in a global batch; matters if a short one is dropped
  int64_t total_steps = 0;
  std::string data;                                      // digest of the training tokens
  nlohmann::json model_config;                           // contents of config.json
  std::string program = {};                              // graph_digest, if the model is a program
  nlohmann::json comparison = nlohmann::json::object();  // comparison_settings, which a learning rate may depend on
};

// The key of CurveFacts::global_batch in curve_settings.
inline constexpr const char* kGlobalBatchSetting = "/training/global_batch_size";

// A digest of what a program computes: its calls with their arguments, its inputs and outputs, and the values of
// buffers and constants. It is independent of the values of parameters, of the names of values and of where the archive
// is.
std::string graph_digest(const Pt2Archive& archive);

// Returns the values by the paths of their keys: {"/training/learning_rate": 5e-05, ...}.
nlohmann::json curve_settings(const Config& config, const CurveFacts& facts);

// Returns a line for each difference: "/training/learning_rate: 5e-05 in the checkpoint, 0.0001 now". Each key of the
// model's config has a line of its own. Empty if there is no difference.
std::string curve_differences(const nlohmann::json& of_checkpoint, const nlohmann::json& now);

// Whether the run has a smaller global batch than the checkpoint, and all other differences follow from that.
// steps_follow: the total number of steps also follows from it, because the run's length is given in epochs.
bool has_only_smaller_batch(const nlohmann::json& of_checkpoint, const nlohmann::json& now, bool steps_follow);

}  // namespace shardline
