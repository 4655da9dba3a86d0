#include "engine/metrics/classification_metrics.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "tests/engine/metrics/golden.h"

namespace shardline::classification_metrics_test {
namespace {

using Classes = std::vector<int64_t>;

bool are_near(const PrecisionRecall& scores, double precision, double recall, double f1) {
  return is_near(scores, nlohmann::json{precision, recall, f1});
}

}  // namespace

TEST_CASE("scores of classes equal those of scikit-learn") {
  for (const auto& c : golden_cases("classification")) {
    INFO(c.dump());
    const Classes predictions = c.at("predictions");
    const Classes labels = c.at("labels");
    const auto& scores = c.at("scores");
    CHECK(is_near(accuracy(predictions, labels), c.at("accuracy")));
    CHECK(is_near(matthews_correlation(predictions, labels), c.at("matthews")));
    CHECK(is_near(binary_scores(predictions, labels), scores.at("binary")));
    CHECK(is_near(average_scores(predictions, labels, Average::macro), scores.at("macro")));
    CHECK(is_near(average_scores(predictions, labels, Average::micro), scores.at("micro")));
    CHECK(is_near(average_scores(predictions, labels, Average::weighted), scores.at("weighted")));
  }
}

TEST_CASE("scores of examples with several labels equal those of scikit-learn") {
  for (const auto& c : golden_cases("multi_label")) {
    INFO(c.dump());
    CHECK(
        is_near(multi_label_scores(c.at("predictions").get<Classes>(), c.at("labels").get<Classes>()), c.at("micro")));
  }
}

TEST_CASE("scores of classes that were counted by hand") {
  const Classes predictions = {1, 1, 0, 2};
  const Classes labels = {1, 0, 0, 0};
  CHECK(accuracy(predictions, labels) == 0.5);
  CHECK(are_near(binary_scores(predictions, labels), 0.5, 1, 2.0 / 3));
  CHECK(are_near(binary_scores(predictions, labels, 0), 1, 1.0 / 3, 0.5));
  CHECK(are_near(binary_scores(predictions, labels, 7), 0, 0, 0));
  CHECK(are_near(average_scores(predictions, labels, Average::micro), 0.5, 0.5, 0.5));
  CHECK(are_near(average_scores(predictions, labels, Average::macro), 0.5, 4.0 / 9, 7.0 / 18));
  CHECK(are_near(average_scores(predictions, labels, Average::weighted), 0.875, 0.5, 13.0 / 24));
}

TEST_CASE("without examples, accuracy is undefined and all other scores are 0") {
  CHECK(is_near(accuracy({}, {}), nullptr));
  CHECK(matthews_correlation({}, {}) == 0);
  CHECK(are_near(binary_scores({}, {}), 0, 0, 0));
  for (const Average average : {Average::macro, Average::micro, Average::weighted}) {
    CHECK(are_near(average_scores({}, {}, average), 0, 0, 0));
  }
}

TEST_CASE("correlation of many examples does not overflow") {
  const int64_t many = 3'000'000;
  Classes labels(many);
  for (int64_t i = 0; i < many; ++i) labels[i] = i % 3;
  CHECK(is_near(matthews_correlation(labels, labels), 1.0));
}

TEST_CASE("as many predictions as labels are needed") {
  const Classes two = {0, 1};
  const Classes three = {0, 1, 1};
  CHECK_THROWS_AS(accuracy(two, three), InvariantError);
  CHECK_THROWS_AS(matthews_correlation(three, two), InvariantError);
}

}  // namespace shardline::classification_metrics_test
