// Delayed initialisation: while a rank builds and fills its stage, it never holds more than its own share plus one
// tensor, however large the model is.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"

#include "tests/catch.h"

namespace shardline::start_memory_test {
namespace {

// Counts the bytes of tensors that this thread allocates and frees.
class AllocationCounter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, peak = 0;
};

struct Measured {
  int64_t peak = 0, stored = 0, largest = 0;  // bytes
};

Measured build_and_fill(const nlohmann::json& model, int p, int t, const CommunicatorPtr& world) {
  const nlohmann::json file = {{"model", model},
                               {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 8}}},
                               {"training", {{"global_batch_size", 1}}},
                               {"smp_options", {{"pipeline_parallel_degree", p}, {"tensor_parallel_degree", t}}},
                               {"runtime", {{"communicator", world->size() == 1 ? "local" : "threads"}}},
                               {"output_dir", "unused"}};
  const Config config = parse_config(file.dump(), "memory test");
  const auto [source, machines, plan] = plan_model(config, world->size());
  const RankGroups groups = make_rank_groups(plan.layout.mesh(), world, world);

  auto counter = std::make_shared<AllocationCounter>();
  c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  RankTrainer trainer({config, plan, source, groups, at::kCPU}, /*total_steps=*/0);
  fill_parameters(config.model, source, 1, trainer.parameters());
  Measured measured{.peak = counter->peak};
  for (const auto* parameter : trainer.parameters().stored()) {
    const auto bytes = static_cast<int64_t>(parameter->value.nbytes());
    measured.stored += (bytes + 127) / 128 * 128;  // buffers are padded
    measured.largest = std::max(measured.largest, bytes);
  }
  return measured;
}

}  // namespace

TEST_CASE("while it starts, a rank never holds more than its share and one tensor") {
  const nlohmann::json random = {
      {"config", {{"model_type", "gpt2"}, {"n_layer", 6}, {"n_head", 6}, {"n_embd", 96}, {"vocab_size", 1009}}}};
  const nlohmann::json pretrained = {{"path", cat(SHARDLINE_GOLDEN, "/tied/model")}};
  const auto [p, t] = GENERATE(table<int, int>({{1, 1}, {2, 2}, {3, 1}, {1, 4}}));
  const bool from_file = GENERATE(false, true);
  CAPTURE(p, t, from_file);
  run_ranks(p * t, [&, p = p, t = t](CommunicatorPtr world) {
    const Measured m = build_and_fill(from_file ? pretrained : random, p, t, world);
    if (m.stored == 0 || m.peak < m.stored || m.peak > m.stored + m.largest)
      throw RunError(cat("peak ", m.peak, " bytes, share ", m.stored, ", largest tensor ", m.largest));
  });
  SUCCEED();
}

}  // namespace shardline::start_memory_test
