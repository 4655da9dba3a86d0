// The answers that are computed from inputs, parameters and logits; tests/transformers/compare_serve.py compares them
// with the pipelines.
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
  CHECK(ask(model, {{"inputs", "a"}, {"parameters", {{"top_k", 2}, {"function_to_apply", "SIGMOID"}}}}) == apart);
  const json old = ask(model, {{"inputs", "a"}, {"parameters", {{"return_all_scores", true}}}});
  REQUIRE(old.size() == 1);  // as in transformers 4: a list for the text, with the labels in their order
  REQUIRE(old[0].size() == 3);
  CHECK(old[0][0]["label"] == "x");
  CHECK(old[0][2]["label"] == "z");
  CHECK(ask(model, {{"inputs", "a"}, {"parameters", {{"return_all_scores", false}}}})[0]["label"] == "z");

  CHECK(refusal(model, {{"inputs", {"a", 5}}}) ==
        "the request: /inputs/1: must be a string or {\"text\": ..., \"text_pair\": ...}; got 5");
  CHECK(refusal(model, {{"inputs", "a a a a a a a"}}).starts_with("the request: /inputs: has more than 8 tokens"));
  CHECK(refusal(model, {{"inputs", "a"}, {"parameters", {{"top_k", "2"}}}})
            .starts_with("the request: /parameters/top_k"));
  CHECK(refusal(model, {{"inputs", "a"}, {"parameters", {{"max_length", 3}}}}).find("without truncation") !=
        std::string::npos);
  CHECK(ask(model, {{"inputs", "a a a a a a a"}, {"parameters", {{"truncation", true}}}}).size() == 1);
}

