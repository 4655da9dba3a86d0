// What is made of inputs, parameters and logits; tests/transformers/compare_serve.py compares it with the pipelines.
#include "engine/serve/answers/answers.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/serve/http/http_message.h"
#include "tests/engine/serve/fake_model.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

namespace shardline::answers_test {
namespace {

using nlohmann::json;
using Kind = HeadChoice::Kind;

// Tokens 5 film, 6 good, 7 ##ing, 8 a.
TokenizerPtr tokenizer() {
  const RunFolder folder("answers");
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfilm\ngood\n##ing\na\n");
  return load_tokenizer(folder / "");
}

ModelFacts facts(Kind kind, const std::vector<std::string>& labels = {}) {
  ModelFacts made{.head = {.kind = kind, .labels = std::ssize(labels), .names = labels},
                  .tokenizer = tokenizer(),
                  .vocab_size = 9,
                  .most_tokens = 8};
  if (kind == Kind::sequence_classification) made.head.problem = HeadChoice::Problem::single_label;
  return made;
}

json ask(const ServedModel& model, const json& body) {
  return answer_of(read_invocation(body.dump(), "application/json"), model);
}

// The logarithms of 1 : 2 : 5 for each row.
Logits one_two_five(int64_t rows) {
  Logits made{.width = 3};
  for (int64_t i = 0; i < rows; ++i)
    for (const int weight : {1, 2, 5}) made.values.push_back(std::log(weight));
  return made;
}

std::string refusal(const ServedModel& model, const json& body) {
  try {
    ask(model, body);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("texts are classified") {
  const FakeModel model(facts(Kind::sequence_classification, {"x", "y", "z"}),
                        [](const Example&) { return one_two_five(1); });
  const json one = ask(model, {{"inputs", "a film"}});
  REQUIRE(one.size() == 1);
  CHECK(one[0]["label"] == "z");
  CHECK(one[0]["score"].get<double>() == Approx(0.625));
  CHECK(ask(model, {{"inputs", {"a film", "a"}}}).size() == 2);
  CHECK(ask(model, {{"inputs", {{"text", "a"}, {"text_pair", "film"}}}})["label"] == "z");
  const json all = ask(model, {{"inputs", "a"}, {"parameters", {{"top_k", nullptr}}}});
  CHECK(all.size() == 3);
  CHECK(all[1]["label"] == "y");
  const json apart = ask(model, {{"inputs", "a"}, {"parameters", {{"top_k", 2}, {"function_to_apply", "sigmoid"}}}});
  CHECK(apart.size() == 2);
  CHECK(apart[0]["score"].get<double>() == Approx(5.0 / 6));

  CHECK(refusal(model, {{"inputs", {"a", 5}}}) ==
        "the request: /inputs/1: must be a text or {\"text\": ..., \"text_pair\": ...}; got 5");
  CHECK(refusal(model, {{"inputs", "a a a a a a a"}}).starts_with("the request: /inputs: has more than the 8 tokens"));
  CHECK(refusal(model, {{"inputs", "a"}, {"parameters", {{"top_k", "2"}}}})
            .starts_with("the request: /parameters/top_k"));
  CHECK(refusal(model, {{"inputs", "a"}, {"parameters", {{"max_length", 3}}}}).find("without truncation") !=
        std::string::npos);
  CHECK(ask(model, {{"inputs", "a a a a a a a"}, {"parameters", {{"truncation", true}}}}).size() == 1);
}

TEST_CASE("tokens become entities") {
  // a: O, film: B-X, good: I-X, ##ing: what its word is not.
  const FakeModel model(facts(Kind::token_classification, {"O", "B-X", "I-X"}), [](const Example& example) {
    Logits made{.width = 3};
    for (const int32_t id : example.ids) {
      const int best = id == 5 ? 1 : id == 6 ? 2 : 0;
      const int certainty = id == 7 ? 2 : 3;
      for (int label = 0; label < 3; ++label) made.values.push_back(label == best ? certainty : 0);
    }
    return made;
  });
  const json plain = ask(model, {{"inputs", "a film gooding"}});
  REQUIRE(plain.size() == 2);
  CHECK(plain[0]["word"] == "film");
  CHECK(plain[0]["entity"] == "B-X");
  CHECK(plain[0]["index"] == 2);
  CHECK(plain[1]["end"] == 11);
  for (const char* strategy : {"first", "max"}) {
    const json groups =
        ask(model, {{"inputs", "a film gooding"}, {"parameters", {{"aggregation_strategy", strategy}}}});
    INFO(strategy);
    REQUIRE(groups.size() == 1);
    CHECK(groups[0]["entity_group"] == "X");
    CHECK(groups[0]["word"] == "film gooding");
    CHECK(groups[0]["end"] == 14);
  }
  CHECK(ask(model, {{"inputs", "a"}, {"parameters", {{"ignore_labels", json::array()}}}}).size() == 1);
}

TEST_CASE("questions are answered with words of the context") {
  // The answer begins with "film" and ends with "good".
  const FakeModel model(facts(Kind::question_answering), [](const Example& example) {
    Logits made{.width = 2};
    for (const int32_t id : example.ids) {
      made.values.push_back(id == 5 ? 9 : 0);
      made.values.push_back(id == 6 ? 9 : 0);
    }
    return made;
  });
  const json answer = ask(model, {{"inputs", {{"question", "a"}, {"context", "a film gooding"}}}});
  CHECK(answer["answer"] == "film gooding");
  CHECK(answer["start"] == 2);
  CHECK(answer["end"] == 14);
  CHECK(answer["score"].get<double>() > 0.9);
  const json exact = ask(model, {{"question", "a"}, {"context", "a film gooding"}});
  CHECK(exact == answer);
  CHECK(ask(model, {{"inputs", {{"question", "a"}, {"context", "a film gooding"}}},
                    {"parameters", {{"align_to_words", false}}}})["answer"] == "film good");
  // Windows of a long context.
  const json found = ask(model, {{"inputs", {{"question", "a"}, {"context", "a a a a a a film good a a a"}}},
                                 {"parameters", {{"doc_stride", 2}}}});
  CHECK(found["answer"] == "film good");
  CHECK(refusal(model, {{"inputs", {{"question", "a"}}}}).starts_with("the request: /inputs/context: is missing"));
}

TEST_CASE("prompts go on within the model's positions") {
  ModelFacts bytes = facts(Kind::causal_lm);
  bytes.tokenizer = load_tokenizer("bytes");
  bytes.vocab_size = 256;
  const FakeModel model(bytes, {});
  CHECK(ask(model, {{"inputs", "ab"}, {"parameters", {{"max_new_tokens", 2}}}})[0]["generated_text"] == "abcd");
  CHECK(ask(model, {{"inputs", {"ab", "x"}}, {"parameters", {{"max_new_tokens", 1}, {"return_full_text", false}}}}) ==
        json::parse(R"([[{"generated_text": "c"}], [{"generated_text": "y"}]])"));
  CHECK(refusal(model, {{"inputs", "abcdef"}, {"parameters", {{"max_new_tokens", 3}}}}).find("leaves room for 2") !=
        std::string::npos);
  CHECK(refusal(model, {{"inputs", ""}}).starts_with("the request: /inputs: has no tokens"));
}

TEST_CASE("bodies of several types") {
  const auto inputs = [](const std::string& body, const char* type) {
    return read_invocation(body, type).document["inputs"];
  };
  CHECK(inputs("{\"inputs\": \"a\"}\n\n\"b\"\n", "application/jsonlines") == json({"a", "b"}));
  CHECK(inputs("inputs\n\"a, \"\"b\"\"\"\nc\n", "text/csv") == json({"a, \"b\"", "c"}));
  CHECK(inputs("question,context\na,b\n", "text/csv") == json::parse(R"([{"question": "a", "context": "b"}])"));
  CHECK(inputs("a\nb", "text/plain") == "a\nb");
  CHECK_THROWS_AS(read_invocation("x", "image/png"), HttpError);
  CHECK_THROWS_AS(read_invocation("\xff", "text/plain"), DataError);
  CHECK(write_answer(json::parse(R"([{"a": 1, "b": "x,\"y"}])"), "text/csv").body == "a,b\r\n1,\"x,\"\"y\"\r\n");
  CHECK(write_answer(json({1, 2}), "application/jsonlines").body == "1\n2\n");
  CHECK(write_answer(json({1, 2}), "text/html, */*;q=0.1").body == "[1,2]");
  CHECK_THROWS_AS(write_answer(json({1, 2}), "image/png"), HttpError);
}

}  // namespace shardline::answers_test
