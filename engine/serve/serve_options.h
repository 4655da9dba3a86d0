// How a model is served: the options of the command line, and the environment of a hosting platform.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "engine/serve/http/http_server.h"
#include "engine/serve/model_queue.h"

namespace shardline {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;
  int workers = 64;        // requests that are processed at a time
  int queue_length = 256;  // requests that wait for a worker; more are refused
  int timeout = 60;        // seconds from the arrival of a request until its answer, and for sending either
  HttpLimits http;
  BatchLimits batch;
};

using Environment = std::function<const char*(const char* name)>;  // like std::getenv

// The defaults in this environment: SAGEMAKER_MODEL_SERVER_WORKERS, SAGEMAKER_MODEL_SERVER_TIMEOUT (seconds),
// SAGEMAKER_BIND_TO_PORT. Throws ConfigError, which names the variable.
ServeOptions options_of_environment(const Environment& environment);

// The task that HF_TASK requests, if it is set.
std::optional<std::string> task_of_environment(const Environment& environment);
// A config's name of a task: "sequence-classification" for "text-classification", as the hub calls it, or itself.
// Throws ConfigError for others; `source` names the setting.
std::string served_task(const std::string& name, const std::string& source);

}  // namespace shardline
