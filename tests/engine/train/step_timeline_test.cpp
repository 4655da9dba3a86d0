#include "engine/train/step_timeline.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "tests/core/comm/communicator_suite.h"
#include "tests/core/comm/counting_communicator.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::step_timeline_test {

namespace {

constexpr int kRanks = 3;

Config config_with(const std::string& output_dir) {
  Config config;
  config.output_dir = output_dir;
  config.runtime.timeline_first_step = 1;
  config.runtime.timeline_steps = 1;
  return config;
}

Plan plan_of_replicas() {
  return {.layout = {.replicas = kRanks},
          .train = {"one", 1, 1, {0}, {{{Op::forward, 0, 0}, {Op::backward_input, 0, 0}}}}};
}

}  // namespace

TEST_CASE("step timelines: rank 0 writes every rank's part, and no other rank receives them") {
  const ScratchFolder folder;
  constexpr int kInstructions = 500;
  const Config config = config_with(folder.path());
  const Plan plan = plan_of_replicas();
  run_ranks(kRanks, [&](CommunicatorPtr world) {
    const auto counted = std::make_shared<testing::CountingCommunicator>(world);
    const RankContext context{.world = counted};
    RunRecords run(config, context, {.total = 1, .per_epoch = 1});
    StepTimelines timelines(config, plan, context, run);
    timelines.begin(1);
    StepRecords records{.start = 100.0 - world->rank(), .end = 200};
    for (int i = 0; i < kInstructions; ++i)
      records.instructions.push_back({{Op::forward, i, 0}, 100.0 + i * 0.1, 100.0 + i * 0.1 + 0.1, 0});
    counted->received_bytes = 0;
    timelines.finish(1, records);
    EXPECT(world->rank() == 0 || counted->received_bytes <= 64, counted->received_bytes);
  });
  const auto path = std::filesystem::path(folder.path()) / "timeline" / "step-1";
  std::ifstream in(path.string() + ".json");
  const auto trace = nlohmann::json::parse(in);
  std::map<int, int> spans;
  double first = 1e300;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    spans[event.at("pid").get<int>()] += event.value("cat", "") == "instructions";
    first = std::min(first, event.at("ts").get<double>());
  }
  CHECK(spans == std::map<int, int>{{0, kInstructions}, {1, kInstructions}, {2, kInstructions}});
  CHECK(first == 0);  // the start of rank 2, which comes last
  CHECK(std::filesystem::file_size(path.string() + ".html") > 1000);
}

TEST_CASE("step timelines: a file that cannot be written is a gap, and no rank waits for it") {
  const ScratchFolder folder;
  std::ofstream(folder.path() + "/file") << "in the way";
  const Config config = config_with(folder.path() + "/file");
  const Plan plan = plan_of_replicas();
  run_ranks(kRanks, [&](CommunicatorPtr world) {
    const RankContext context{.world = world};
    RunRecords run(config, context, {.total = 1, .per_epoch = 1});
    StepTimelines timelines(config, plan, context, run);
    timelines.begin(1);
    timelines.finish(1, {.start = 1, .end = 2});
    EXPECT((run.gaps().find("timeline: 1 could not be written") == 0) == (world->rank() == 0), run.gaps());
  });
}

}  // namespace shardline::step_timeline_test
