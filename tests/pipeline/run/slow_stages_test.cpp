// Stages that compute for longer than the time limit: a receive is posted long before it is needed, and only the wait
// for it counts.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <thread>

#include "core/comm/threads_communicator.h"
#include "core/comm/timeouts.h"
#include "pipeline/run/executor.h"
#include "pipeline/schedule/kinds/schedule_choice.h"

#include "tests/catch.h"

namespace shardline::slow_stages_test {
namespace {

using namespace std::chrono_literals;

constexpr int kStages = 2, kMicrobatches = 8;
constexpr auto kForward = 250ms, kLimit = 1200ms;  // all forwards of a stage take longer than the limit

// One layer per stage; the last one returns the sum.
class SlowLayer : public Layer {
 public:
  explicit SlowLayer(int index) : index_(index) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    std::this_thread::sleep_for(kForward);
    const auto x = index_ == 0 ? context.batch->ids.to(at::kDouble).view({-1}).requires_grad_(true) : input.at(0);
    const auto y = x * 2;
    if (index_ + 1 < kStages) return {y};
    context.loss = {y.sum().item<double>(), static_cast<double>(context.batch->tokens())};
    return {y.sum() * context.loss_scale};
  }

 private:
  int index_;
};

struct NoParameters : ParameterStore {
  void acquire(int) override {}
  void release(int) override {}
  void begin_run(std::vector<int>) override {}
  void open_gradients(int, bool) override {}
  void close_gradients(int, bool, bool) override {}
  void settle_gradients() override {}
};

struct Limit {
  explicit Limit(std::chrono::milliseconds limit) { set_timeouts({limit, limit, limit}); }
  ~Limit() { set_timeouts(before); }
  const Timeouts before = timeouts();
};

}  // namespace

TEST_CASE("slow stages: a limit shorter than a stage's forwards does not end a healthy run") {
  const Limit limit(kLimit);
  ModelSpec spec;
  for (int i = 0; i < kStages; ++i)
    spec.layers.push_back({.name = std::to_string(i), .output = {{"hidden", {BorderTensor::kRows}}}});
  const Schedule schedule = make_schedule({.pipeline = "simple", .stages = kStages, .microbatches = kMicrobatches});
  const at::Tensor ids = at::zeros({1, 4}, at::kLong);
  const Microbatch batch = causal_microbatch(ids, ids);
  CHECK_NOTHROW(run_ranks(kStages, [&](CommunicatorPtr pp) {
    StageLayers stage{.spec = &spec, .activations = at::TensorOptions().dtype(at::kDouble)};
    stage.layers.resize(kStages);
    for (int i = 0; i < kStages; ++i) stage.layers_of_chunk.push_back({i});
    stage.layers[pp->rank()] = std::make_unique<SlowLayer>(pp->rank());
    NoParameters store;
    Executor executor(stage, *pp, store);
    executor.run(schedule, std::vector<Microbatch>(kMicrobatches, batch), {.mode = Mode::train, .loss_scale = 1});
  }));
}

}  // namespace shardline::slow_stages_test
