// model.tar.gz: a model directory as platforms store it, with its files at the root of the archive.
#pragma once
#include <filesystem>
#include <string>

namespace shardline {

bool is_model_archive(const std::filesystem::path& path);  // by its name: *.tar.gz, *.tgz

// Writes the files of an archive below `folder`, which exists. Directories and plain files only: throws DataError for
// links, devices, absolute names and names with "..", for an archive that is damaged, and for more than `most_bytes`
// altogether.
void unpack_model(const std::filesystem::path& archive, const std::filesystem::path& folder, int64_t most_bytes);

// Makes an archive of the files in a directory and below it, ordered by name: without checkpoints (checkpoint-*),
// hidden files, the records of the run that made the model, the model of the run before it, and the archive itself. The
// archive appears when it is complete. Throws ConfigError if the directory contains no model, RunError if the disk
// fails.
void pack_model(const std::filesystem::path& directory, const std::filesystem::path& archive);

// A model's directory as long as this object exists: the directory itself, or a temporary one with the contents of an
// archive, which may be `path` itself or model.tar.gz in a directory without a config.json. Throws ConfigError for an
// archive without a config.json at its root.
class UnpackedModel {
 public:
  explicit UnpackedModel(const std::filesystem::path& path);
  ~UnpackedModel();
  UnpackedModel(const UnpackedModel&) = delete;
  UnpackedModel& operator=(const UnpackedModel&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_, temporary_;
};

}  // namespace shardline
