// Every schedule on the executor, with chunks where they may lie.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <mutex>

#include "core/threads_communicator.h"
#include "pipeline/checker.h"
#include "pipeline/executor.h"
#include "pipeline/schedule_generators.h"
#include "tests/pipeline/mutants.h"
#include "tests/pipeline/schedules.h"

#include "tests/catch.h"

namespace shardline {
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
  void gradients_ready(int layer) override { ++ready[static_cast<size_t>(layer)]; }
};

struct Result {
  std::vector<at::Tensor> gradients = std::vector<at::Tensor>(kLayers);
  std::vector<double> losses, evaluated;  // by microbatch
};

Result run(const Schedule& schedule) {
  ModelSpec spec;
  for (int i = 0; i < kLayers; ++i)
    spec.layers.push_back({.name = std::to_string(i), .output = {{"hidden", {BorderTensor::kRows, kHidden}}}});
  std::vector<Microbatch> microbatches;
  for (int64_t i = 0; i < schedule.microbatches; ++i) {
    Microbatch batch{.ids = at::full({(i + 1) % 3, kLength}, i, at::kLong)};
    batch.labels = batch.ids;
    microbatches.push_back(batch);
  }
  const auto forward = forward_schedule(schedule.stage_of_chunk, schedule.stages, schedule.microbatches);
  Result result;
  std::mutex mutex;
  run_ranks(schedule.stages, [&](CommunicatorPtr pp) {
    StageLayers stage{.spec = &spec, .activations = at::TensorOptions().dtype(at::kDouble)};
    stage.layers.resize(kLayers);
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
      const Range range = split_range(kLayers, schedule.chunks(), chunk);
      stage.layers_of_chunk.emplace_back();
      for (auto i = static_cast<int>(range.begin); i < range.end(); ++i) {
        stage.layers_of_chunk.back().push_back(i);
        if (schedule.stage_of_chunk[static_cast<size_t>(chunk)] == pp->rank())
          stage.layers[static_cast<size_t>(i)] = std::make_unique<TanhLayer>(i);
      }
    }
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

TEST_CASE("what the checker accepts gives the same bits in any order") {
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

}  // namespace shardline
