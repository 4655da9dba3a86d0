#include "engine/metrics/tagging_metrics.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "tests/engine/metrics/golden.h"

namespace shardline::tagging_metrics_test {
namespace {

using Sentences = std::vector<std::vector<std::string>>;

TaggingMetrics metrics_of(const Sentences& predictions, const Sentences& labels) {
  const auto views = [](const Sentences& sentences) {
    std::vector<Tags> tags;
    for (const auto& sentence : sentences) tags.emplace_back(sentence.begin(), sentence.end());
    return tags;
  };
  return tagging_metrics(views(predictions), views(labels));
}

bool is_near(const EntityScores& ours, const nlohmann::json& theirs) {
  return shardline::is_near(ours.scores, theirs) && ours.number == theirs[3];
}

}  // namespace

TEST_CASE("scores of entities equal those of seqeval") {
  for (const auto& c : golden_cases("tagging")) {
    INFO(c.dump());
    const TaggingMetrics ours = metrics_of(c.at("predictions"), c.at("labels"));
    CHECK(is_near(ours.overall, c.at("overall")));
    CHECK(shardline::is_near(ours.accuracy, c.at("accuracy")));
    const auto& types = c.at("types");
    CHECK(ours.by_type.size() == types.size());
    for (const auto& [type, scores] : ours.by_type) {
      INFO(type);
      REQUIRE(types.contains(type));
      CHECK(is_near(scores, types.at(type)));
    }
  }
}

TEST_CASE("an entity is correct if all of its words are") {
  const Sentences labels = {{"O", "B-PER", "I-PER"}, {"B-LOC", "O"}};
  const TaggingMetrics metrics = metrics_of({{"O", "B-PER", "O"}, {"B-LOC", "O"}}, labels);
  CHECK(metrics.accuracy == 0.8);
  CHECK(metrics.overall.scores.f1 == 0.5);
  CHECK(metrics.overall.number == 2);
  CHECK(metrics.by_type.at("PER").scores.recall == 0);
  CHECK(metrics.by_type.at("LOC").scores.precision == 1);
}

TEST_CASE("all schemes give the same entities") {
  const Sentences labels = {{"B-X", "I-X", "B-X", "O", "B-Y", "B-X"}};
  for (const Sentences& same :
       {Sentences{{"I-X", "I-X", "B-X", "O", "I-Y", "I-X"}}, Sentences{{"I-X", "E-X", "E-X", "O", "E-Y", "E-X"}},
        Sentences{{"B-X", "E-X", "S-X", "O", "S-Y", "S-X"}}}) {
    CHECK(metrics_of(same, labels).overall.scores.f1 == 1);
  }
}

TEST_CASE("entities end at the end of their sentence") {
  CHECK(metrics_of({{"B-X"}, {"I-X"}}, {{"B-X"}, {"B-X"}}).overall.scores.f1 == 1);
}

TEST_CASE("sentences without words have no accuracy and no entities") {
  const TaggingMetrics metrics = metrics_of({{}, {}}, {{}, {}});
  CHECK(std::isnan(metrics.accuracy));
  CHECK(metrics.overall.scores.f1 == 0);
  CHECK(metrics.by_type.empty());
}

TEST_CASE("an empty tag is an error that names its place, and lengths must agree") {
  CHECK_THROWS_WITH(metrics_of({{"O"}, {"O", ""}}, {{"O"}, {"O", "O"}}), Catch::Contains("word 1 of sentence 1"));
  CHECK_THROWS_AS(metrics_of({{"O", ""}}, {{"O", "O"}}), DataError);
  CHECK_THROWS_AS(metrics_of({{"O"}}, {{"O"}, {"O"}}), InvariantError);
  CHECK_THROWS_AS(metrics_of({{"O"}}, {{"O", "O"}}), InvariantError);
}

}  // namespace shardline::tagging_metrics_test
