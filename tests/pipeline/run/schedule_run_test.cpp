// Runs every schedule on the executor, with chunks on any stages.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <mutex>

#include "core/comm/threads_communicator.h"
#include "core/memory/caching_allocator.h"
#include "pipeline/run/executor.h"
#include "pipeline/schedule/checker.h"
#include "pipeline/schedule/files/schedule_file.h"
#include "pipeline/schedule/kinds/schedule_generators.h"
#include "tests/pipeline/mutants.h"
#include "tests/pipeline/schedules.h"

#include "tests/catch.h"

namespace shardline::schedule_run_test {
namespace {

constexpr int kLayers = 12;
constexpr int64_t kHidden = 3, kLength = 2;

// y = tanh(x + w); w's gradient is deferred. The first layer begins with the ids, the last returns the scaled sum.
class TanhLayer : public Layer {
 public:
  explicit TanhLayer(int index)
      : index_(index),
        weight_(at::full({kHidden}, 0.1 * (index + 1), at::kDouble)),
        gradient_(at::zeros({kHidden}, at::kDouble)) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    const auto x = index_ == 0 ? context.batch->ids.to(at::kDouble).view({-1, 1}).expand({-1, kHidden}) : input.at(0);
    const bool train = context.mode == Mode::train;
    const auto w = weight_.detach().requires_grad_(train);
    const auto y = (x + w).tanh();
    if (train)
      w.register_hook([this, queue = context.weight_grads](const at::Tensor& dw) {
        queue->push({}, {}, [this, dw](const auto&, const auto&) { gradient_.add_(dw); });
      });
    if (index_ + 1 < kLayers) return {y};
    context.loss = {y.sum().item<double>(), static_cast<double>(context.batch->tokens())};
    return train ? Border{y.sum() * context.loss_scale} : Border{};
  }
  const at::Tensor& gradient() const { return gradient_; }

 private:
  int index_;
  at::Tensor weight_, gradient_;
};

struct Store : ParameterStore {
  std::vector<int> ready = std::vector<int>(kLayers);
  void acquire(int) override {}
  void release(int) override {}
  void begin_run(std::vector<int>) override {}
  void open_gradients(int, bool) override {}
  void close_gradients(int layer, bool deferred, bool last) override { ready[layer] += deferred && last; }
  void settle_gradients() override {}
};

struct Result {
  std::vector<at::Tensor> gradients = std::vector<at::Tensor>(kLayers);
  std::vector<double> losses, evaluated;  // by microbatch
};

ModelSpec tanh_spec() {
  ModelSpec spec;
  for (int i = 0; i < kLayers; ++i)
    spec.layers.push_back({.name = std::to_string(i), .output = {{"hidden", {BorderTensor::kRows, kHidden}}}});
  return spec;
}

// Microbatches whose numbers of samples are `samples`, twice as many, and none, in turn.
std::vector<Microbatch> microbatches_of(const Schedule& schedule, int64_t samples = 1) {
  std::vector<Microbatch> microbatches;
  for (int64_t i = 0; i < schedule.microbatches; ++i) {
    const at::Tensor ids = at::full({(i + 1) % 3 * samples, kLength}, i, at::kLong);
    microbatches.push_back(causal_microbatch(ids, ids));
  }
  return microbatches;
}

StageLayers layers_of_stage(const ModelSpec& spec, const Schedule& schedule, int rank) {
  StageLayers stage{.spec = &spec, .activations = at::TensorOptions().dtype(at::kDouble)};
  stage.layers.resize(kLayers);
  for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
    const Range range = split_range(kLayers, schedule.chunks(), chunk);
    stage.layers_of_chunk.emplace_back();
    for (auto i = static_cast<int>(range.begin); i < range.end(); ++i) {
      stage.layers_of_chunk.back().push_back(i);
      if (schedule.stage_of_chunk[chunk] == rank) stage.layers[i] = std::make_unique<TanhLayer>(i);
    }
  }
  return stage;
}

Result run(const Schedule& schedule) {
  const ModelSpec spec = tanh_spec();
  const auto microbatches = microbatches_of(schedule);
  const auto forward = forward_schedule(schedule.stage_of_chunk, schedule.stages, schedule.microbatches);
  Result result;
  std::mutex mutex;
  run_ranks(schedule.stages, [&](CommunicatorPtr pp) {
    StageLayers stage = layers_of_stage(spec, schedule, pp->rank());
    Store store;
    Executor executor(stage, *pp, store);
    const auto done = executor.run(schedule, microbatches, {.mode = Mode::train, .loss_scale = 0.5});
    const auto seen = executor.run(forward, microbatches, {.mode = Mode::evaluate});
    std::scoped_lock lock(mutex);
    for (size_t i = 0; i < kLayers; ++i) {
      CHECK(store.ready[i] == (stage.layers[i] ? 1 : 0));
      if (stage.layers[i]) result.gradients[i] = static_cast<TanhLayer&>(*stage.layers[i]).gradient();
    }
    if (pp->rank() != schedule.stage_of_chunk.back()) return;
    for (const auto& loss : done.losses) result.losses.push_back(loss.sum);
    for (const auto& loss : seen.losses) result.evaluated.push_back(loss.sum);
  });
  return result;
}

}  // namespace

