#include "engine/tasks/task_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>

#include "core/error.h"
#include "engine/config/rules/known_data.h"
#include "engine/data/cache/file_digest.h"
#include "engine/data/source/saved_dataset.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// The names, without extension, that files of a part have in the data sets' own archives or in exports of the hub;
// earlier ones take precedence.
std::vector<std::string> names_of(DataName name, DataPart part) {
  const bool is_mnli = name == DataName::mnli, is_mrpc = name == DataName::mrpc;
  switch (part) {
    case DataPart::train:
      return is_mrpc ? std::vector<std::string>{"train", "msr_paraphrase_train"} : std::vector<std::string>{"train"};
    case DataPart::validation:
      if (is_mnli) return {"dev_matched", "validation_matched"};
      if (name == DataName::amazon_polarity) return {"validation", "test"};
      return {"dev", "validation"};
    case DataPart::validation_mismatched:
      return {"dev_mismatched", "validation_mismatched"};
    case DataPart::test:
      if (is_mrpc) return {"test", "msr_paraphrase_test"};
      return {is_mnli ? "test_matched" : "test"};
  }
  SL_ASSERT(false, "no such part");
}

// The files of a part in a folder of a known data set; those of an export may be numbered: "train-00000-of-00002".
std::vector<std::string> files_of_part(const std::string& folder, DataName name, DataPart part) {
  std::string tried;
  for (const std::string& stem : names_of(name, part)) {
    if (const fs::path saved = fs::path(folder) / stem; is_saved_dataset(saved)) return {saved.string()};
    const std::regex form(stem + R"((-\d{5}-of-\d{5})?\.(tsv|txt|csv|jsonl|ndjson|json|parquet)(\.gz|\.zst)?)");
    std::vector<std::string> found;
    bool are_numbered = true;
    for (const fs::path& file : files_below(folder)) {
      std::smatch match;
      const std::string file_name = file.filename().string();
      if (file.parent_path() != fs::path(folder) || !std::regex_match(file_name, match, form)) continue;
      found.push_back(file.string());
      are_numbered = are_numbered && match[1].matched;
    }
    if (found.size() > 1 && !are_numbered)
      throw DataError(cat(folder, ": has ", fs::path(found[0]).filename().string(), " and ",
                          fs::path(found[1]).filename().string(), "; name one of them in place of the folder"));
    if (!found.empty()) return found;
    tried += cat(tried.empty() ? "" : " or ", stem);
  }
  throw DataError(cat(folder, ": has no file ", tried, " (.tsv, .txt, .csv, .jsonl, .json or .parquet) of task_name \"",
                      word_of(name), "\"; name the file in place of the folder"));
}

// A folder stands for its files of the split. The files of known data sets are found later, because they have names of
// their own.
std::vector<std::string> split_of(const DataOptions& data, const std::vector<std::string>& paths, Split split) {
  if (data.task_name) return paths;
  std::vector<std::string> files;
  for (const std::string& path : paths) std::ranges::move(paths_of_split(path, split), std::back_inserter(files));
  return files;
}

}  // namespace

std::vector<std::string> paths_of(const Config& config, DataPart part) {
  const DataOptions& data = config.data;
  switch (part) {
    case DataPart::train:
      return split_of(data, data.train, Split::train);
    case DataPart::validation:
      return split_of(data, data.validation, Split::validation);
    case DataPart::validation_mismatched:
      return mismatched_paths(data);
    case DataPart::test:
      return split_of(data, data.test, Split::test);
  }
  SL_ASSERT(false, "no such part");
}

std::vector<DataFile> task_files(const Config& config, DataPart part, const std::vector<std::string>& paths) {
  const auto name = config.data.task_name;
  if (!name) return find_data_files(paths, config.data.format);
  std::vector<std::string> named;
  for (const std::string& path : paths) {
    if (fs::is_directory(path) && !is_saved_dataset(path))
      std::ranges::move(files_of_part(path, *name, part), std::back_inserter(named));
    else
      named.push_back(path);
  }
  std::vector<DataFile> files = find_data_files(named, config.data.format);
  for (DataFile& file : files) {
    if (file.format == DataFormat::text) file.format = DataFormat::tsv;  // MRPC's own files are tables in .txt
    file.columns = known_data(*name).columns;
    file.uneven = file.format == DataFormat::tsv;  // some rows in GLUE's files are truncated
  }
  return files;
}

std::vector<DataFile> files_of(const Config& config, DataPart part) {
  if (part != DataPart::train || config.data.train_weights.empty())
    return task_files(config, part, paths_of(config, part));
  std::vector<DataFile> files;
  int64_t number = 0;
  for (const auto& paths : mixed_paths(config)) {
    for (DataFile file : task_files(config, part, paths)) {
      file.part = number;
      files.push_back(std::move(file));
    }
    ++number;
  }
  return files;
}

std::vector<std::vector<std::string>> mixed_paths(const Config& config) {
  std::vector<std::vector<std::string>> parts;
  if (config.data.train_weights.empty()) return parts;
  for (const std::string& path : config.data.train) parts.push_back(split_of(config.data, {path}, Split::train));
  return parts;
}

std::string digest_of_contents(const std::vector<DataFile>& files) {
  FileDigest digest;
  for (const DataFile& file : files) digest.add_file(file.path, [](int64_t) {});
  return digest_text(digest.value());
}

}  // namespace shardline
