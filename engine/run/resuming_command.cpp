#include "engine/run/resuming_command.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "engine/config/rules/shell_words.h"
#include "engine/run/launcher_news.h"

namespace shardline {

namespace {

std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::vector<std::string> command_of_user() {
  const char* const passed = has_launcher() ? std::getenv(kCommandVariable) : nullptr;
  const auto words = nlohmann::json::parse(passed ? passed : "", nullptr, /*allow_exceptions=*/false);
  return words.is_array() ? words.get<std::vector<std::string>>() : own_command();
}

}  // namespace

void pass_command_to_ranks() {
  const auto words = nlohmann::json(own_command()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  setenv(kCommandVariable, words.c_str(), 1);
}

std::string resuming_command(const std::string& source) {
  const std::string setting = "training.resume_from_checkpoint=";
  std::string command;
  bool is_setting = false;  // whether the word is one of those after --set, up to the next option
  const std::vector<std::string> words = command_of_user();
  const bool has_config = words.size() > 2;  // a container's job has none, and looks for its checkpoints itself
  for (const std::string& word : words) {
    const bool is_option = word.starts_with("-");
    if (is_option) is_setting = word == "--set";
    if (is_option && is_setting) continue;  // each setting gets a --set of its own
    if (!source.empty() && word.starts_with((is_setting ? "" : "--set=") + setting)) continue;
    command += cat(command.empty() ? "" : " ", is_setting ? "--set " : "", shell_quoted(word));
  }
  return source.empty() || !has_config ? command : cat(command, " --set ", shell_quoted(setting + source));
}

}  // namespace shardline
