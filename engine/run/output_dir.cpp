#include "engine/run/output_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <ostream>
#include <ranges>
#include <vector>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/contents.h"
#include "engine/config/config.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/observe/doctor/job_records.h"
#include "engine/observe/format.h"
#include "engine/observe/metrics_log.h"
#include "engine/observe/tensorboard.h"
#include "engine/run/flight_files.h"
#include "models/files/hf_directory.h"
#include "models/files/hf_writer.h"
#include "pipeline/schedule/kinds/schedule_choice.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr const char *kOutputKey = "/output_dir", *kCheckpointsKey = "/training/checkpoint_dir";
constexpr const char* kHasCheckpoints =
    " already has checkpoints; choose another one, continue from them with training.resume_from_checkpoint, or set "
    "training.overwrite_output_dir to true";
constexpr const char* kHasRun =
    " is not empty, and the run there has saved checkpoints; continue it with training.resume_from_checkpoint true, "
    "choose another directory, or set training.overwrite_output_dir to true";
constexpr const char *kPreviousModel = "previous-model", *kMovingModel = "previous-model.moving";
constexpr const char* kOneCheckpoint = "a checkpoint";
constexpr const char* kStopFile = "stop";
constexpr const char* kTensorBoardFile = "events.out.tfevents.";  // what their names begin with

// Whether the file was still being written. Most such files belong to a model, whose files are made before the first
// step.
bool is_unfinished(const fs::path& file) {
  return file.extension() == ".incomplete";
}

// Whether the folder has records of a job's ranks, from which the job's end is diagnosed; see flight_files.h.
bool is_flight_folder(const fs::path& name) {
  return name == kFlightFolder || name == kPreviousFlightFolder;
}

// Compares files, not names: links, "..", a trailing slash and relative paths make no difference.
bool is_at_or_below(const fs::path& path, const fs::path& place) {
  std::error_code ignored;
  for (fs::path folder = fs::weakly_canonical(path, ignored); !folder.empty(); folder = folder.parent_path()) {
    if (fs::equivalent(folder, place, ignored)) return true;
    if (!folder.has_relative_path()) break;
  }
  return false;
}

// Whether a run that ended before its first step, however it ended, or its profile may have left this entry.
bool tells_of_no_step(const fs::path& entry, std::error_code& error) {
  const auto name = entry.filename().string();
  if (name == "metrics.jsonl" || name == "timeline") return fs::is_empty(entry, error);
  if (name.starts_with(kTensorBoardFile)) return fs::file_size(entry, error) <= tensorboard_version_record(0).size();
  return is_flight_folder(name) || name == ".cache" || name == kProfileFile || name == OutputLock::kFile ||
         name == kAttemptFile || name == kStopFile || name == "config.resolved.json" || name == "plan.json" ||
         name == "schedule.svg" || is_unfinished(entry);
}

// Whether the directory contains only checkpoints; a host that replaces a lost one receives such a directory from
// others.
bool holds_checkpoints_alone(const fs::path& dir, const Config& config);

// Whether this is the directory of checkpoints, or a parent of it, and it contains nothing else.
bool is_for_checkpoints_alone(const fs::path& entry, const Config& config) {
  const fs::path checkpoints = checkpoint_directory(config);
  std::error_code error;
  if (fs::equivalent(entry, checkpoints, error)) return holds_checkpoints_alone(entry, config);
  if (!is_at_or_below(checkpoints, entry)) return false;
  bool alone = true;
  fs::directory_iterator below(entry, error);
  for (; !error && below != fs::directory_iterator(); below.increment(error))
    alone = alone && is_for_checkpoints_alone(below->path(), config);
  return alone && !error;
}

