// Requests to a served model. The first line of an input specifies a task, the content type and the accepted types, and
// the rest is the body: it is answered in the requested form, or refused with a status that blames the client. The
// model makes the same predictions for every input.
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/model/microbatch.h"
#include "engine/data/text/utf8.h"
#include "engine/serve/answers/answers.h"
#include "engine/serve/http/http_message.h"
#include "tensor_parallel/ops/cross_entropy.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::request_fuzz {
namespace {

using nlohmann::json;
using Kind = HeadChoice::Kind;

constexpr int64_t kMostTokens = 40;

// A vocabulary in which some words become several tokens; for text generation, the tokenizer "bytes".
TokenizerPtr tokenizer_for(Kind kind) {
  if (kind == Kind::causal_lm) return load_tokenizer("bytes");
  static const TokenizerPtr words = [] {
    std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (char c = 'a'; c <= 'z'; ++c) vocabulary += cat(c, "\n##", c, '\n');
    fuzz::fill_folder({{"vocab.txt", vocabulary + "film\ngood\n##ing\n.\n"}});
    return load_tokenizer(fuzz::folder());
  }();
  return words;
}

class Model final : public ServedModel {
 public:
  explicit Model(Kind kind) : ServedModel(facts_for(kind)) {}

  std::vector<Logits> logits(std::vector<Example> examples) const override {
    std::vector<Logits> made;
    for (const Example& example : examples) {
      FUZZ_REQUIRE(!example.ids.empty() && std::cmp_less_equal(example.ids.size(), kMostTokens), "an example of ",
                   example.ids.size(), " tokens");
      FUZZ_REQUIRE(example.types.size() == example.ids.size(), example.types.size(), " types");
      made.push_back(facts().head.kind == Kind::masked_lm ? best_words(example) : numbers(example));
    }
    return made;
  }

  std::vector<std::vector<int32_t>> continued(std::vector<Continuation> prompts) const override {
    std::vector<std::vector<int32_t>> made;
    for (const Continuation& prompt : prompts) {
      FUZZ_REQUIRE(!prompt.prompt.empty() && prompt.most_new > 0, "nothing to continue");
      FUZZ_REQUIRE(std::ssize(prompt.prompt) + prompt.most_new <= kMostTokens, "more than the model's positions");
      made.emplace_back(prompt.most_new, 'x');
    }
    return made;
  }

 private:
  static ModelFacts facts_for(Kind kind) {
    const TokenizerPtr tokenizer = tokenizer_for(kind);
    HeadChoice head{.kind = kind, .labels = 3, .names = {"O", "B-X", "I-X"}};
    if (kind == Kind::sequence_classification) head.problem = HeadChoice::Problem::single_label;
    return {.head = head,
            .tokenizer = tokenizer,
            .vocab_size = tokenizer->vocab_size(),
            .most_tokens = kMostTokens,
            .ends = {0}};
  }

  Logits numbers(const Example& example) const {
    const Kind kind = facts().head.kind;
    const int64_t rows = kind == Kind::sequence_classification ? 1 : std::ssize(example.ids);
    Logits made{.width = kind == Kind::question_answering ? 2 : 3};
    for (int64_t i = 0; i < rows * made.width; ++i) made.values.push_back((i * 7) % 5);
    return made;
  }

  Logits best_words(const Example& example) const {
    const auto& [most, only] = example.words;
    const int64_t known = only.empty() ? facts().vocab_size : std::ssize(only);
    Logits made{.width = 2 * most};
    for (const int32_t label : example.labels) {
      if (label == kNoLabel) continue;
      for (int64_t i = 0; i < most; ++i) made.values.push_back(i >= known ? 0 : only.empty() ? i : only[i]);
      for (int64_t i = 0; i < most; ++i)
        made.values.push_back(i >= known ? -std::numeric_limits<double>::infinity() : -1.0 - i);
    }
    return made;
  }
};

Kind kind_of(const std::string& name) {
  static const std::map<std::string, Kind> kinds = {{"masked-lm", Kind::masked_lm},
                                                    {"sequence-classification", Kind::sequence_classification},
                                                    {"token-classification", Kind::token_classification},
                                                    {"question-answering", Kind::question_answering},
                                                    {"seq2seq-lm", Kind::seq2seq_lm}};
  const auto found = kinds.find(name);
  return found == kinds.end() ? Kind::causal_lm : found->second;
}

void answer(const std::string& head, const std::string& body) {
  std::istringstream words(head);
  std::string task, type, accept;
  words >> task >> type >> accept;
  try {
    const Invocation request = read_invocation(body, media_type(type));
    FUZZ_REQUIRE(!request.each().empty(), "a request without inputs");
    const json made = answer_of(request, Model(kind_of(task)));
    const bool is_served = kind_of(task) != Kind::seq2seq_lm;
    FUZZ_REQUIRE(made.is_null() != is_served, "an answer of ", task, ": ", made.dump());
    if (!is_served) throw DataError("models of this task are not served");
    const AnswerBody written = write_answer(made, accept);
    FUZZ_REQUIRE(is_valid_utf8(written.body), "an answer that is no UTF-8");
    if (written.content_type == "application/json")
      FUZZ_REQUIRE(json::parse(written.body) == made, "an answer that is written as ", written.body);
  } catch (const HttpError& error) {
    FUZZ_REQUIRE(error.status >= 400 && error.status < 500, "status ", error.status);
    const json told = json::parse(error_response(error.status, error.what()).body);
    FUZZ_REQUIRE(told["code"] == error.status, told.dump());
    throw DataError(error.what());
  }
}

}  // namespace

FUZZ_TARGET(request) {
  const std::string text = fuzz::text_of(data, size);
  const size_t end = std::min(text.find('\n'), text.size());
  return fuzz::accepts(size, [&] { answer(text.substr(0, end), text.substr(std::min(end + 1, text.size()))); },
                       {.fixed = 16 << 20, .per_byte = 4096});
}

}  // namespace shardline::request_fuzz
