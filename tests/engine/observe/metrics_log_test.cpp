#include "engine/observe/metrics_log.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::metrics_log_test {
namespace {

std::string contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

StepMetrics some_step() {
  StepMetrics metrics;
  metrics.step = 1;
  metrics.epoch = 0.125;
  metrics.loss = 10.5;
  metrics.grad_norm = 0.1;
  metrics.learning_rate = 3e-5;
  metrics.tokens = 4096;
  metrics.step_seconds = 0.5;
  metrics.tokens_per_second = 8192;
  metrics.samples_per_second = 8;
  metrics.bubble_fraction = 0.25;
  metrics.exposed_communication_fraction = 0.125;
  metrics.peak_memory_bytes = {{10, 20}, {30, 5000000000}};
  return metrics;
}

}  // namespace

TEST_CASE("a step is one line with the keys that scripts rely on") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  MetricsLog log(path);
  log.add(some_step());
  // The file can be read while the log is still open.
  CHECK(contents(path) ==
        R"({"step":1,"epoch":0.125,"loss":10.5,"grad_norm":0.1,"learning_rate":3e-05,"tokens":4096,"step_seconds":0.5,)"
        R"("tokens_per_second":8192.0,"samples_per_second":8.0,"bubble_fraction":0.25,)"
        R"("exposed_communication_fraction":0.125,)"
        R"("peak_memory_bytes":[{"counted":10,"resident":20},{"counted":30,"resident":5000000000}]})"
        "\n");
}

TEST_CASE("numbers are read back with the same bits") {
  const ScratchFolder folder;
  StepMetrics metrics = some_step();
  metrics.loss = 3.2145678901234567;
  metrics.learning_rate = 5e-324;
  metrics.tokens = std::numeric_limits<int64_t>::max();
  MetricsLog(folder.path() + "/m").add(metrics);
  const auto line = nlohmann::json::parse(contents(folder.path() + "/m"));
  CHECK(line["loss"].get<double>() == metrics.loss);
  CHECK(line["learning_rate"].get<double>() == metrics.learning_rate);
  CHECK(line["tokens"].get<int64_t>() == metrics.tokens);
}

TEST_CASE("numbers that JSON cannot represent are written as null and listed by name") {
  const ScratchFolder folder;
  StepMetrics metrics = some_step();
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  MetricsLog log(folder.path() + "/m");
  log.add(metrics);
  log.add(EvaluationMetrics{7, 0.5, {{"eval_loss", -std::numeric_limits<double>::infinity()}, {"eval_runtime", 2}}});
  std::istringstream lines(contents(folder.path() + "/m"));
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  const auto step = nlohmann::json::parse(first);
  CHECK(step["loss"].is_null());
  CHECK(step["grad_norm"].is_null());
  CHECK(step["non_finite"] == nlohmann::json({{"loss", "nan"}, {"grad_norm", "inf"}}));
  CHECK(step["tokens"] == 4096);
  CHECK(second == R"({"step":7,"epoch":0.5,"eval_loss":null,"eval_runtime":2.0,"non_finite":{"eval_loss":"-inf"}})");
}

TEST_CASE("an existing log is continued") {
  const ScratchFolder folder;
  for (int run = 0; run < 2; ++run) MetricsLog(folder.path() + "/m").add(EvaluationMetrics{run, 0, {}});
  CHECK(contents(folder.path() + "/m") == "{\"step\":0,\"epoch\":0.0}\n{\"step\":1,\"epoch\":0.0}\n");
}

TEST_CASE("records that cannot be read are an error, not an empty log") {
  const ScratchFolder folder;
  for (const std::string& path : {folder.path(), folder.path() + "/missing"}) {
    CHECK_THROWS_AS(keep_metrics_until(path, 3), RunError);
    CHECK_THROWS_WITH(keep_metrics_until(path, 3), Catch::Matchers::Contains(path + ": cannot be read"));
  }
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/missing"));
}

TEST_CASE("a path that cannot be opened and a full disk are errors that name the file") {
  const ScratchFolder folder;
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(MetricsLog(folder.path() + "/no/m"), Contains(folder.path() + "/no/m") && Contains("No such file"));
  CHECK_THROWS_AS(MetricsLog(folder.path()), RunError);
  MetricsLog full("/dev/full");
  CHECK_THROWS_AS(full.add(some_step()), RunError);
  CHECK_THROWS_WITH(full.add(some_step()), Contains("/dev/full") && Contains("No space left"));
}

}  // namespace shardline::metrics_log_test