TEST_CASE("tokens become entities") {
  // a: O, film: B-X, good: I-X, ##ing: a label that differs from that of its word.
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

TEST_CASE("answers consist of words of the context") {
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
  CHECK(refusal(model, {{"inputs", {{"question", "a"}, {"context", "  "}}}})
            .starts_with("the request: /inputs/context: has no tokens"));
  CHECK(refusal(model, {{"inputs", {{"question", "a"}, {"context", "a"}}}, {"parameters", {{"top_k", 101}}}})
            .starts_with("the request: /parameters/top_k: must be at most 100"));
}

TEST_CASE("the total number of windows of all contexts is bounded") {
  const FakeModel model(facts(Kind::question_answering), [](const Example& example) {
    return Logits{.width = 2, .values = std::vector<double>(2 * example.ids.size())};
  });
  std::string context;
  for (int i = 0; i < 6000; ++i) context += "a ";
  const json input = {{"question", "a"}, {"context", context}};
  const json parameters = {{"doc_stride", 3}};  // a new token in each window
  CHECK(refusal(model, {{"inputs", {input, input}}, {"parameters", parameters}})
            .starts_with("the request: /inputs/1: would bring the request to more than 10000 windows"));
}

TEST_CASE("work around the model ends with the time of the request") {
  class Late final : public ServedModel {
   public:
    using ServedModel::ServedModel;
    std::vector<Logits> logits(std::vector<Example> examples) const override {
      is_late_ = true;
      std::vector<Logits> made;
      for (const Example& example : examples) made.push_back(one_two_five(std::ssize(example.ids)));
      return made;
    }
    std::vector<std::vector<int32_t>> continued(std::vector<Continuation>) const override { return {}; }
    void require_time() const override {
      if (is_late_) throw HttpError(504, "late");
    }

   private:
    mutable bool is_late_ = false;
  };
  CHECK_THROWS_AS(ask(Late(facts(Kind::question_answering)), {{"question", "a"}, {"context", "film"}}), HttpError);
  CHECK_THROWS_AS(ask(Late(facts(Kind::token_classification, {"O", "X", "Y"})), {{"inputs", "film"}}), HttpError);
}

TEST_CASE("texts are truncated to the tokenizer's maximum") {
  ModelFacts shorter = facts(Kind::token_classification, {"O", "B-X", "I-X"});
  shorter.tokenizer_tokens = 5;
  const auto say = [](const Example& example) { return one_two_five(std::ssize(example.ids)); };
  CHECK(ask(FakeModel(shorter, say), {{"inputs", "a a a a a a a"}}).size() == 3);
  shorter.head = facts(Kind::sequence_classification, {"x", "y", "z"}).head;
  size_t tokens = 0;
  const FakeModel classes(shorter, [&](const Example& example) {
    tokens = example.ids.size();
    return one_two_five(1);
  });
  ask(classes, {{"inputs", "a a a a a a a"}, {"parameters", {{"truncation", true}}}});
  CHECK(tokens == 5);
  ask(classes, {{"inputs", "a a a a a a"}});  // what the model takes, without truncation
  CHECK(tokens == 8);
  CHECK(refusal(classes, {{"inputs", "a"}, {"parameters", {{"truncation", true}, {"max_length", 1}}}})
            .starts_with("the request: /inputs: "));
}

TEST_CASE("prompts are continued within the model's positions") {
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
  CHECK(refusal(model, {{"inputs", "abcdefghi"}}).find("truncation") == std::string::npos);
  ModelFacts words = facts(Kind::causal_lm);  // "[CLS] film [SEP]" goes on with [MASK], film, good, ##ing and a
  words.most_tokens = 16;
  const FakeModel of_words(words, {});
  CHECK(ask(of_words, {{"inputs", "film"}, {"parameters", {{"max_new_tokens", 5}}}})[0]["generated_text"] ==
        "film film gooding a");
  const json sampled = {{"do_sample", true}, {"max_new_tokens", 1}, {"seed", 3000000000}};
  CHECK(ask(model, {{"inputs", "a"}, {"parameters", sampled}}).size() == 1);
}

TEST_CASE("masks are filled with the requested words") {
  // Each word is half as probable as the previous one. They are ordered like the allowed words, or, if all words are
  // allowed, from the last to the first.
  const FakeModel model(facts(Kind::masked_lm), [](const Example& example) {
    const auto& [most, only] = example.words;
    Logits made{.width = 2 * most};
    for (const int32_t label : example.labels) {
      if (label == kNoLabel) continue;
      const int64_t known = only.empty() ? 9 : std::ssize(only);
      for (int64_t i = 0; i < most; ++i) made.values.push_back(i >= known ? 0 : only.empty() ? 8 - i : only[i]);
      for (int64_t i = 0; i < most; ++i) made.values.push_back(i >= known ? -INFINITY : -std::log(2) * (i + 1));
    }
    return made;
  });
  const json five = ask(model, {{"inputs", "a [MASK]"}});
  REQUIRE(five.size() == 5);
  CHECK(answer_of(read_invocation("\"a [MASK]\"\n", "application/jsonlines"), model) == json::array({five}));
  CHECK(five[0]["token_str"] == "a");
  CHECK(five[0]["sequence"] == "a a");
  CHECK(five[1]["score"].get<double>() == Approx(0.25));
  CHECK(ask(model, {{"inputs", "a [MASK]"}, {"parameters", {{"top_k", 7}}}}).size() == 7);
  CHECK(ask(model, {{"inputs", "a [MASK]"}, {"parameters", {{"top_k", 1000}}}}).size() == 9);
  // A word of the vocabulary, another one by its first token, and one of both twice.
  const json chosen =
      ask(model, {{"inputs", "[MASK] [MASK]"}, {"parameters", {{"targets", {"##ing", "gooding", "good"}}}}});
  REQUIRE(chosen.size() == 2);
  REQUIRE(chosen[1].size() == 2);
  CHECK(chosen[1][0]["token"] == 6);
  CHECK(chosen[1][1]["token"] == 7);
  CHECK(chosen[0][0]["sequence"] == "[CLS] good [MASK] [SEP]");
  CHECK(ask(model, {{"inputs", "[MASK]"}, {"parameters", {{"targets", "film"}, {"top_k", 3}}}}).size() == 1);
  // Padding is left out.
  CHECK(ask(model, {{"inputs", "[MASK] [MASK]"}, {"parameters", {{"top_k", 9}}}})[0][8]["sequence"] ==
        "[CLS] [MASK] [SEP]");

  CHECK(refusal(model, {{"inputs", "[MASK]"}, {"parameters", {{"top_k", 1001}}}})
            .starts_with("the request: /parameters/top_k: must be at most 1000"));
  CHECK(refusal(model, {{"inputs", "[MASK]"}, {"parameters", {{"targets", json::array()}}}})
            .starts_with("the request: /parameters/targets: contains no word"));
  CHECK(refusal(model, {{"inputs", "[MASK]"}, {"parameters", {{"targets", {"film", 5}}}}})
            .starts_with("the request: /parameters/targets/1: must be a string"));
  CHECK(refusal(model, {{"inputs", std::vector<std::string>(2000, "[MASK] [MASK] [MASK] [MASK] [MASK]")},
                        {"parameters", {{"top_k", 1000}}}})
            .find("makes the answer too large") != std::string::npos);
}

TEST_CASE("a long text is tagged in windows that share tokens") {
  // film: B-X, good: I-X; with less certainty at the end of a window.
  std::vector<std::vector<int32_t>> seen;
  const FakeModel model(facts(Kind::token_classification, {"O", "B-X", "I-X"}), [&](const Example& example) {
    seen.push_back(example.ids);
    Logits made{.width = 3};
    for (size_t i = 0; i < example.ids.size(); ++i) {
      const int best = example.ids[i] == 5 ? 1 : example.ids[i] == 6 ? 2 : 0;
      for (int label = 0; label < 3; ++label) made.values.push_back(label == best ? (i < 5 ? 3 : 2) : 0);
    }
    return made;
  });
  const json parameters = {{"aggregation_strategy", "simple"}, {"stride", 2}};
  const std::string text = "a a a a film good good a a film";
  const json found = ask(model, {{"inputs", text}, {"parameters", parameters}});
  CHECK(seen.size() == 2);  // 6 tokens of the text in each, which has 10
  REQUIRE(found.size() == 2);
  CHECK(found[0]["start"] == 8);
  CHECK(found[0]["end"] == 22);  // the longer one, of the second window
  CHECK(found[1]["start"] == 27);
  CHECK(ask(model, {{"inputs", text}, {"parameters", {{"aggregation_strategy", "simple"}}}})[0]["end"] == 17);
  // Among entities of equal length, the one with the highest score is kept.
  const json apart = ask(model, {{"inputs", "a a a a film a a a a a"}, {"parameters", parameters}});
  REQUIRE(apart.size() == 1);
  CHECK(apart[0]["score"].get<double>() == Approx(1 / (1 + 2 * std::exp(-3))));
  const json two = ask(model, {{"inputs", {"film", text}}, {"parameters", parameters}});
  CHECK(two[0].size() == 1);
  CHECK(two[1] == found);

  CHECK(refusal(model, {{"inputs", text}, {"parameters", {{"stride", 2}}}})
            .starts_with("the request: /parameters/stride: is available only if tokens"));
  CHECK(refusal(model, {{"inputs", text}, {"parameters", {{"aggregation_strategy", "max"}, {"stride", 6}}}})
            .starts_with("the request: /parameters/stride: must be less than 6, the tokens of a text in a window"));
  std::string much;
  for (int i = 0; i < 11000; ++i) much += "a ";
  CHECK(refusal(model, {{"inputs", much}, {"parameters", {{"aggregation_strategy", "max"}, {"stride", 5}}}})
            .find("would bring the request to more than 10000 windows") != std::string::npos);
}

TEST_CASE("parameters of text generation are read") {
  ModelFacts bytes = facts(Kind::causal_lm);
  bytes.tokenizer = load_tokenizer("bytes");
  bytes.vocab_size = 256;
  bytes.most_tokens = 100;
  bytes.ends = {10, 50256};
  const FakeModel model(bytes, {});
  const auto asked = [&](const json& parameters) {
    ask(model, {{"inputs", "ab"}, {"parameters", parameters}});
    REQUIRE(model.asked.size() == 1);
    return model.asked[0];
  };
  const auto refused = [&](const json& parameters) {
    return refusal(model, {{"inputs", "ab"}, {"parameters", parameters}});
  };
  CHECK(asked(json::object()).most_new == 98);
  CHECK(asked({{"max_length", 7}}).most_new == 5);
  CHECK(asked({{"max_length", 7}, {"max_new_tokens", 20}}).most_new == 20);
  CHECK(refused({{"max_length", 2}}).starts_with("the request: /inputs: has 2 tokens, and parameters.max_length"));
  CHECK(refused({{"max_length", 101}}).starts_with("the request: /parameters/max_length: must be at most 100"));

  CHECK(asked(json::object()).rules.change_nothing());
  const TokenRules rules =
      asked({{"repetition_penalty", 1.5}, {"no_repeat_ngram_size", 3}, {"min_new_tokens", 4}, {"num_beams", 1}}).rules;
  CHECK(rules.repetition_penalty == 1.5);
  CHECK(rules.no_repeat_ngram_size == 3);
  CHECK(rules.least_new == 4);
  CHECK(rules.ends == std::vector<int32_t>{10});  // without those that the model does not have
  CHECK(refused({{"repetition_penalty", 0}}).starts_with("the request: /parameters/repetition_penalty: must be"));
  CHECK(refused({{"num_beams", 4}}).find("beam search is not supported; got 4; leave it out") != std::string::npos);

  CHECK_FALSE(asked({{"stop", json::array()}}).stops);
  for (const char* name : {"stop", "stop_strings", "stop_sequence"})
    CHECK(asked({{name, "x"}}).stops->texts() == std::vector<std::string>{"x"});
  CHECK(asked({{"stop", {"x", "yz"}}}).stops->texts() == std::vector<std::string>{"x", "yz"});
  CHECK(refused({{"stop", {"x", ""}}}).starts_with("the request: /parameters/stop/1: is empty"));
  CHECK(refused({{"stop", 5}}).starts_with("the request: /parameters/stop: must be a string"));
  CHECK(refused({{"stop", "x"}, {"stop_strings", "x"}}).find("means the same") != std::string::npos);
  CHECK(refused({{"stop", std::string(257, 'x')}}).find("at most 256 bytes") != std::string::npos);
  CHECK(refused({{"stop", std::vector<std::string>(17, "x")}}).find("at most 16 texts") != std::string::npos);
}

TEST_CASE("request bodies of each type are read") {
  const auto inputs = [](const std::string& body, const char* type) {
    return read_invocation(body, type).document["inputs"];
  };
  CHECK(inputs("{\"inputs\": \"a\"}\n\n\"b\"\n", "application/jsonlines") == json({"a", "b"}));
  CHECK(inputs("inputs\n\"a, \"\"b\"\"\"\nc\n", "text/csv") == json({"a, \"b\"", "c"}));
  CHECK(inputs("inputs\na\n\n\"\"\nb\n", "text/csv") == json({"a", "", "b"}));
  CHECK_THROWS_WITH(inputs("this is a film\n", "text/csv"),
                    Catch::Matchers::Contains("the first row of CSV must name"));
  CHECK(inputs("question,context\na,b\n", "text/csv") == json::parse(R"([{"question": "a", "context": "b"}])"));
  CHECK_THROWS_WITH(inputs("inputs,id\na,1\n", "text/csv"), Catch::Matchers::Contains("which nothing reads: id"));
  CHECK(inputs("a\nb", "text/plain") == "a\nb");
  CHECK_THROWS_WITH(inputs(" \n", ""), "the request: has no body; send {\"inputs\": ...}");
  CHECK_THROWS_AS(read_invocation("x", "image/png"), HttpError);
  CHECK_THROWS_AS(read_invocation("\xff", "text/plain"), DataError);
  CHECK(write_answer(json::parse(R"([{"a": 1, "b": "x,\"y"}])"), "text/csv").body == "a,b\r\n1,\"x,\"\"y\"\r\n");
  CHECK(write_answer(json::parse(R"([[{"a": 1}, {"a": 2}], [], [{"a": 3}]])"), "text/csv").body ==
        "index,a\r\n0,1\r\n0,2\r\n2,3\r\n");
  CHECK(write_answer(json::parse(R"([[{"a": 1}], [[{"a": 2}], [{"a": 3}]]])"), "text/csv").body ==
        "index,index_2,a\r\n0,,1\r\n1,0,2\r\n1,1,3\r\n");
  CHECK(write_answer(json({1, 2}), "application/jsonlines").body == "1\n2\n");
  CHECK(write_answer(json({1, 2}), "text/html, */*;q=0.1").body == "[1,2]");
  CHECK_THROWS_AS(write_answer(json({1, 2}), "image/png"), HttpError);
}

