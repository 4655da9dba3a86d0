// A program that replaces the steps of serving. All cases share the handlers of this process, as those of a program do.
#include "engine/serve/handlers.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/api/registry.h"
#include "tests/engine/serve/fake_model.h"

#include "tests/catch.h"

namespace shardline::handlers_test {
namespace {

using nlohmann::json;

ModelFacts facts() {
  return {.head = {.kind = HeadChoice::Kind::causal_lm},
          .tokenizer = load_tokenizer("bytes"),
          .vocab_size = 256,
          .most_tokens = 64};
}

// What the program answers to a body; each prompt continues with the letters that follow its last one.
AnswerBody answered(const std::string& body, const std::string& content_type, const std::string& accept) {
  return serve_handlers().transform_fn(FakeModel(facts(), {}), body, content_type, accept);
}

}  // namespace

TEST_CASE("each step of serving can be replaced, once") {
  const json body = {{"inputs", "ab"}, {"parameters", {{"max_new_tokens", 2}}}};
  CHECK(answered(body.dump(), "application/json", "").body == R"([{"generated_text":"abcd"}])");

  Registry registry;
  registry.model_fn([](const std::string& directory, ModelFacts& known) { known.head.names = {directory}; })
      .input_fn([](const std::string& text, const std::string& type) {
        if (type != "text/letters") return read_invocation(text, type);
        return Invocation{.document = {{"inputs", text}, {"parameters", {{"max_new_tokens", 1}}}}};
      })
      .predict_fn([](const Invocation& request, const ServedModel& model) {
        return json{{"texts", answer_of(request, model)}};
      })
      .output_fn([](const json& prediction, const std::string& accept) {
        if (accept != "text/plain") return write_answer(prediction, accept);
        return AnswerBody{accept, prediction["texts"][0]["generated_text"].get<std::string>()};
      });
  use(registry);
  use(registry);  // what is known already is not added again
  ModelFacts known = facts();
  serve_handlers().model_fn("here", known);
  CHECK(known.head.names == std::vector<std::string>{"here"});
  CHECK(answered("xy", "text/letters", "application/json").body == R"({"texts":[{"generated_text":"xyz"}]})");
  CHECK(answered(body.dump(), "application/json", "text/plain").body == "abcd");

  Registry again;
  again.output_fn(write_answer);
  CHECK_THROWS_AS(use(again), ConfigError);
  CHECK_THROWS_WITH(add_handlers({.input_fn = read_invocation}), Catch::Matchers::Contains("input_fn"));

  // A handler that replaces all steps may use the others.
  Registry whole;
  whole.transform_fn(
      [](const ServedModel& model, const std::string& text, const std::string& type, const std::string& accept) {
        AnswerBody made = default_handlers().transform_fn(model, text, type, accept);
        made.body += "!";
        return made;
      });
  use(whole);
  CHECK(answered("xy", "text/letters", "text/plain").body == "xyz!");
}

}  // namespace shardline::handlers_test
