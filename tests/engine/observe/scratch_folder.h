// A new empty folder that is removed with its contents at the end of the test.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/error.h"

namespace shardline {

class ScratchFolder {
 public:
  ScratchFolder() {
    path_ = (std::filesystem::temp_directory_path() / "shardline-test-XXXXXX").string();
    SL_ASSERT(::mkdtemp(path_.data()), path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace shardline