bool holds_nothing(const fs::path& dir, const Config& config, std::error_code& error) {
  bool nothing = true;
  fs::directory_iterator entry(dir, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    nothing = nothing && (tells_of_no_step(entry->path(), error) || is_for_checkpoints_alone(entry->path(), config));
  return nothing;
}

bool holds_checkpoints_alone(const fs::path& dir, const Config& config) {
  std::error_code error;
  fs::directory_iterator entry(dir, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!tells_of_no_step(entry->path(), error) && !step_of_checkpoint(checkpoint_of_part(name).value_or(name)) &&
        name != kNewestFile && name != kAttemptFile && !is_for_checkpoints_alone(entry->path(), config))
      return false;
  }
  return !error;
}

// config.json is first, so that it is moved first: a directory without it is not a model.
std::vector<fs::path> model_files(const fs::path& dir) {
  std::vector<fs::path> files;
  if (fs::exists(dir / "config.json")) files.push_back(dir / "config.json");
  for (const auto& file : companion_files(dir)) files.push_back(file);
  for (const auto& entry : fs::directory_iterator(dir)) {
    const auto name = entry.path().filename().string();
    const bool is_safetensors =
        name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
    const bool is_of_torch =
        name.starts_with("pytorch_model") && (name.ends_with(".bin") || name.ends_with(".bin.index.json"));
    if (is_safetensors || is_of_torch || name == kProgramFile) files.push_back(entry.path());
  }
  return files;
}

// Whether this is a record that stays when a run continues: one to which it appends, or predictions.
bool is_kept_record(const fs::path& name) {
  return is_record(name) && name != "plan.json" && name != "schedule.svg";
}

// Removes the records of steps after the one from which the run continues: they would be there twice.
void keep_records_until(const fs::path& dir, int64_t step) {
  if (fs::exists(dir / "metrics.jsonl")) keep_metrics_until((dir / "metrics.jsonl").string(), step);
  std::vector<std::string> events;
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.path().filename().string().starts_with(kTensorBoardFile)) events.push_back(entry.path().string());
  for (const auto& file : events) keep_events_until(file, step);
}

void remove_entries(const fs::path& dir, const std::function<bool(const fs::path& name)>& wanted) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(dir))
    if (wanted(entry.path().filename())) entries.push_back(entry.path());
  for (const auto& entry : entries) fs::remove_all(entry);
}

// Entries of an earlier run that a new one removes or moves.
std::vector<fs::path> replaced_by_run(const fs::path& dir) {
  std::vector<fs::path> entries = model_files(dir);
  for (const auto& entry : fs::directory_iterator(dir)) {
    const auto name = entry.path().filename();
    if (is_record(name) || is_flight_folder(name) || is_unfinished(name) || name == kPreviousModel ||
        name == kMovingModel)
      entries.push_back(entry.path());
  }
  return entries;
}

// The files that the run reads from `source`: if it is a directory, also the files in it, which may be links.
std::vector<fs::path> files_read_from(const std::string& source) {
  std::vector<fs::path> files = {source};
  std::error_code ignored;
  for (fs::directory_iterator entry(source, ignored), end; entry != end; entry.increment(ignored))
    files.push_back(entry->path());
  return files;
}

// Whether checkpoint_dir is a different directory from output_dir.
bool has_checkpoints_elsewhere(const Config& config) {
  std::error_code ignored;
  const std::string directory = checkpoint_directory(config);
  return directory != config.output_dir && !fs::equivalent(directory, config.output_dir, ignored);
}

const char* key_of_checkpoints(const Config& config) {
  return has_checkpoints_elsewhere(config) ? kCheckpointsKey : kOutputKey;
}

// Checkpoints that a run which does not continue them would replace.
std::vector<fs::path> replaced_checkpoints(const Config& config) {
  if (continues_in_place(config)) return {};
  std::vector<fs::path> paths = strangers_in(checkpoint_directory(config));
  for (const auto& place : checkpoints_in(checkpoint_directory(config))) paths.push_back(place.path);
  return paths;
}