TEST_CASE("an answer has the format to which the header Accept gives the greatest weight") {
  const auto type = [](const char* accept) { return write_answer(json::parse(R"([{"a": 1}])"), accept).content_type; };
  CHECK(type("") == "application/json");
  CHECK(type("text/csv, */*;q=0.1") == "text/csv");
  CHECK(type("text/csv;q=0.5, application/json; Q=0.8") == "application/json");
  CHECK(type("application/json, text/csv") == "application/json");
  CHECK(type("application/json;q=0, */*") == "text/csv");
  CHECK(type("application/jsonlines;q=0.2, application/json") == "application/json");
  CHECK(type("application/jsonlines, application/json") == "application/jsonlines");
  CHECK(type("application/*;q=0.5, text/*;q=0.6") == "text/csv");
  CHECK(type("application/json;q=many") == "application/json");
  CHECK_THROWS_AS(type("application/json;q=0"), HttpError);
  CHECK_THROWS_AS(type("*/*;q=0"), HttpError);
}

TEST_CASE("bodies with more values than inputs can have are refused before they are parsed") {
  const auto refused = [](const std::string& body, const char* type) {
    CHECK_THROWS_WITH(read_invocation(body, type),
                      "the request: has more than 320000 values; send at most 10000 inputs "
                      "in a request");
  };
  std::string objects, lines, fields(kMostValues, ',');
  for (int64_t i = 0; i < kMostValues; ++i) {
    objects += i == 0 ? "{}" : ",{}";
    lines += "{}\n";
  }
  refused("{\"inputs\":[" + objects + "]}", "application/json");
  refused(lines, "application/jsonlines");
  std::string names = "text";
  for (int i = 0; i < 4000; ++i) names += ",c" + std::to_string(i);
  std::string rows;
  for (int i = 0; i < 100; ++i) rows += "a" + fields.substr(0, 4000) + "\n";
  refused(names + "\n" + rows, "text/csv");
  const std::string text = "{\"inputs\":\"" + fields + "\\\"" + fields + "\"}";
  CHECK(read_invocation(text, "application/json").document["inputs"].get<std::string>().size() == 2 * kMostValues + 1);
}

}  // namespace shardline::answers_test
