// The steps from the body of a request to the body of its answer, as functions that a program may replace (Registry in
// include/shardline/shardline.h). Their names and parts are those of SageMaker's inference toolkits.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/serve/answers/answers.h"

namespace shardline {

// All but model_fn are called by several threads at the same time. A DataError becomes an answer with status 400, an
// HttpError one with its own, any other exception one with status 500.
struct ServeHandlers {
  // Called once, before the first request; may change what is known about the model, such as the names of labels.
  std::function<void(const std::string& directory, ModelFacts& facts)> model_fn;
  std::function<Invocation(const std::string& body, const std::string& content_type)> input_fn;
  std::function<nlohmann::json(const Invocation& request, const ServedModel& model)> predict_fn;
  std::function<AnswerBody(const nlohmann::json& prediction, const std::string& accept)> output_fn;
  // Calls input_fn, predict_fn and output_fn, unless it is replaced itself.
  std::function<AnswerBody(const ServedModel& model, const std::string& body, const std::string& content_type,
                           const std::string& accept)>
      transform_fn;
};

// read_invocation, answer_of and write_answer; a model_fn that changes nothing.
ServeHandlers default_handlers();

// The handlers of this program: the default ones, or those that were added in their place.
const ServeHandlers& serve_handlers();
// Replaces the handlers that are set in `own`. Call it before a model is served. Throws ConfigError for a handler that
// has already been replaced.
void add_handlers(const ServeHandlers& own);

}  // namespace shardline