void check_sources(const Config& config, const fs::path& dir) {
  std::vector<std::string> sources = {config.model.path, config.data.tokenizer, config.smp.partition_file};
  if (config.smp.pipeline.is_file()) sources.push_back(config.smp.pipeline.path);
  for (const auto& data : {config.data.train, config.data.validation})
    sources.insert(sources.end(), data.begin(), data.end());
  if (const auto source = resume_source(config); !source.path.empty()) sources.push_back(source.path);
  auto replaced = replaced_by_run(dir);
  for (const auto& path : replaced_checkpoints(config)) replaced.push_back(path);
  for (const auto& source : sources)
    for (const auto& file : files_read_from(source))
      for (const auto& entry : replaced)
        if (is_at_or_below(file, entry))
          throw ConfigError(cat("/output_dir: the run reads ", source, " and would replace ", entry.string(),
                                "; choose another output_dir"));
}

// Checks that the directory can be created, as far as its existing parents show.
void check_new_directory(const fs::path& dir) {
  std::error_code ignored;
  for (fs::path at = fs::absolute(dir); at.has_relative_path(); at = at.parent_path()) {
    const auto status = fs::status(at, ignored);
    if (fs::is_directory(status)) return;
    if (fs::exists(status))
      throw ConfigError(cat("/output_dir: ", dir.string(), " would be inside ", at.string(),
                            ", which is a file; choose another output_dir"));
    if (fs::is_symlink(fs::symlink_status(at, ignored)))
      throw ConfigError(cat("/output_dir: ", at.string(), " is a link to ", fs::read_symlink(at, ignored).string(),
                            ", which does not exist; create that directory, or choose another output_dir"));
  }
}

// Whether the run may find files of its own there: those that it continues, or those of an attempt that ended before
// its first checkpoint.
bool continues(const Config& config, const fs::path& dir) {
  const auto source = resume_source(config);
  if (source.kind == ResumeSource::Kind::fresh) return false;
  if (!fs::exists(dir / "config.resolved.json")) return holds_checkpoints_alone(dir, config);
  const bool has_checkpoints = !checkpoints_in(checkpoint_directory(config)).empty();
  const bool ended_early = !has_checkpoints && !fs::exists(dir / "config.json");
  if (source.kind == ResumeSource::Kind::path) return ended_early || continues_in_place(config);
  // If there are several hosts, others may have the checkpoints.
  return used_hosts(config) > 1 || ended_early || has_checkpoints;
}

// The directory in which the run that used output_dir before saved its checkpoints; unset if that is not known.
std::optional<std::string> earlier_checkpoint_directory(const fs::path& dir) {
  try {
    return checkpoint_directory(read_config((dir / "config.resolved.json").string()));
  } catch (const std::exception&) {  // there is no such file, or its version is different
    return {};
  }
}

// A run that looks for checkpoints in a directory other than the one that has them would start over unnoticed.
void check_earlier_checkpoints(const Config& config, const fs::path& dir) {
  if (resume_source(config).kind != ResumeSource::Kind::newest_or_fresh) return;
  const std::string directory = checkpoint_directory(config);
  const auto earlier = earlier_checkpoint_directory(dir);
  std::error_code ignored;
  if (!earlier || fs::equivalent(*earlier, directory, ignored) || !checkpoints_in(directory).empty() ||
      checkpoints_in(*earlier).empty())
    return;
  throw ConfigError(cat(kCheckpointsKey, ": the run in ", dir.string(), " has saved its checkpoints in ", *earlier,
                        ", but this one looks for them in ", directory, ", which has none; set checkpoint_dir to ",
                        *earlier, ", or choose another output_dir to start from the beginning"));
}

// A checkpoint that was set aside may belong to a different loss curve than the run's records.
void check_source_elsewhere(const Config& config) {
  const auto source = resume_source(config);
  if (source.kind != ResumeSource::Kind::path || !is_at_or_below(source.path, checkpoint_directory(config))) return;
  throw ConfigError(cat("/training/resume_from_checkpoint: ", source.path, " is in ", checkpoint_directory(config),
                        " but is not one of the run's checkpoints there; to continue the run from it, rename it to ",
                        checkpoint_directory(config), "/checkpoint-STEP; to start a new run from it, choose another ",
                        "output_dir"));
}

