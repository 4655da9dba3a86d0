#include "engine/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/checkpoint/manifest.h"
#include "models/files/hf_layout.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "checkpoint-", kPart = ".part-", kOf = "-of-", kSuperseded = ".superseded";

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size()) return {};
  return number;
}

// The paths of all entries of a directory; empty if it does not exist. Throws RunError if it cannot be read.
std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw RunError(cat(directory.string(), ": the checkpoints there cannot be listed: ", error.message()));
  return entries;
}

// Also true if this cannot be determined; reading the checkpoint then reports the error.
bool has_manifest(const fs::path& path) {
  std::error_code error;
  return fs::exists(path / kManifestFile, error) || (error && error != std::errc::not_a_directory);
}

// Returns the names of the checkpoints and parts in a directory. Keeps those for which `is_wanted` accepts the name of
// the checkpoint. A complete checkpoint comes before its parts. See checkpoints_in.
template <class IsWanted>
std::vector<std::string> names_in(const fs::path& directory, const IsWanted& is_wanted) {
  std::vector<std::string> names;
  for (const auto& path : entries_of(directory)) {
    const std::string name = path.filename().string();
    if (is_wanted(checkpoint_of_part(name).value_or(name)) && has_manifest(path)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

// Returns an unused name for a checkpoint that must no longer be taken for one.
std::string free_name_aside(const fs::path& path) {
  std::string aside = cat(path.string(), kSuperseded);
  for (int number = 2; fs::exists(fs::symlink_status(aside)); ++number)
    aside = cat(path.string(), kSuperseded, "-", number);
  return aside;
}

// If `unfinished` and the part of its name are two complete versions, returns the path of the part: the run was killed
// while one replaced the other, so that the other hosts may have either.
fs::path part_with_two_versions(const fs::path& unfinished) {
  const fs::path part = unfinished.parent_path() / unfinished.stem().stem();  // without attempt and suffix
  const bool are_two = checkpoint_of_part(part.string()) && has_manifest(part) && has_manifest(unfinished);
  return are_two ? part : fs::path();
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return cat(kPrefix, step);
}

std::optional<int64_t> step_of_checkpoint(const std::string& name) {
  if (!name.starts_with(kPrefix)) return {};
  const auto step = whole_number<int64_t>(std::string_view(name).substr(kPrefix.size()));
  return step && *step >= 0 && checkpoint_name(*step) == name ? step : std::nullopt;
}

std::string part_path(const std::string& checkpoint, const PartNumber& part) {
  return cat(checkpoint, kPart, part.number, kOf, part.count);
}

std::optional<PartNumber> part_in(const std::string& path) {
  const size_t begin = path.rfind(kPart), of = path.rfind(kOf);
  if (begin == std::string::npos || of == std::string::npos || of < begin) return {};
  const std::string_view text = path;
  const auto number = whole_number<int>(text.substr(begin + kPart.size(), of - begin - kPart.size()));
  const auto count = whole_number<int>(text.substr(of + kOf.size()));
  if (!number || !count || *number < 1 || *number > *count ||
      part_path(path.substr(0, begin), {*number, *count}) != path)
    return {};
  return PartNumber{*number, *count};
}

std::optional<std::string> checkpoint_of_part(const std::string& path) {
  return part_in(path) ? std::optional(path.substr(0, path.rfind(kPart))) : std::nullopt;
}

std::vector<CheckpointPlace> checkpoints_in(const fs::path& directory) {
  std::vector<CheckpointPlace> places;
  for (const auto& name : names_in(directory, step_of_checkpoint))
    places.push_back({*step_of_checkpoint(checkpoint_of_part(name).value_or(name)), directory / name});
  std::ranges::stable_sort(places, [](const auto& a, const auto& b) { return a.step > b.step; });
  return places;
}

std::vector<std::string> places_of(const std::string& checkpoint) {
  const fs::path directory = fs::path(checkpoint).parent_path(), name = fs::path(checkpoint).filename();
  std::vector<std::string> places;
  for (const auto& entry :
       names_in(directory.empty() ? "." : directory, [&](const auto& other) { return other == name; }))
    places.push_back(checkpoint + entry.substr(name.string().size()));
  return places;
}

std::vector<fs::path> strangers_in(const fs::path& directory) {
  std::vector<fs::path> strangers;
  for (const auto& path : entries_of(directory)) {
    const std::string name = path.filename().string();
    if (step_of_checkpoint(checkpoint_of_part(name).value_or(name)) && !has_manifest(path)) strangers.push_back(path);
  }
  std::ranges::sort(strangers);
  return strangers;
}

void set_aside(const fs::path& path) {
  rename_file(path.string(), free_name_aside(path));
}

std::string publish_checkpoint(const std::string& unfinished, const std::string& path) {
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored)) && !has_manifest(path)) set_aside(path);
  const bool replaces = fs::exists(path, ignored);
  replaces ? exchange_files(unfinished, path) : rename_file(unfinished, path);
  try {
    sync_directory(fs::path(path).parent_path().string());
    return "";
  } catch (const RunError& error) {
    return error.what();
  }
}

void take_back_checkpoint(const std::string& unfinished, const std::string& path) {
  if (!fs::exists(unfinished)) return remove_checkpoint(path);
  exchange_files(unfinished, path);
  sync_directory(fs::path(path).parent_path().string());
  fs::remove_all(unfinished);
}

void remove_checkpoint(const fs::path& path) {
  const fs::path going = path.string() + kUnfinishedSuffix;
  std::error_code error;
  fs::remove_all(going, error);
  rename_file(path.string(), going.string());
  sync_directory(path.parent_path().string());
  fs::remove_all(going, error);
  if (error) throw file_error(going.string(), "cannot be removed", error.value());
}

void name_newest(const std::string& directory, std::optional<int64_t> step) {
  const std::string file = file_in(directory, kNewestFile);
  if (step)
    write_file(file, checkpoint_name(*step) + "\n");
  else
    fs::remove(file);
  sync_directory(directory);
}

void remove_unfinished(const fs::path& directory) {
  for (const auto& path : entries_of(directory)) {
    const std::string name = path.filename().string(), whole = path.string();
    const bool is_ours = name.starts_with(kPrefix) || name.starts_with(kSharedPrefix) || name.starts_with(kNewestFile);
    if (!is_ours || !name.ends_with(kUnfinishedSuffix)) continue;
    const fs::path other = whole.substr(0, whole.rfind(kReplacedSuffix));
    const fs::path part = part_with_two_versions(path);
    if (name.ends_with(kReplacedSuffix) && !fs::exists(other))
      fs::rename(path, other);  // its run was killed before the checkpoint that replaces it was in place
    else if (!part.empty())
      rename_file(whole, free_name_aside(part));
    else
      fs::remove_all(path);
  }
}

void claim_directory(const fs::path& directory, const std::string& attempt) {
  write_file((directory / kAttemptFile).string(), attempt + "\n");
}

void require_claim(const fs::path& directory, const std::string& attempt) {
  std::ifstream file(directory / kAttemptFile);
  std::string owner;
  if (std::getline(file, owner) && owner != attempt)
    throw RunError(
        cat(directory.string(), ": a later run has taken over this directory, so this run no longer saves there"));
}

}  // namespace shardline
