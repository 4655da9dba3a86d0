#include "engine/run/resuming_command.h"

#include <fstream>

#include "core/error.h"
#include "engine/config/rules/shell_words.h"

namespace shardline {

std::string resuming_command(const std::string& source) {
  const std::string setting = "training.resume_from_checkpoint=";
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string command;
  bool is_setting = false;  // the words after --set are, up to the next option
  for (std::string word; std::getline(file, word, '\0');) {
    const bool is_option = word.starts_with("-");
    if (is_option) is_setting = word == "--set";
    if (is_option && is_setting) continue;  // it comes before each of them instead
    if (!source.empty() && word.starts_with((is_setting ? "" : "--set=") + setting)) continue;
    command += cat(command.empty() ? "" : " ", is_setting ? "--set " : "", shell_quoted(word));
  }
  return source.empty() ? command : cat(command, " --set ", shell_quoted(setting + source));
}

}  // namespace shardline
