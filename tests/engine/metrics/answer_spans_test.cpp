#include "engine/metrics/answer_spans.h"

#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/engine/metrics/golden.h"

namespace shardline::answer_spans_test {
namespace {

// Owns what an AnswerWindow views.
struct Window {
  std::vector<float> start, end;
  std::vector<std::optional<AnswerSpan>> offsets;
  std::vector<uint8_t> most_context = {};

  operator AnswerWindow() const { return {start, end, offsets, most_context}; }
};

Window read_window(const nlohmann::json& c) {
  Window window = {c.at("start"), c.at("end"), {}, c.value("most_context", std::vector<uint8_t>())};
  for (const auto& place : c.at("offsets")) {
    auto& offsets = window.offsets.emplace_back();
    if (!place.is_null()) offsets = AnswerSpan{place[0], place[1]};
  }
  return window;
}

AnswerChoice choose(const std::vector<Window>& windows, const AnswerOptions& options = {}) {
  return choose_answers(std::vector<AnswerWindow>(windows.begin(), windows.end()), options);
}

// The text of the chosen answer.
std::string_view answer_text(const AnswerChoice& choice, std::string_view context) {
  return shardline::answer_text(choice.answer(), context);
}

// A context of one-letter words, each of which is a token, after the token that stands for "no answer".
Window letters(std::vector<float> start, std::vector<float> end) {
  Window window = {std::move(start), std::move(end), {std::nullopt}};
  for (int64_t i = 1; i < std::ssize(window.start); ++i) window.offsets.push_back(AnswerSpan{2 * i - 2, 2 * i - 1});
  return window;
}
constexpr auto kLetters = "a b c d e f";

}  // namespace

TEST_CASE("answers equal those of transformers' run_qa") {
  for (const auto& c : golden_cases("spans")) {
    INFO(c.dump());
    const std::string context = c.at("context");
    const auto& theirs = c.at("result");
    AnswerOptions options;
    options.n_best = c.at("options").at("n_best_size");
    options.max_tokens = c.at("options").at("max_answer_length");
    options.may_be_none = c.at("options").at("version_2_with_negative");
    options.null_score_diff_threshold = c.at("options").at("null_score_diff_threshold");
    std::vector<Window> windows;
    for (const auto& window : c.at("windows")) windows.push_back(read_window(window));
    const AnswerChoice ours = choose(windows, options);
    CHECK(answer_text(ours, context) == theirs.at("text"));
    CHECK(ours.null_score_diff == theirs.value("null_score_diff", 0.0f));
    const auto& best = theirs.at("best");
    REQUIRE(ours.best.size() == best.size());
    for (size_t i = 0; i < best.size(); ++i) {
      INFO("answer " << i);
      CHECK(answer_text(ours.best[i], context) == best[i][0]);
      CHECK(ours.best[i].start_logit == best[i][1].get<float>());
      CHECK(ours.best[i].end_logit == best[i][2].get<float>());
      // The reference computes them in single precision.
      CHECK(ours.best[i].probability == Approx(best[i][3].get<double>()).epsilon(2e-6).margin(1e-30));
    }
  }
}

TEST_CASE("an answer ends at or after its beginning and is not too long") {
  const std::vector<Window> windows = {letters({0, 1, 5, 0}, {0, 4, 1, 3})};
  CHECK(answer_text(choose(windows), kLetters) == "b c");
  CHECK(answer_text(choose(windows, {.max_tokens = 1}), kLetters) == "b");
}

TEST_CASE("probabilities are a softmax over the list") {
  const AnswerChoice choice = choose({letters({0, 2, 1}, {0, 2, 1})}, {.may_be_none = true});
  REQUIRE(choice.best.size() == 4);  // "a", "a b", "b", nothing
  const double sum = std::exp(0.0) + std::exp(-1.0) + std::exp(-2.0) + std::exp(-4.0);
  CHECK(choice.best[0].probability == Approx(1 / sum));
  CHECK(choice.best[3].probability == Approx(std::exp(-4.0) / sum));
  CHECK(choice.best[3].span == AnswerSpan());
}

TEST_CASE("no answer has the lowest score of all windows, and wins above the threshold") {
  const std::vector<Window> windows = {letters({9, 1, 1}, {9, 1, 1}), letters({2, 1, 1}, {3, 1, 1})};
  const AnswerChoice choice = choose(windows, {.may_be_none = true});
  CHECK(choice.null_score_diff == 3);
  CHECK_FALSE(choice.chosen);
  CHECK(answer_text(choice, kLetters) == "");
  const AnswerChoice text = choose(windows, {.may_be_none = true, .null_score_diff_threshold = 3});
  CHECK(answer_text(text, kLetters) == "b");  // of equal logits, the later one
}

TEST_CASE("the empty answer stays in a list that would be too short for it") {
  const AnswerChoice choice = choose({letters({-9, 2, 1}, {-9, 2, 1})}, {.n_best = 2, .may_be_none = true});
  REQUIRE(choice.best.size() == 3);
  CHECK(choice.best[2].start_logit == -9);
}

TEST_CASE("a list without text gets a placeholder") {
  const Window outside = {{1, 2}, {1, 2}, {std::nullopt, std::nullopt}};
  const Window empty = {{0, 5, 5}, {0, 5, 5}, {std::nullopt, AnswerSpan{3, 3}, AnswerSpan{3, 3}}};
  for (const auto& windows : {std::vector{outside}, std::vector{empty}}) {
    const AnswerChoice choice = choose(windows, {.may_be_none = true, .null_score_diff_threshold = 100});
    CHECK(choice.best[0].placeholder);
    CHECK(answer_text(choice, kLetters) == "empty");
  }
  CHECK(answer_text(choose({outside}), kLetters) == "empty");
  CHECK(answer_text(choose({empty}), kLetters) == "");
}

TEST_CASE("answers begin where their token has the most context") {
  Window window = letters({0, 3, 2, 1}, {0, 1, 2, 3});
  window.most_context = {0, 0, 1, 1};
  CHECK(answer_text(choose({window}), kLetters) == "b c");
}

TEST_CASE("logits that are not finite are an error that names their place") {
  const Window good = letters({0, 1}, {0, 1});
  Window bad = good;
  bad.end[1] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH(choose({good, bad}),
                    Catch::Contains("the end logit of token 1 in window 1") && Catch::Contains("nan"));
  bad = good;
  bad.start[0] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_AS(choose({bad}), RunError);
}

TEST_CASE("windows without tokens, or with arrays that differ in length, are refused") {
  CHECK_THROWS_AS(choose({}), InvariantError);
  CHECK_THROWS_AS(choose({Window()}), InvariantError);
  Window window = letters({0, 1}, {0, 1});
  window.offsets.pop_back();
  CHECK_THROWS_AS(choose({window}), InvariantError);
  CHECK_THROWS_AS(answer_text(choose({letters({0, 1}, {0, 1})}), ""), InvariantError);
}

}  // namespace shardline::answer_spans_test
