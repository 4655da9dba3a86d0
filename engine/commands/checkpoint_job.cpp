#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/contents.h"
#include "engine/checkpoint/manifest.h"
#include "engine/commands/job.h"
#include "engine/observe/format.h"
#include "models/files/hf_layout.h"
#include "models/files/safetensors_files.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// A checkpoint, or the newest one of a directory of checkpoints.
std::string checkpoint_at(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(fs::path(path) / kManifestFile, ignored)) return path;
  const auto places = checkpoints_in(path);
  if (places.empty())
    throw ConfigError(cat(path,
                          " is neither a checkpoint nor a directory with checkpoints; name OUTPUT_DIR or "
                          "OUTPUT_DIR/checkpoint-STEP"));
  return places.front().path.string();
}

std::string tensors_text(const std::string& checkpoint, const char* stem) {
  int64_t tensors = 0, bytes = 0;
  const auto files = open_safetensors(checkpoint, stem);
  for (const auto& [name, file] : files) {
    tensors += std::ssize(file.tensors());
    bytes += file.size();
  }
  return files.empty() ? "none" : cat(tensors, " tensors in ", files.size(), " file(s), ", format_bytes(bytes));
}

}  // namespace

std::string checkpoint_text(const std::string& path) {
  const std::string checkpoint = checkpoint_at(path);
  const Manifest manifest = read_manifest(checkpoint);
  const TrainerState state = read_trainer_state(checkpoint);
  const std::string config_file = file_in(checkpoint, kConfigFile);
  const auto config = read_data_json(config_file);
  std::vector<TableRow> rows = {
      {"checkpoint", checkpoint},
      {"step", cat(state.step, " of ", state.total_steps, ", epoch ", state.epoch)},
      {"trained on", cat(state.samples, " samples, ", state.tokens, " tokens")},
      {"model",
       cat(JsonValue(config, config_file).text("model_type", "?"), ", ", tensors_text(checkpoint, kModelStem))},
      {"optimizer", cat(JsonValue(state.curve, file_in(checkpoint, kTrainerStateFile)).text("/training/optim", "?"),
                        ", ", tensors_text(checkpoint, kOptimizerStem), ", ", state.updates, " updates")}};
  if (state.loss_scaler) rows.push_back({"loss scale", cat(state.loss_scaler->scale)});
  if (state.best) rows.push_back({"best metric", cat(state.best->metric, " after step ", state.best->step)});
  int64_t bytes = 0;
  for (const auto& [name, pieces] : manifest.files) bytes += pieces.back().end;
  rows.push_back({"files", cat(manifest.files.size(), ", ", format_bytes(bytes))});
  return table({}, rows);
}

std::string verified_text(const std::string& path) {
  const std::string checkpoint = checkpoint_at(path);
  std::string lines;
  for (const auto& line : verify_checkpoint(checkpoint, *make_local_world())) lines += "\n  " + line;
  if (!lines.empty()) throw DataError(cat(checkpoint, " is damaged:", lines));
  return checkpoint + " is intact: every byte has its checksum\n";
}

}  // namespace shardline
