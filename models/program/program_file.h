// Which files hold exported programs.
#pragma once
#include <string>

namespace shardline {

// Whether a path names an archive of torch.export.save, by its ending.
inline bool is_program_file(const std::string& path) {
  return path.ends_with(".pt2");
}

// The key of config.json with the name of the file that was trained.
inline constexpr const char* kProgramName = "exported_program";

// The trained program in an output directory.
inline constexpr const char* kProgramFile = "model.pt2";

}  // namespace shardline
