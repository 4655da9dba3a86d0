// Folders made by Hugging Face `datasets` or its hub: those of `save_to_disk`, and those with files for several
// splits.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace shardline {

enum class Split { train, validation, test };

// Whether Dataset.save_to_disk has written the folder.
bool is_saved_dataset(const std::filesystem::path& folder);
// Its Arrow files, in order. Throws DataError if the folder's state.json does not list files of the folder.
std::vector<std::filesystem::path> files_of_dataset(const std::filesystem::path& folder);

// What `path` stands for in the data of a split: for a folder that DatasetDict.save_to_disk has written, the folder of
// the split; for a folder with files of several splits, the files of this split. As in `datasets`, the name of the file
// or of a folder in between indicates the split, such as "train-00000-of-00002.parquet" or "test/a.jsonl"; files
// without such a name are left out. Any other path stands for itself. Throws DataError for a folder that has other
// splits, but not this one.
std::vector<std::string> paths_of_split(const std::string& path, Split split);

}  // namespace shardline
