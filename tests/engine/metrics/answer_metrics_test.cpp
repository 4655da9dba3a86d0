#include "engine/metrics/answer_metrics.h"

#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/metrics/answer_tokens.h"
#include "tests/engine/metrics/golden.h"

namespace shardline::answer_metrics_test {
namespace {

using Texts = std::vector<std::string>;

std::string joined(const Texts& tokens) {
  std::string text;
  for (const auto& token : tokens) text += (text.empty() ? "" : " ") + token;
  return text;
}

void check_means(const std::optional<AnswerMeans>& means, const nlohmann::json& metrics, const std::string& prefix) {
  INFO("prefix \"" << prefix << "\"");
  REQUIRE(means.has_value() == metrics.contains(prefix + "total"));
  if (!means) return;
  CHECK(is_near(means->exact, metrics.at(prefix + "exact")));
  CHECK(is_near(means->f1, metrics.at(prefix + "f1")));
  CHECK(means->total == metrics.at(prefix + "total"));
}

}  // namespace

TEST_CASE("answers are compared in the form of SQuAD's script") {
  for (const auto& c : golden_cases("tokens")) {
    INFO(c.dump());
    CHECK(joined(answer_tokens(c[0].get<std::string>())) == c[1]);
  }
}

TEST_CASE("case, punctuation, articles and white space of answers are ignored") {
  CHECK(answer_tokens("The  U.S.A.'s\tanthem, an\nX") == Texts{"usas", "anthem", "x"});
  CHECK(answer_tokens("a.an") == Texts{"aan"});
  CHECK(answer_tokens("\xE2\x82\xAC"
                      "a\xE2\x82\xAC") == Texts{"\xE2\x82\xAC", "\xE2\x82\xAC"});
  CHECK(answer_tokens("the \xCE\x9F\xCE\x94\xCE\x9F\xCE\xA3") == Texts{"\xCE\xBF\xCE\xB4\xCE\xBF\xCF\x82"});
  CHECK(answer_tokens(" ?!") == Texts{});
  CHECK(answer_tokens("") == Texts{});
  CHECK(answer_tokens("X\xFFY a\xFF \xE2\x82") == Texts{"x\xFFy", "\xFF", "\xE2\x82"});
}

TEST_CASE("an answer is compared with the best of the accepted answers") {
  const Texts gold = {"The cat", "black cat sat on the cat", "?"};
  CHECK(answer_score("cat!", gold).exact == 1);
  CHECK(answer_score("cat!", gold).f1 == 1);
  CHECK(answer_score("a cat cat dog", gold).exact == 0);
  CHECK(is_near(answer_score("a cat cat dog", gold).f1, 0.5));  // two common words of three and five
  CHECK(answer_score("", gold).exact == 0);
  CHECK(answer_score("", {}).exact == 1);
  CHECK(answer_score("the", Texts{"?"}).f1 == 1);
  CHECK(answer_score("cat", Texts{"?"}).f1 == 0);
}

TEST_CASE("metrics of answers equal those of SQuAD's script") {
  for (const auto& c : golden_cases("questions")) {
    INFO(c.dump());
    const auto& rows = c.at("questions");
    std::vector<AnsweredQuestion> questions;
    for (size_t i = 0; i < rows.size(); ++i) questions.push_back({rows[i][0], rows[i][1], c.at("probabilities")[i]});
    const AnswerMetrics ours = answer_metrics(questions, c.at("threshold"));
    const auto& theirs = c.at("metrics");
    check_means(ours.all, theirs, "");
    check_means(ours.has_answer, theirs, "HasAns_");
    check_means(ours.no_answer, theirs, "NoAns_");
    CHECK(is_near(ours.best_exact.score, theirs.at("best_exact")));
    CHECK(is_near(ours.best_exact.threshold, theirs.at("best_exact_thresh")));
    CHECK(is_near(ours.best_f1.score, theirs.at("best_f1")));
    CHECK(is_near(ours.best_f1.threshold, theirs.at("best_f1_thresh")));
  }
}

TEST_CASE("metrics of no questions are undefined, and a probability that is NaN is an internal error") {
  const AnswerMetrics none = answer_metrics({});
  CHECK(std::isnan(none.all.exact));
  CHECK(none.all.total == 0);
  CHECK_FALSE(none.has_answer);
  CHECK_FALSE(none.no_answer);
  const std::vector<AnsweredQuestion> nan = {{{}, "", std::numeric_limits<double>::quiet_NaN()}};
  CHECK_THROWS_AS(answer_metrics(nan), InvariantError);
}

}  // namespace shardline::answer_metrics_test