void check_contents(const Config& config) {
  const fs::path dir = config.output_dir;
  std::error_code error;
  if (config.training.checkpoint_dir && !config.training.overwrite_output_dir &&
      !replaced_checkpoints(config).empty()) {
    check_source_elsewhere(config);
    throw ConfigError(cat("/training/checkpoint_dir: ", *config.training.checkpoint_dir, kHasCheckpoints));
  }
  const auto status = fs::status(dir, error);
  if (!fs::exists(status)) return check_new_directory(dir);
  if (!fs::is_directory(status)) throw ConfigError(cat("/output_dir: ", dir.string(), " is a file; name a directory"));
  const bool is_empty = holds_nothing(dir, config, error);
  if (error) throw RunError(cat("/output_dir: ", dir.string(), " cannot be read: ", error.message()));
  if (!config.training.overwrite_output_dir) check_earlier_checkpoints(config, dir);
  if (!is_empty && !config.training.overwrite_output_dir && !continues(config, dir)) {
    check_source_elsewhere(config);
    throw ConfigError(cat("/output_dir: ", dir.string(),
                          checkpoints_in(checkpoint_directory(config)).empty()
                              ? " is not empty; choose another one, or set "
                                "training.overwrite_output_dir to true"
                              : kHasRun));
  }
  check_sources(config, dir);
}

double allocated_bytes(const fs::path& file) {
  struct stat status = {};
  return ::stat(file.c_str(), &status) == 0 ? 512.0 * status.st_blocks : 0;
}

// The size of unfinished models and checkpoints of a killed run. They are removed before new ones are made.
double bytes_of_unfinished_files(const fs::path& dir) {
  double bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!is_unfinished(entry->path())) continue;
    bytes += allocated_bytes(entry->path());
    std::error_code ignored;
    for (fs::directory_iterator file(entry->path(), ignored), end; !ignored && file != end; file.increment(ignored))
      bytes += allocated_bytes(file->path());
  }
  return bytes;
}

// The number of checkpoints for which a run needs room: those that it keeps and the one that is being saved, less those
// that it already has. Without a limit, their number is unknown, but there must be room for one.
int64_t checkpoints_to_come(const Config& config) {
  const TrainingOptions& training = config.training;
  if (training.save_strategy == SaveStrategy::no) return 0;
  if (!training.save_total_limit) return 1;
  const int64_t kept = std::max<int64_t>(*training.save_total_limit, looks_for_best(training) ? 2 : 1);
  const int64_t there = continues_in_place(config) ? std::ssize(checkpoints_in(checkpoint_directory(config))) : 0;
  return std::max<int64_t>(1, kept + 1 - there);
}

// The disk space that a run needs in a directory.
struct DiskNeed {
  const char* key;
  fs::path directory;
  std::vector<std::string> what = {};
  double bytes = 0;
  std::string host = {};  // set if the message must name it

  void add(const std::string& thing, double size) {
    what.push_back(thing);
    bytes += size;
  }
  void add_checkpoints(int64_t count, double size_of_one) {
    if (count > 0) add(count == 1 ? kOneCheckpoint : cat(count, " checkpoints"), count * size_of_one);
  }
};

// The directory itself, or its closest parent that exists.
fs::path existing_part(const fs::path& directory) {
  std::error_code error;
  fs::path there = fs::absolute(directory);
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  return there;
}

bool on_one_disk(const fs::path& one, const fs::path& other) {
  struct stat a = {}, b = {};
  return ::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev;
}

std::string listed(const std::vector<std::string>& things) {
  std::string text;
  for (size_t i = 0; i < things.size(); ++i)
    text += cat(i == 0 ? "" : i + 1 < things.size() ? ", " : " and ", things[i]);
  return text;
}

