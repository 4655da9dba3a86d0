// The command lines of `shardline serve` and `shardline pack`.
#pragma once
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/serve/model_archive.h"
#include "engine/serve/serve_options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace shardline {

class ServeCommand {
 public:
  // Adds the options to the subcommand, which must outlive it.
  explicit ServeCommand(CLI::App& app);

  bool is_given() const;
  // The options of this command line and of the environment; the command line takes precedence.
  ServeOptions options() const;
  bool names_host() const;
  // The task that --task or, for a model's directory, HF_TASK asks for.
  std::optional<std::string> task(bool is_directory) const;

 private:
  CLI::App& app_;
  ServeOptions given_;
  std::string task_;
  double body_mib_ = 6;
};

// The config or directory that is served: the one that the command line names, or the one in which a platform puts the
// model. An archive is unpacked for as long as this lives.
class ServedPlace {
 public:
  // `arguments`: the command line's; an archive's path in them is replaced by that of the unpacked model. Throws
  // ConfigError if there is nothing to serve.
  ServedPlace(const std::string& named, const ServeCommand& command, std::vector<std::string>& arguments);

  std::string config() const { return model_->path().string(); }
  const ServeOptions& options() const { return options_; }

 private:
  ServeOptions options_;
  std::unique_ptr<UnpackedModel> model_;
};

class PackCommand {
 public:
  explicit PackCommand(CLI::App& app);
  void run(std::ostream& out) const;

 private:
  std::string directory_, archive_;
};

}  // namespace shardline
