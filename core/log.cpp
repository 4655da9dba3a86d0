#include "core/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/dist_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

#include "core/error.h"

namespace shardline {
namespace {

struct Log {
  std::shared_ptr<spdlog::sinks::dist_sink_mt> sinks = std::make_shared<spdlog::sinks::dist_sink_mt>();
  spdlog::logger logger{"shardline", sinks};
  Log() {
    logger.set_level(spdlog::level::debug);
    logger.flush_on(spdlog::level::warn);
  }
};

Log& log_of_process() {
  static Log log;
  return log;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

void add_sink(const spdlog::sink_ptr& sink, LogLevel level) {
  sink->set_level(level_of(level));
  sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  log_of_process().sinks->add_sink(sink);
}

void write(LogLevel level, const std::string& text) {
  const int rank = current_rank();
  log_of_process().logger.log(level_of(level), rank < 0 ? text : cat("rank ", rank, ": ", text));
}

}  // namespace

void log_to_stderr(LogLevel level) {
  add_sink(std::make_shared<spdlog::sinks::stderr_sink_mt>(), level);
}

void log_to_file(const std::string& path, LogLevel level) {
  try {
    add_sink(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path), level);
  } catch (const spdlog::spdlog_ex& error) {
    throw RunError(cat("the log file ", path, " cannot be opened: ", error.what()));
  }
}

void remove_log_sinks() {
  log_of_process().sinks->set_sinks({});
}

void log_debug(const std::string& text) {
  write(LogLevel::debug, text);
}
void log_info(const std::string& text) {
  write(LogLevel::info, text);
}
void log_warning(const std::string& text) {
  write(LogLevel::warning, text);
}
void log_error(const std::string& text) {
  write(LogLevel::error, text);
}

}  // namespace shardline