TEST_CASE("every schedule gives the bits of one process") {
  for (const int microbatches : {1, 3, 7}) {
    const auto one = run(one_forward_one_backward(1, microbatches, 0));
    for (const int stages : {1, 2, 3, 4})
      for (const int active : {0, 1, 2})
        for (const auto& schedule : all_schedules(stages, microbatches, active)) {
          CAPTURE(schedule.name, stages, microbatches, active);
          const auto other = run(schedule);
          for (size_t layer = 0; layer < kLayers; ++layer)
            CHECK(at::equal(other.gradients[layer], one.gradients[layer]));
          CHECK(other.losses == one.losses);
          CHECK(other.evaluated == one.losses);
        }
  }
}

TEST_CASE("every order that the checker accepts gives the same bits") {
  std::mt19937 random(3);
  const auto one = run(one_forward_one_backward(1, 4, 0));
  int accepted = 0;
  for (const int stages : {2, 3, 4})
    for (const auto& schedule : all_schedules(stages, 4))
      for (int round = 0; round < 60; ++round) {
        const auto mutant = mutant_of(schedule, random);
        try {
          check_schedule(mutant);
        } catch (const ScheduleError&) {
          continue;
        }
        ++accepted;
        CAPTURE(schedule.name, stages, round);
        const auto other = run(mutant);
        for (size_t layer = 0; layer < kLayers; ++layer) CHECK(at::equal(other.gradients[layer], one.gradients[layer]));
        CHECK(other.losses == one.losses);
      }
  CHECK(accepted > 50);
}

TEST_CASE("chunks may be on any stages: channels also connect stages that are not neighbours") {
  const std::pair<const char*, int> files[] = {
      {"F0/0 F1/0 F2/0 B0/0 B1/0 B2/0\nF0/2 B0/2 F1/2 B1/2 F2/2 B2/2\nF0/1 F1/1 B0/1 F2/1 B1/1 B2/1", 3},
      {"F0/1 F1/1 B0/1 B1/1\nF0/3 B0/3 F1/3 B1/3\nF0/0 F1/0 B0/0 B1/0\nF0/2 F1/2 B0/2 B1/2", 2},
      // Passes twice through all stages, in a different order each time.
      {"F0/0 F0/7 B0/7 B0/0\nF0/3 F0/4 B0/4 B0/3\nF0/1 F0/6 B0/6 B0/1\nF0/2 F0/5 B0/5 B0/2", 1}};
  for (const auto& [cells, microbatches] : files) {
    const auto schedule = schedule_from_cells(cells, "mine");
    check_schedule(schedule);
    const auto one = run(one_forward_one_backward(1, microbatches, 0)), other = run(schedule);
    for (size_t layer = 0; layer < kLayers; ++layer) CHECK(at::equal(other.gradients[layer], one.gradients[layer]));
    CHECK(other.losses == one.losses);
    CHECK(other.evaluated == one.losses);
  }
}

TEST_CASE("in the steady state no memory is allocated from the system, and between steps messages hold none") {
  use_caching_allocator();
  const ModelSpec spec = tanh_spec();
  const auto communication = [] { return memory_totals().now[static_cast<size_t>(MemoryClass::communication)]; };
  for (const int stages : {1, 3})
    for (const auto& schedule : all_schedules(stages, 7)) {
      CAPTURE(schedule.name, stages);
      const auto microbatches = microbatches_of(schedule);
      run_ranks(stages, [&](CommunicatorPtr pp) {
        StageLayers stage = layers_of_stage(spec, schedule, pp->rank());
        Store store;
        Executor executor(stage, *pp, store);
        std::vector<int64_t> blocks, messages;
        for (int step = 0; step < 8; ++step) {
          executor.run(schedule, microbatches, {.mode = Mode::train, .loss_scale = 0.5});
          pp->barrier();  // nobody allocates
          blocks.push_back(memory_totals().new_blocks);
          messages.push_back(communication());
          pp->barrier();
        }
        if (pp->rank() > 0) return;
        CHECK(messages == std::vector<int64_t>(8, 0));
        // Several ranks share the lists of freed blocks; how many are needed at a time depends on how they run.
        if (stages == 1) CHECK(blocks[1] == blocks.back());
      });
    }
}

TEST_CASE("memory for messages follows their sizes, even if small microbatches follow large ones") {
  use_caching_allocator();
  constexpr int64_t kLarge = 10000, kLargeBytes = kLarge * kLength * kHidden * 8;
  const ModelSpec spec = tanh_spec();
  const Schedule schedule = one_forward_one_backward(3, 6, 0);
  run_ranks(3, [&](CommunicatorPtr pp) {
    StageLayers stage = layers_of_stage(spec, schedule, pp->rank());
    Store store;
    Executor executor(stage, *pp, store);
    const auto peak_of = [&](int64_t samples) {
      pp->barrier();
      if (pp->rank() == 0) restart_memory_peaks();
      pp->barrier();
      executor.run(schedule, microbatches_of(schedule, samples), {.mode = Mode::train, .loss_scale = 0.5});
      pp->barrier();
      return memory_totals().peak_of_class[static_cast<size_t>(MemoryClass::communication)];
    };
    const int64_t large = peak_of(kLarge), small = peak_of(1);
    if (pp->rank() > 0) return;
    CHECK(large >= kLargeBytes);
    CHECK(small < kLargeBytes / 10);
  });
}

}  // namespace shardline::schedule_run_test