void check_room(const DiskNeed& need, double unfinished) {
  const std::string name = fs::path(need.key).filename();
  const fs::path there = existing_part(need.directory);
  if (access(there.c_str(), W_OK | X_OK) != 0)
    throw ConfigError(
        cat(need.key, ": cannot write to ", there.string(), ": ", std::strerror(errno), "; choose another ", name));
  std::error_code error;
  const double available = fs::space(there, error).available + unfinished;
  if (!error && available < need.bytes)
    throw RunError(cat(
        need.key, ": ", listed(need.what), need.what == std::vector<std::string>{kOneCheckpoint} ? " needs " : " need ",
        format_bytes(need.bytes), ", but ", there.string(), need.host.empty() ? "" : " on host " + need.host, " has ",
        format_bytes(available), " left; free some space there or choose another ", name));
}

void check_room(const Config& config, const ModelSpec& spec) {
  DiskNeed output{kOutputKey, config.output_dir}, apart{kCheckpointsKey, checkpoint_directory(config)};
  const HfWriter model(config.output_dir, spec, number_types(config).exact);
  const int64_t count = checkpoints_to_come(config);
  const bool elsewhere = has_checkpoints_elsewhere(config);
  const bool is_apart = elsewhere && !on_one_disk(existing_part(output.directory), existing_part(apart.directory));
  // The last weights are saved before the best ones replace them.
  const bool twice = config.training.load_best_model_at_end;
  std::error_code ignored;
  const double program = config.model.is_program() ? fs::file_size(config.model.path, ignored) : 0;
  output.add(twice ? "the model, twice" : "the model", (twice ? 2 : 1) * (model.total_bytes() + program));
  (is_apart ? apart : output).add_checkpoints(count, checkpoint_bytes(config, spec));
  output.add("the records of the ranks", flight_file_bytes(config));
  const double unfinished = bytes_of_unfinished_files(output.directory);
  const double apart_unfinished = elsewhere ? bytes_of_unfinished_files(apart.directory) : 0;
  check_room(output, unfinished + (is_apart ? 0 : apart_unfinished));
  if (elsewhere) check_room(apart, apart_unfinished);
}

}  // namespace

bool is_record(const fs::path& name) {
  return name == "metrics.jsonl" || name == "plan.json" || name == "timeline" || name == "schedule.svg" ||
         name == "predictions.jsonl" || name == kPredictedDataFile || name.string().starts_with(kTensorBoardFile);
}

void check_output_dir(const Config& config, const ModelSpec& spec) {
  check_not_in_use(config.output_dir, kOutputKey);
  if (has_checkpoints_elsewhere(config)) check_not_in_use(checkpoint_directory(config), kCheckpointsKey);
  check_contents(config);
  check_room(config, spec);
}

fs::path stop_file(const Config& config) {
  return fs::path(config.output_dir) / kStopFile;
}

bool is_asked_by_file(const Config& config) {
  std::error_code ignored;
  return fs::exists(stop_file(config), ignored);
}

void remove_stop_file(const Config& config) {
  std::error_code ignored;
  fs::remove(stop_file(config), ignored);
}

void forget_earlier_request(const Config& config, std::ostream& log) {
  if (!is_asked_by_file(config)) return;
  remove_stop_file(config);
  log << "note: removed " << stop_file(config).string() << ", which was there before this run started" << std::endl;
}

fs::path previous_model(const Config& config) {
  return fs::path(config.output_dir) / kPreviousModel;
}

std::vector<OutputLock> lock_output_dir(const Config& config, const ModelSpec& spec) try {
  check_output_dir(config, spec);
  const fs::path dir = config.output_dir;
  make_directories(config.output_dir);
  make_directories(checkpoint_directory(config));
  std::vector<OutputLock> locks;
  locks.emplace_back(dir, kOutputKey, config.output_dir);
  if (has_checkpoints_elsewhere(config))
    locks.emplace_back(checkpoint_directory(config), kCheckpointsKey, config.output_dir);
  check_contents(config);  // again: another run may have ended since the first check
  remove_unfinished(checkpoint_directory(config));
  remove_entries(dir, is_unfinished);
  return locks;
} catch (const fs::filesystem_error& error) {
  throw RunError(cat("/output_dir: cannot be prepared: ", error.what()));
}

