#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/comm/communicator_base.h"
#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "core/files/json_data.h"
#include "core/plain_text.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_union.h"
#include "engine/checkpoint/contents.h"
#include "engine/commands/job.h"
#include "engine/observe/format.h"
#include "models/files/hf_layout.h"
#include "models/files/tensor_files.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// A checkpoint or a part of one; or the newest checkpoint of a directory of checkpoints, with all of its parts.
std::vector<std::string> checkpoints_at(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(fs::path(path) / kManifestFile, ignored)) return {path};
  const auto places = checkpoints_in(path);
  if (places.empty())
    throw ConfigError(cat(path,
                          " is neither a checkpoint nor a directory with checkpoints; name a checkpoint, or the "
                          "output_dir or checkpoint_dir of a run that has saved one"));
  std::vector<std::string> newest;
  for (const auto& place : places)
    if (place.step == places.front().step) newest.push_back(place.path.string());
  return newest;
}

// "part 1 of 2, from host alpha; the others are from beta".
std::string part_text(const ManifestPart& part) {
  std::string others;
  for (int number = 1; number <= part.part.count; ++number)
    if (number != part.part.number) others += cat(others.empty() ? "" : ", ", part.hosts[number - 1]);
  return cat("part ", part.part.number, " of ", part.part.count, ", from host ", part.hosts[part.part.number - 1],
             "; the others are from ", others);
}

// Throws DataError unless the manifest of a part belongs to the same checkpoint as `first`.
void require_same_checkpoint(const std::string& path, const Manifest& manifest, const std::string& first_path,
                             const Manifest& first) {
  if (manifest.step != first.step)
    throw DataError(cat(path, " is a part of step ", manifest.step, ", but ", first_path, " of step ", first.step,
                        "; name parts of one checkpoint"));
  for (const auto& [name, pieces] : first.files)
    if (const auto other = manifest.files.find(name); other == manifest.files.end() || other->second != pieces)
      throw DataError(cat(path, " and ", first_path, " are from different runs, because their files ", name,
                          " differ; name parts of one checkpoint"));
  if (whole_manifest(manifest) != whole_manifest(first))
    throw DataError(cat(path, " and ", first_path,
                        " are from different runs, because they list different files; name parts of one checkpoint"));
}

Stores this_host() {
  return {.all = {{.ranks = {0}, .host = host_name()}}};
}

std::string tensors_text(const std::string& checkpoint, const char* stem) {
  int64_t tensors = 0, bytes = 0;
  const auto files = open_safetensors(checkpoint, stem);
  for (const auto& [name, file] : files) {
    tensors += std::ssize(file.tensors());
    bytes += file.size();
  }
  return files.empty() ? "none"
                       : cat(tensors, " tensors in ", files.size(), files.size() == 1 ? " file, " : " files, ",
                             format_bytes(bytes));
}

std::string inspected_text(const std::string& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  const bool in_part = manifest.part.has_value();
  const TrainerState state = read_trainer_state(checkpoint);
  const std::string config_file = file_in(checkpoint, stored_name(kConfigFile, in_part));
  const auto config = read_data_json(config_file);
  const auto tensors = [&](const char* stem) { return in_part ? "" : ", " + tensors_text(checkpoint, stem); };
  std::vector<TableRow> rows = {
      {"checkpoint", checkpoint},
      {"step", cat(state.step, " of ", state.total_steps, ", epoch ", state.epoch)},
      {"trained on", cat(state.samples, " samples, ", state.tokens, " tokens")},
      {"model", JsonValue(config, config_file).text("model_type", "?") + tensors(kModelStem)},
      {"optimizer", cat(JsonValue(state.curve, file_in(checkpoint, kTrainerStateFile)).text("/training/optim", "?"),
                        tensors(kOptimizerStem), ", ", state.updates, " updates")}};
  if (in_part) rows.insert(rows.begin() + 1, {"part", part_text(*manifest.part)});
  if (state.loss_scaler) rows.push_back({"loss scale", cat(state.loss_scaler->scale)});
  if (state.best) rows.push_back({"best metric", cat(state.best->metric, " after step ", state.best->step)});
  int64_t bytes = 0;
  for (const auto& [name, pieces] : manifest.files) bytes += pieces.back().end;
  rows.push_back({in_part ? "files of all parts" : "files", cat(manifest.files.size(), ", ", format_bytes(bytes))});
  for (auto row = rows.begin() + 1; row != rows.end(); ++row) row->back() = plain_text(row->back());
  return table({}, rows);
}

std::string merged(const std::vector<std::string>& parts, const std::string& output, const fs::path& path) {
  const Manifest first = read_manifest(parts.front());
  for (const auto& part : parts) require_same_checkpoint(part, read_manifest(part), parts.front(), first);
  const Stores stores = this_host();
  const auto world = make_local_world();
  CheckpointUnion checkpoint(path.string(), parts, stores, *world);
  std::string lines;
  for (const auto& gap : checkpoint.gaps()) lines += "\n  " + gap;
  if (!lines.empty()) throw DataError(cat("these parts do not make a complete checkpoint:", lines));
  checkpoint.complete();
  return cat(output, " is a complete checkpoint of step ", first.step, ", made of ", parts.size(),
             parts.size() == 1 ? " directory\n" : " directories\n");
}

}  // namespace

std::string checkpoint_text(const std::string& path) {
  const std::string checkpoint = checkpoints_at(path).front();
  return with_plain_errors([&] { return inspected_text(checkpoint); });
}

std::string verified_text(const std::string& path) {
  std::string text, damage;
  for (const auto& checkpoint : checkpoints_at(path)) {
    std::string lines;
    try {
      const Manifest manifest = read_manifest(checkpoint);
      for (const auto& line : find_damage(checkpoint, manifest)) lines += "\n  " + plain_text(line);
      std::string added;
      for (const auto& name : added_files(checkpoint, manifest)) added += cat(added.empty() ? "" : ", ", name);
      text += cat(checkpoint, " is intact: all checksums match",
                  plain_text(cat(manifest.part ? cat(" (", part_text(*manifest.part), ")") : "",
                                 added.empty() ? "" : cat("; not part of the checkpoint: ", added))),
                  "\n");
    } catch (const NewerManifest&) {
      throw;
    } catch (const std::exception& error) {
      lines += cat("\n  ", plain_text(error.what(), '\n'));
    }
    if (!lines.empty()) damage += cat(damage.empty() ? "" : "\n", checkpoint, " is damaged:", lines);
  }
  if (!damage.empty()) throw DataError(damage);
  return text;
}

std::string merge_checkpoint(const std::vector<std::string>& parts, const std::string& output) {
  std::error_code ignored;
  fs::path path = fs::absolute(output).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (fs::exists(fs::symlink_status(path, ignored)))
    throw ConfigError(cat("--output: ", output, " already exists; name a directory that does not exist"));
  return with_plain_errors([&] { return merged(parts, output, path); });
}

}  // namespace shardline
