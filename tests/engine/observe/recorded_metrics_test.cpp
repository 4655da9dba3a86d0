#include "engine/observe/recorded_metrics.h"

#include <cmath>
#include <fstream>
#include <limits>

#include "core/error.h"
#include "engine/observe/metrics_log.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::recorded_metrics_test {

TEST_CASE("Records are read as MetricsLog wrote them", "[observe]") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  StepMetrics step{.step = 3,
                   .epoch = 0.5,
                   .loss = 2.25,
                   .grad_norm = std::numeric_limits<double>::infinity(),
                   .learning_rate = 1e-3,
                   .loss_scale = LossScale{1024, true},
                   .tokens = 77,
                   .step_seconds = 0.5,
                   .tokens_per_second = 154,
                   .samples_per_second = 16,
                   .bubble_fraction = 0.25,
                   .exposed_communication_fraction = 0.125,
                   .peak_memory_bytes = {{10, 200}, {30, 100}}};
  MetricsLog log(path);
  log.add(step);
  step.loss = std::nan("");
  step.peak_memory_bytes = {{20, 100}, {20, 150}};
  log.add(step);
  log.add(EvaluationMetrics{.step = 3, .epoch = 0.5, .values = {{"eval_loss", 1.5}, {"eval_f1", std::nan("")}}});
  std::ofstream(path, std::ios::app) << R"({"step": 4, "lo)";  // still being written
  const RecordedMetrics read = read_metrics(path);
  REQUIRE(read.steps.size() == 2);
  const StepMetrics& first = read.steps[0];
  CHECK(first.step == 3);
  CHECK(first.loss == 2.25);
  CHECK(std::isinf(first.grad_norm));
  CHECK(first.loss_scale->overflowed);
  CHECK(first.tokens == 77);
  CHECK(first.samples_per_second == 16);
  CHECK(first.bubble_fraction == 0.25);
  CHECK(first.exposed_communication_fraction == 0.125);
  CHECK(std::isnan(read.steps[1].loss));
  REQUIRE(read.most_memory.size() == 2);
  CHECK(read.most_memory[0].counted == 20);
  CHECK(read.most_memory[0].resident == 200);
  CHECK(read.most_memory[1].counted == 30);
  REQUIRE(read.evaluations.size() == 1);
  CHECK(read.evaluations[0].values[0].first == "eval_f1");
  CHECK(std::isnan(read.evaluations[0].values[0].second));
  CHECK(read.evaluations[0].values[1].second == 1.5);
}

TEST_CASE("Files that do not contain records are refused", "[observe]") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  CHECK_THROWS_AS(read_metrics(path), DataError);
  for (const char* text : {"x\n", "[1]\n", "{\"step\": 1.5}\n", "{\"step_seconds\": \"1\"}\n",
                           "{\"step_seconds\": 1, \"peak_memory_bytes\": [3]}\n"}) {
    std::ofstream(path) << text;
    CHECK_THROWS_AS(read_metrics(path), DataError);
  }
}

}  // namespace shardline::recorded_metrics_test
