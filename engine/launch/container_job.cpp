#include "engine/launch/container_job.h"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string_view>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/regular_file.h"
#include "engine/config/config.h"
#include "engine/import/container.h"
#include "engine/import/import.h"
#include "engine/launch/container_hosts.h"
#include "engine/launch/start_ranks.h"
#include "engine/run/output_dir.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestFailure = 1024;  // the platform reads no more

// Passes on what is written to a stream, and keeps its error messages: lines that begin with "error: " and what
// follows.
class KeptErrors : std::streambuf {
 public:
  explicit KeptErrors(std::ostream& stream) : stream_(stream), passed_on_(stream.rdbuf(this)) {}
  ~KeptErrors() override { stream_.rdbuf(passed_on_); }
  KeptErrors(const KeptErrors&) = delete;
  KeptErrors& operator=(const KeptErrors&) = delete;

  std::string text() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return errors_;
  }

 private:
  int overflow(int c) override {
    if (c == traits_type::eof()) return 0;
    const char byte = traits_type::to_char_type(c);
    return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::streamsize i = 0; i < count; ++i) keep(bytes[i]);
    return passed_on_->sputn(bytes, count);
  }
  int sync() override { return passed_on_->pubsync(); }

  void keep(char c) {
    if (line_.size() < kLongestFailure) line_ += c;
    if (c != '\n') return;
    in_errors_ = in_errors_ || line_.starts_with("error: ");
    if (in_errors_ && errors_.size() < kLongestFailure) errors_ += line_;
    line_.clear();
  }

  std::ostream& stream_;
  std::streambuf* passed_on_;
  mutable std::mutex mutex_;
  std::string errors_, line_;
  bool in_errors_ = false;
};

void write_failure(const fs::path& folder, const std::string& text) {
  make_directories((folder / "output").string());
  write_file((folder / "output/failure").string(), text.substr(0, kLongestFailure));
}

// Writes the config, and returns its file.
std::string write_config(const fs::path& folder, const std::vector<std::string>& settings, const ContainerJob& job,
                         std::ostream& log) {
  const Import import = import_job({job.file}, {.channels = {}, .hosts = {}, .settings = settings},
                                   [](const std::string& path) { return read_regular_file(path); });
  log << import_table(import) << std::flush;
  if (!import.refused().empty()) throw ConfigError(refusals_text(import));
  make_directories((folder / "output").string());
  const std::string path = (folder / "output/shardline.json").string();
  write_file(path, import.config.dump(2) + '\n');
  return path;
}

// Trains, and copies the run's records, however it ends. A copy that fails does not fail the job.
int train_and_copy(const std::string& path, const Config& config, const std::string& output_data,
                   const std::function<int(const std::string& config)>& train, std::ostream& log) {
  const auto copy = [&] {
    try {
      copy_records(config, output_data);
    } catch (const std::exception& error) {
      log << "warning: the records of the run were not copied to " << output_data << ": " << error.what() << std::endl;
    }
  };
  try {
    const int code = train(path);
    copy();
    return code;
  } catch (...) {
    copy();
    throw;
  }
}

// Printed errors as the other hosts report them, after "error: host alpha: ".
std::string reason_in(std::string errors) {
  constexpr std::string_view kBegin = "error: ";
  if (errors.starts_with(kBegin)) errors.erase(0, kBegin.size());
  if (errors.ends_with('\n')) errors.pop_back();
  return errors;
}

int run_job(const fs::path& folder, const std::vector<std::string>& settings,
            const std::function<int(const std::string& config)>& train, const KeptErrors& errors, std::ostream& log) {
  const ContainerJob job = read_container_job(folder.string(), environment_variables());
  const std::string path = write_config(folder, settings, job, log);
  const Config config = read_config(path);
  const std::chrono::seconds limit(config.training.ddp_timeout);
  if (!job.is_first()) {
    log << "waiting for host " << job.hosts.front() << ", which trains on all hosts" << std::endl;
    const JobEnd end = wait_for_first_host(job.hosts.front(), job.current_host, limit);
    if (!end.reason.empty()) log << "error: host " << job.hosts.front() << ": " << end.reason << std::endl;
    return end.code;
  }
  if (job.hosts.size() < 2) return train_and_copy(path, config, job.output_data, train, log);
  OtherHosts others({job.hosts.begin() + 1, job.hosts.end()});
  others.wait(limit);
  try {
    const int code = train_and_copy(path, config, job.output_data, train, log);
    others.end(code, code == 0 ? "" : reason_in(errors.text()));
    return code;
  } catch (const std::exception& error) {
    others.end(exit_code_of(error), error.what());
    throw;
  }
}

}  // namespace

int run_container_job(const std::string& folder, const std::vector<std::string>& settings,
                      const std::function<int(const std::string& config)>& train, std::ostream& log) {
  std::error_code ignored;
  fs::remove(fs::path(folder) / "output/failure", ignored);  // an earlier attempt may have left it
  const KeptErrors errors(std::cerr);
  try {
    const int code = run_job(folder, settings, train, errors, log);
    if (code != 0) write_failure(folder, errors.text().empty() ? cat("exit code ", code, "\n") : errors.text());
    return code;
  } catch (const std::exception& error) {
    write_failure(folder, error.what());
    throw;
  }
}

}  // namespace shardline
