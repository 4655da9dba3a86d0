#include "engine/api/serve_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ostream>

#include "core/error.h"
#include "engine/import/container.h"

namespace shardline {
namespace {

const Environment kEnvironment = [](const char* name) { return std::getenv(name); };

}  // namespace

ServeCommand::ServeCommand(CLI::App& app) : app_(app) {
  app.get_option("config")->required(false)->description(
      "Config file, or a model's directory or archive (.tar.gz); if omitted, the model of a hosting platform");
  app.add_option("--host", given_.host, "Address to listen on; 0.0.0.0: all addresses of this machine")
      ->capture_default_str();
  app.add_option("--port", given_.port, "Port to listen on; 0: any free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_option("--task", task_,
                 "Task, by its name in configs or on the Hugging Face hub; default: the task of the model");
  app.add_option("--workers", given_.workers, "Requests that are processed at the same time")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--queue-length", given_.queue_length, "Further requests that may wait; more are refused")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--timeout", given_.timeout, "Time limit for answering a request, in seconds")
      ->capture_default_str()
      ->check(CLI::Range(1, 86400));
  app.add_option("--max-body", body_mib_, "Maximum size of a request's body, in MiB")
      ->capture_default_str()
      ->check(CLI::Range(0.0001, 1024.0));
  app.add_option("--max-batch", given_.batch.most, "Maximum number of inputs in a batch")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--max-batch-tokens", given_.batch.most_tokens, "Maximum number of tokens in a batch")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
}

bool ServeCommand::is_given() const {
  return app_.parsed();
}

bool ServeCommand::names_host() const {
  return app_.count("--host") > 0;
}

ServeOptions ServeCommand::options() const {
  const ServeOptions hosted = options_of_environment(kEnvironment);
  ServeOptions options = given_;
  if (app_.count("--port") == 0) options.port = hosted.port;
  if (app_.count("--workers") == 0) options.workers = hosted.workers;
  if (app_.count("--timeout") == 0) options.timeout = hosted.timeout;
  options.http.body_bytes = body_mib_ * (1 << 20);
  options.http.held_bytes = std::max<size_t>(size_t{128} << 20, 4 * options.http.body_bytes);
  options.http.body = options.http.write = std::chrono::seconds(options.timeout);
  return options;
}

std::optional<std::string> ServeCommand::task(bool is_directory) const {
  if (!task_.empty()) return served_task(task_, "--task");
  return is_directory ? task_of_environment(kEnvironment) : std::nullopt;
}

ServedPlace::ServedPlace(const std::string& named, const ServeCommand& command, std::vector<std::string>& arguments)
    : options_(command.options()) {
  std::string place = named;
  if (place.empty()) {
    place = container_folder(environment_variables()) + "/model";
    if (!std::filesystem::is_directory(place))
      throw ConfigError(cat("serve needs a model's directory or a config; ", place,
                            ", where hosting platforms put a model, does not exist"));
    if (!command.names_host()) options_.host = "0.0.0.0";  // ranks need it, too: their arguments name the place
    arguments.insert(arguments.begin() + 1, {place, "--host", options_.host});
  }
  model_ = std::make_unique<UnpackedModel>(place);
  std::ranges::replace(arguments, place, config());
}

PackCommand::PackCommand(CLI::App& app) {
  app.add_option("model", directory_, "Directory of a model")->required()->check(CLI::ExistingDirectory);
  app.add_option("archive", archive_, "File to write, such as model.tar.gz")->required();
}

void PackCommand::run(std::ostream& out) const {
  if (!is_model_archive(archive_)) throw ConfigError(cat(archive_, ": the name of the file must end with .tar.gz"));
  pack_model(directory_, archive_);
  out << "wrote " << archive_ << '\n';
}

}  // namespace shardline
