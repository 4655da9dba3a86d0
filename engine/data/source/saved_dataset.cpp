#include "engine/data/source/saved_dataset.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/data/source/data_files.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
constexpr const char *kState = "state.json", *kInfo = "dataset_info.json", *kSplits = "dataset_dict.json";

struct SplitWords {
  Split split;
  std::vector<std::string> words;  // the first is the split's name
};
const std::vector<SplitWords>& split_words() {
  static const std::vector<SplitWords> kAll = {{Split::train, {"train", "training"}},
                                               {Split::validation, {"validation", "valid", "val", "dev"}},
                                               {Split::test, {"test", "testing", "eval", "evaluation"}}};
  return kAll;
}
const SplitWords& words_of_split(Split split) {
  return *std::ranges::find(split_words(), split, &SplitWords::split);
}

std::optional<Split> split_of_word(std::string_view word) {
  for (const auto& [split, words] : split_words())
    if (std::ranges::find(words, word) != words.end()) return split;
  return {};
}

// The split that a word in the name of a file or folder indicates: "my-train_0.jsonl".
std::optional<Split> split_in_name(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (auto begin = std::find_if(name.begin(), name.end(), is_letter); begin != name.end();) {
    const auto end = std::find_if_not(begin, name.end(), is_letter);
    if (const auto split = split_of_word({begin, end})) return split;
    begin = std::find_if(end, name.end(), is_letter);
  }
  return {};
}

// The split that the path of a file inside a folder indicates.
std::optional<Split> split_in_path(const fs::path& inside) {
  for (const fs::path& part : inside)
    if (const auto split = split_in_name(part.string())) return split;
  return {};
}

DataError missing_split(const std::string& folder, Split split, const std::string& others) {
  return DataError(cat(folder, ": has the splits ", others, ", but none for ", words_of_split(split).words[0],
                       "; name the folder or the files of one of them"));
}

std::string names_of(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += cat(text.empty() ? "" : ", ", name);
  return text;
}

std::string saved_split(const std::string& folder, Split split) {
  const std::string path = (fs::path(folder) / kSplits).string();
  const auto content = read_data_json(path);
  std::vector<std::string> splits;
  for (const JsonValue& name : JsonValue(content, path).at("splits").items()) splits.push_back(name.text());
  for (const std::string& word : words_of_split(split).words)
    if (std::ranges::find(splits, word) != splits.end()) return (fs::path(folder) / word).string();
  throw missing_split(folder, split, names_of(splits));
}

}  // namespace

bool is_saved_dataset(const fs::path& folder) {
  return fs::exists(folder / kState) && fs::exists(folder / kInfo);
}

std::vector<fs::path> files_of_dataset(const fs::path& folder) {
  const std::string path = (folder / kState).string();
  const auto content = read_data_json(path);
  const JsonValue state(content, path);
  if (state.has("_indices_data_files") && !state.at("_indices_data_files").items().empty())
    state.at("_indices_data_files")
        .fail("the data set is a selection of the rows in its files",
              "save it with a current version of `datasets`, which writes the selected rows alone");
  std::vector<fs::path> files;
  for (const JsonValue& entry : state.at("_data_files").items()) {
    const JsonValue name = entry.at("filename");
    const fs::path file = name.text();
    if (file.filename() != file || !fs::is_regular_file(folder / file)) name.fail("must be a file of this folder");
    files.push_back(folder / file);
  }
  if (files.empty()) state.at("_data_files").fail("the data set is empty");
  return files;
}

std::vector<std::string> paths_of_split(const std::string& path, Split split) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || is_saved_dataset(path)) return {path};
  if (fs::exists(fs::path(path) / kSplits)) return {saved_split(path, split)};
  std::map<Split, std::vector<std::string>> files;
  for (const fs::path& file : files_below(path))
    if (const auto told = split_in_path(file.lexically_relative(path))) files[*told].push_back(file.string());
  if (files.size() < 2) return {path};
  if (const auto found = files.find(split); found != files.end()) return found->second;
  std::vector<std::string> others;
  for (const auto& [other, of_other] : files) others.push_back(words_of_split(other).words[0]);
  throw missing_split(path, split, names_of(others));
}

}  // namespace shardline
