#include "engine/tasks/task_files.h"

#include <filesystem>

#include "core/error.h"
#include "engine/config/rules/known_data.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// The names, without extension, that files of a part have in the data sets' own archives or in exports of the hub; an
// earlier one is taken before a later one.
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

std::string file_of_part(const std::string& folder, DataName name, DataPart part) {
  std::string tried;
  for (const std::string& stem : names_of(name, part)) {
    std::vector<std::string> found;
    for (const char* extension : {".tsv", ".txt", ".csv", ".jsonl", ".ndjson", ".json"})
      if (const fs::path file = fs::path(folder) / (stem + extension); fs::exists(file)) found.push_back(file.string());
    if (found.size() > 1)
      throw DataError(cat(folder, ": has ", fs::path(found[0]).filename().string(), " and ",
                          fs::path(found[1]).filename().string(), "; name one of them in place of the folder"));
    if (found.size() == 1) return found[0];
    tried += cat(tried.empty() ? "" : " or ", stem);
  }
  throw DataError(cat(folder, ": has no file ", tried, " (.tsv, .txt, .csv, .jsonl or .json) of task_name \"",
                      word_of(name), "\"; name the file in place of the folder"));
}

}  // namespace

std::vector<std::string> paths_of(const Config& config, DataPart part) {
  const DataOptions& data = config.data;
  switch (part) {
    case DataPart::train:
      return data.train;
    case DataPart::validation:
      return data.validation;
    case DataPart::validation_mismatched:
      return mismatched_paths(data);
    case DataPart::test:
      return data.test;
  }
  SL_ASSERT(false, "no such part");
}

std::vector<DataFile> task_files(const Config& config, DataPart part, const std::vector<std::string>& paths) {
  const auto name = config.data.task_name;
  if (!name) return find_data_files(paths, config.data.format);
  std::vector<std::string> named = paths;
  for (std::string& path : named)
    if (fs::is_directory(path)) path = file_of_part(path, *name, part);
  std::vector<DataFile> files = find_data_files(named, config.data.format);
  for (DataFile& file : files) {
    if (file.format == DataFormat::text) file.format = DataFormat::tsv;  // MRPC's own files are tables in .txt
    file.columns = known_data(*name).columns;
    file.uneven = file.format == DataFormat::tsv;  // some of GLUE's rows are cut off
  }
  return files;
}

}  // namespace shardline
