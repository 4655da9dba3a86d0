#include "engine/serve/handlers.h"

#include "engine/serve/answers/answers.h"

namespace shardline {

ServeHandlers default_handlers() {
  return {.model_fn = [](const std::string&, ModelFacts&) {},
          .input_fn = read_invocation,
          .predict_fn = answer_of,
          .output_fn = write_answer,
          .transform_fn =
              [](const ServedModel& model, const std::string& body, const std::string& content_type,
                 const std::string& accept) {
                const ServeHandlers& own = serve_handlers();
                const Invocation request = own.input_fn(body, content_type);
                const bool takes_any = accept.empty() || accept == "*/*";
                const nlohmann::json prediction = own.predict_fn(request, model);
                return own.output_fn(prediction, request.is_lines && takes_any ? "application/jsonlines" : accept);
              }};
}

ServeHandlers& serve_handlers() {
  static ServeHandlers handlers = default_handlers();
  return handlers;
}

}  // namespace shardline
