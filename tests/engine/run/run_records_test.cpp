#include "engine/run/run_records.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <sstream>

#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "engine/config/config.h"
#include "tests/models/files/files.h"

#include "tests/catch.h"

namespace shardline::run_records_test {

using Catch::Contains;

namespace {

// While the object exists, files of this process cannot grow beyond a limit, as on a full disk.
struct SmallFiles {
  explicit SmallFiles(rlim_t bytes) : handler(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{bytes, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
  }
  rlimit before{};
  void (*handler)(int);
};

Config config_in(const std::string& directory) {
  const std::string text = cat(R"({"model": {"config": {"model_type": "gpt2"}},
    "data": {"train": "unused", "tokenizer": "bytes", "sequence_length": 8},
    "training": {"global_batch_size": 1, "report_to": "tensorboard"}, "output_dir": ")",
                               directory, "\"}");
  return parse_config(text, "records test");
}

std::string lines(const std::string& text, const std::string& word) {
  std::istringstream in(text);
  std::string found;
  for (std::string line; std::getline(in, line);)
    if (line.find(word) != std::string::npos) found += line + "\n";
  return found;
}

}  // namespace

TEST_CASE("records that cannot be written are reported once, do not end the run, and leave the others complete") {
  const ScratchDirectory scratch;
  const Config config = config_in(scratch.path());
  std::ostringstream out;
  RankContext context{.world = make_local_world(), .device_world = nullptr, .out = &out};
  RunRecords records(config, context, {.total = 100, .per_epoch = 100});
  records.open(config);
  const auto step = [&](int64_t number) { records.step({.step = number, .loss = 1}); };
  step(1);
  const auto metrics = [&] { return contents(scratch / "metrics.jsonl"); };
  const std::string first = metrics();
  CHECK(records.gaps().empty());
  {
    const SmallFiles full(first.size() + 10);  // a part of the line fits
    step(2);
    step(3);
  }
  CHECK(metrics() == first);
  step(4);
  CHECK(lines(metrics(), "\"step\":4").size() + first.size() == metrics().size());
  CHECK_THAT(records.gaps(), Contains("metrics.jsonl: 2 could not be written, first:") &&
                                 Contains("TensorBoard events: 2 could") && Contains("File too large"));
  CHECK_THAT(lines(out.str(), "warning: metrics.jsonl"), Contains("the run continues"));
  const std::string warnings = lines(out.str(), "warning: ");
  CHECK(std::count(warnings.begin(), warnings.end(), '\n') == 2);

  records.attempt("timeline", [] { throw std::bad_alloc(); });
  CHECK_THAT(records.gaps(), Contains("timeline: 1 could"));
  for (const char* reason : {"one reason", "another reason"})
    records.attempt(
        "checkpoints", [&] { throw RunError(reason); }, RunRecords::Shown::each);
  CHECK_THAT(records.gaps(), Contains("checkpoints: 2 could not be written, first: one reason"));
  CHECK_THAT(lines(out.str(), "warning: checkpoints"), Contains("one reason") && Contains("another reason"));
}

// A checkpoint's thread may still sync them to a slow disk while a failed run ends.
TEST_CASE("records can be synced after recording has ended") {
  const ScratchDirectory scratch;
  const Config config = config_in(scratch.path());
  std::ostringstream out;
  RankContext context{.world = make_local_world(), .device_world = nullptr, .out = &out};
  std::function<void()> sync;
  {
    RunRecords records(config, context, {.total = 100, .per_epoch = 100});
    sync = records.sync_function();
    sync();  // there is no file yet
    records.open(config);
    records.step({.step = 1, .loss = 1});
    sync();
  }
  sync();
  std::filesystem::remove(scratch / "metrics.jsonl");
  CHECK_THROWS_AS(sync(), RunError);
}

TEST_CASE("ranks without a console record nothing") {
  const Config config = parse_config(R"({"model": {"config": {"model_type": "gpt2"}},
    "data": {"train": "unused", "tokenizer": "bytes", "sequence_length": 8},
    "training": {"global_batch_size": 1}, "output_dir": "/nonexistent/directory"})",
                                     "records test");
  RankContext context{.world = make_local_world(), .device_world = nullptr};
  RunRecords records(config, context, {.total = 1, .per_epoch = 1});
  records.open(config);
  records.step({.step = 1});
  records.finish();
  CHECK(records.gaps().empty());
  CHECK_FALSE(records.show("work"));
}

}  // namespace shardline::run_records_test
