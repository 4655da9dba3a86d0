#include "engine/observe/tensorboard.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/error.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::tensorboard_test {
namespace {

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

std::string contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

}  // namespace

TEST_CASE("CRC-32C gives the published values") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);  // RFC 3720, B.4
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
}

// The expected bytes were written by the package tensorboard 2.21.0 (its RecordWriter and protobuf classes).
TEST_CASE("records are byte for byte those of TensorBoard's own writer") {
  CHECK(hex(tensorboard_version_record(1700000000.5)) ==
        "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110");
  CHECK(hex(tensorboard_record(1700000000.5, 300,
                               {{"train/loss", 3.25}, {"eval/loss", std::numeric_limits<double>::quiet_NaN()}})) ==
        "33000000000000000ca720560900002040fc54d94110ac022a250a110a0a747261696e2f6c6f737315000050400a100a096576616c2f6c"
        "6f7373150000c07fefbd18c7");
}

TEST_CASE("the event file begins with its version and uses Hugging Face's tags") {
  const ScratchFolder folder;
  const std::string directory = folder.path() + "/runs/a";
  double now = 1700000000.5;
  TensorBoardWriter writer(directory, [&] { return now; });
  CHECK(std::filesystem::path(writer.path()).filename().string().starts_with("events.out.tfevents.1700000000."));

  std::string expected = tensorboard_version_record(now);
  CHECK(contents(writer.path()) == expected);

  now += 1;
  StepMetrics step;
  step.step = 2;
  step.loss = 3.5;
  step.peak_memory_bytes = {{1, 20}, {1, 30}, {1, 10}};
  writer.add(step);
  expected += tensorboard_record(now, 2,
                                 {{"train/loss", 3.5},
                                  {"train/grad_norm", 0},
                                  {"train/learning_rate", 0},
                                  {"train/epoch", 0},
                                  {"train/step_seconds", 0},
                                  {"train/tokens_per_second", 0},
                                  {"train/samples_per_second", 0},
                                  {"train/bubble_fraction", 0},
                                  {"train/exposed_communication_fraction", 0},
                                  {"train/peak_memory_bytes", 30}});
  CHECK(contents(writer.path()) == expected);

  writer.add(EvaluationMetrics{2, 0, {{"eval_loss", 3}, {"accuracy", 0.5}}});
  expected += tensorboard_record(now, 2, {{"eval/loss", 3}, {"eval/accuracy", 0.5}});
  CHECK(contents(writer.path()) == expected);
}

TEST_CASE("events that cannot be read are an error, not an empty file") {
  const ScratchFolder folder;
  for (const std::string& path : {folder.path(), folder.path() + "/missing"}) {
    CHECK_THROWS_AS(keep_events_until(path, 3), RunError);
    CHECK_THROWS_WITH(keep_events_until(path, 3), Catch::Matchers::Contains(path + ": cannot be read"));
  }
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/missing"));
}

TEST_CASE("a directory that cannot be made is an error that names it") {
  CHECK_THROWS_AS(TensorBoardWriter("/dev/null/runs"), RunError);
  CHECK_THROWS_WITH(TensorBoardWriter("/dev/null/runs"), Catch::Matchers::Contains("/dev/null/runs"));
}

}  // namespace shardline::tensorboard_test
