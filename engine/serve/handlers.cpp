#include "engine/serve/handlers.h"

#include "core/error.h"

namespace shardline {
namespace {

struct ProgramHandlers {
  ServeHandlers added;  // each is set if the program has replaced the default one
  ServeHandlers used = default_handlers();
};

ProgramHandlers& program_handlers() {
  static ProgramHandlers handlers;
  return handlers;
}

template <class Handler>
void replace_handler(Handler ServeHandlers::*which, const char* name, const ServeHandlers& own) {
  if (!(own.*which)) return;
  auto& [added, used] = program_handlers();
  if (added.*which) throw ConfigError(cat("the handler ", name, " has already been replaced; replace it once"));
  added.*which = used.*which = own.*which;
}

}  // namespace

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

const ServeHandlers& serve_handlers() {
  return program_handlers().used;
}

void add_handlers(const ServeHandlers& own) {
  replace_handler(&ServeHandlers::model_fn, "model_fn", own);
  replace_handler(&ServeHandlers::input_fn, "input_fn", own);
  replace_handler(&ServeHandlers::predict_fn, "predict_fn", own);
  replace_handler(&ServeHandlers::output_fn, "output_fn", own);
  replace_handler(&ServeHandlers::transform_fn, "transform_fn", own);
}

}  // namespace shardline
