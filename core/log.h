// Log messages, one line each, with time, rank and level. Nothing is written until a program installs a sink: the
// library itself never prints.
#pragma once
#include <string>

namespace shardline {

enum class LogLevel { debug, info, warning, error };

// May be called several times: every sink gets the lines of its level and above.
void log_to_stderr(LogLevel level = LogLevel::info);
// Appends. Throws RunError if the file cannot be opened.
void log_to_file(const std::string& path, LogLevel level = LogLevel::debug);
void remove_log_sinks();

void log_debug(const std::string& text);
void log_info(const std::string& text);
void log_warning(const std::string& text);
void log_error(const std::string& text);

}  // namespace shardline
