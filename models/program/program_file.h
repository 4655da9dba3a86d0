// Which files contain exported programs.
#pragma once
#include <string>

namespace shardline {

// Whether the path names an archive of torch.export.save, judging by its ending.
inline bool is_program_file(const std::string& path) {
  return path.ends_with(".pt2");
}

// The key of config.json that names the file that was trained.
inline constexpr const char* kProgramName = "exported_program";

// The trained program in an output directory.
inline constexpr const char* kProgramFile = "model.pt2";

}  // namespace shardline
