// The files that a config names for a part of its data.
#pragma once
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/data/source/data_files.h"

namespace shardline {

enum class DataPart { train, validation, validation_mismatched, test };

// The paths that the config names for a part: those of its key, of which validation_mismatched has a default, with the
// paths of the part's split in place of folders with several splits (saved_dataset.h). Throws as paths_of_split does.
std::vector<std::string> paths_of(const Config& config, DataPart part);

// The files of some paths. With data.task_name, a folder stands for the one file of that part in it, or for its
// numbered files. Throws as find_data_files does, also for a folder without such a file or with several.
std::vector<DataFile> task_files(const Config& config, DataPart part, const std::vector<std::string>& paths);

// All files of a part, those of a mixture with the number of their part.
std::vector<DataFile> files_of(const Config& config, DataPart part);

// Equal for files of the same contents in the same order, wherever they are. Throws DataError if one cannot be read.
std::string digest_of_contents(const std::vector<DataFile>& files);

// The paths of each part of the training data whose parts have weights; empty: they have none.
std::vector<std::vector<std::string>> mixed_paths(const Config& config);

}  // namespace shardline