OutputLock lock_checkpoint_directory(const Config& config) {
  const std::string directory = checkpoint_directory(config);
  const char* const key = key_of_checkpoints(config);
  if (!config.training.overwrite_output_dir && !replaced_checkpoints(config).empty())
    throw ConfigError(cat(key, ": ", directory, " on host ", host_name(), kHasCheckpoints));
  OutputLock lock(directory, key, config.output_dir);
  remove_unfinished(directory);
  return lock;
}

void check_checkpoint_room(const Config& config, double bytes) {
  DiskNeed need{key_of_checkpoints(config), checkpoint_directory(config)};
  need.host = host_name();
  need.add_checkpoints(checkpoints_to_come(config), bytes);
  check_room(need, 0);
}

bool continues_in_place(const Config& config) {
  const auto source = resume_source(config);
  if (source.kind != ResumeSource::Kind::path) return source.kind != ResumeSource::Kind::fresh;
  return is_in_place(config, source.path);
}

bool is_in_place(const Config& config, const std::string& checkpoint) {
  const auto is_entry = [&](fs::path place) {
    std::error_code ignored;
    if (!place.has_filename()) place = place.parent_path();
    const std::string name = place.filename();
    return step_of_checkpoint(checkpoint_of_part(name).value_or(name)) &&
           fs::equivalent(place.parent_path(), checkpoint_directory(config), ignored);
  };
  // An entry may be a link to a checkpoint elsewhere, and a path from elsewhere may link to an entry.
  std::error_code ignored;
  return is_entry(fs::absolute(checkpoint)) || is_entry(fs::weakly_canonical(checkpoint, ignored));
}

int set_aside_checkpoints(const Config& config, std::optional<int64_t> resumed) try {
  const std::string directory = checkpoint_directory(config);
  std::vector<fs::path> paths = strangers_in(directory);
  const auto places = checkpoints_in(directory);
  const auto first_kept =
      std::ranges::find_if(places, [&](const CheckpointPlace& place) { return resumed && place.step <= *resumed; });
  if (first_kept != places.begin())
    name_newest(directory, first_kept == places.end() ? std::nullopt : std::optional(first_kept->step));
  for (const auto& place : std::ranges::subrange(places.begin(), first_kept)) paths.push_back(place.path);
  for (const auto& path : paths) set_aside(path);
  if (!paths.empty()) sync_directory(directory);  // before records of their steps are removed
  return static_cast<int>(paths.size());
} catch (const fs::filesystem_error& error) {
  throw RunError(cat(key_of_checkpoints(config), ": earlier checkpoints cannot be set aside: ", error.what()));
}

void replace_earlier_run(const Config& config, std::optional<int64_t> resumed) try {
  const fs::path dir = config.output_dir, previous = previous_model(config);
  remove_entries(dir, [&](const fs::path& name) { return is_record(name) && !(resumed && is_kept_record(name)); });
  if (resumed) keep_records_until(dir, *resumed);
  // If the run is killed here, the model is in two directories; the next run moves its files together.
  const fs::path moving = dir / kMovingModel;
  if (fs::exists(dir / "config.json")) fs::create_directory(moving);
  if (!fs::exists(moving)) return;
  for (const auto& file : model_files(dir)) fs::rename(file, moving / file.filename());
  fs::remove_all(previous);
  fs::rename(moving, previous);
} catch (const fs::filesystem_error& error) {
  throw RunError(cat("/output_dir: cannot be prepared: ", error.what()));
}

void copy_records(const Config& config, const fs::path& directory) {
  const fs::path dir = config.output_dir;
  if (!fs::is_directory(dir)) return;
  make_directories(directory.string());
  if (fs::equivalent(dir, directory)) return;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const fs::path name = entry.path().filename();
    if (is_record(name) || name == "config.resolved.json")
      fs::copy(entry.path(), directory / name, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
}

void remove_previous_model(const Config& config) {
  std::error_code error;
  const fs::path previous = previous_model(config);
  fs::remove_all(previous, error);
  if (error) throw RunError(cat(previous.string(), ": cannot be removed: ", error.message()));
}

}  // namespace shardline
