#include "pipeline/run/executor.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>

#include "core/comm/threads_communicator.h"
#include "core/error.h"

#include "tests/catch.h"

namespace shardline::executor_test {
namespace {

constexpr int64_t kHidden = 3, kLength = 2;

// What happened on one stage, in order: "acquire 1", "forward 1", ...
using Diary = std::vector<std::string>;

// One weight w: y = tanh(x + w) with torch's own backward, whose weight gradient is put in the queue; the first layer
// starts from the ids, the last returns the scaled sum.
class FakeLayer : public Layer {
 public:
  FakeLayer(int index, int layers, Diary& diary)
      : index_(index),
        last_(index + 1 == layers),
        diary_(diary),
        weight_(at::full({kHidden}, 0.1 * (index + 1), at::kDouble)),
        gradient_(at::zeros({kHidden}, at::kDouble)) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    diary_.push_back(cat("forward ", index_));
    most_alive() = std::max<int>(most_alive(), ++alive());
    const auto x = index_ == 0 ? context.batch->ids.to(at::kDouble).view({-1, 1}).expand({-1, kHidden}) : input.at(0);
    const bool graph = context.weight_grads != nullptr;
    const auto w = weight_.detach().requires_grad_(graph);
    const auto y = (x + w).tanh();
    if (graph)
      w.register_hook([this, queue = context.weight_grads,
                       kept = std::shared_ptr<void>(nullptr, [](void*) { --alive(); })](const at::Tensor& dw) {
        diary_.push_back(cat("backward ", index_));
        queue->push({}, {}, [this, dw](const auto&, const auto&) {
          diary_.push_back(cat("weight ", index_));
          gradient_.add_(dw);
        });
      });
    else
      --alive();
    if (!last_) return {y};
    if (context.mode == Mode::generate) return {y};
    context.loss = {y.sum().item<double>(), static_cast<double>(context.batch->tokens())};
    return context.mode == Mode::train ? Border{y.sum() * context.loss_scale} : Border{};
  }

  const at::Tensor& gradient() const { return gradient_; }
  // Number of fake layers' graphs that still exist.
  static std::atomic<int>& alive() {
    static std::atomic<int> count = 0;
    return count;
  }
  static std::atomic<int>& most_alive() {
    static std::atomic<int> count = 0;
    return count;
  }

 private:
  int index_;
  bool last_;
  Diary& diary_;
  at::Tensor weight_, gradient_;
};

class FakeStore : public ParameterStore {
 public:
  explicit FakeStore(Diary& diary) : diary_(diary) {}
  void begin_run(std::vector<int> acquired) override { foretold_ = {acquired.rbegin(), acquired.rend()}; }
  void acquire(int layer) override {
    REQUIRE_FALSE(foretold_.empty());
    CHECK(foretold_.back() == layer);
    foretold_.pop_back();
    diary_.push_back(cat("acquire ", layer));
  }
  void release(int layer) override { diary_.push_back(cat("release ", layer)); }
  void open_gradients(int, bool) override {}
  void close_gradients(int layer, bool deferred, bool last) override {
    if (deferred && last) diary_.push_back(cat("ready ", layer));
  }
  void settle_gradients() override {}

 private:
  std::vector<int> foretold_;  // the next one last
  Diary& diary_;
};

struct Result {
  std::vector<Diary> diaries;                                 // by stage
  std::vector<at::Tensor> gradients;                          // by layer
  std::vector<LossTerm> losses;                               // by microbatch
  std::vector<at::Tensor> outputs;                            // likewise
  std::vector<std::pair<int64_t, int64_t>> activation_bytes;  // counted and predicted peaks of each stage
  std::vector<InstructionRecord> records;                     // those of the last stage
};

// 5 layers; the first chunks have one more if the number is not divisible. Microbatch i has i % 3 samples: one is
// empty. Every layer but the last is recomputed if requested.
Result run(const Schedule& schedule, Mode mode = Mode::train, const std::string& recompute = "none",
           const OffloadOptions& offload = {}, int64_t samples = 0) {
  constexpr int kLayers = 5;
  ModelSpec spec;
  for (int i = 0; i < kLayers; ++i)
    spec.layers.push_back({.name = cat("l", i), .output = {{"hidden", {BorderTensor::kRows, kHidden}}}});
  std::vector<Microbatch> microbatches;
  for (int64_t i = 0; i < schedule.microbatches; ++i) {
    const at::Tensor ids = at::full({samples > 0 ? samples : (i + 1) % 3, kLength}, i, at::kLong);
    microbatches.push_back(causal_microbatch(ids, ids));
  }
  Result result;
  result.diaries.resize(schedule.stages);
  result.gradients.resize(kLayers);
  std::mutex mutex;
  run_ranks(schedule.stages, [&](CommunicatorPtr pp) {
    const int stage = pp->rank();
    Diary& diary = result.diaries[stage];
    StageLayers layers{.spec = &spec, .activations = at::TensorOptions().dtype(at::kDouble)};
    layers.layers.resize(kLayers);
    layers.choices.recompute.assign(kLayers, *recompute_strategy(recompute));
    layers.choices.recompute.back() = {};
    layers.choices.offload = offload;
    layers.offload_directory = std::filesystem::temp_directory_path();
    for (int c = 0; c < schedule.chunks(); ++c) {
      const Range range = split_range(kLayers, schedule.chunks(), c);
      layers.layers_of_chunk.emplace_back();
      for (auto i = static_cast<int>(range.begin); i < range.end(); ++i) {
        layers.layers_of_chunk.back().push_back(i);
        if (schedule.stage_of_chunk[c] == stage) layers.layers[i] = std::make_unique<FakeLayer>(i, kLayers, diary);
      }
    }
    FakeStore store(diary);
    Executor executor(layers, *pp, store);
    const auto done = executor.run(schedule, microbatches, {.mode = mode, .loss_scale = 0.5});
    const int64_t border = (samples > 0 ? samples : 2) * kLength * kHidden * 8;
    std::vector<LayerBytes> bytes(kLayers, {.input = border, .kept = {.activations = border}});
    bytes[0] = {};
    std::scoped_lock lock(mutex);
    result.activation_bytes.push_back(
        {done.peak_activation_bytes,
         peak_activation_bytes(schedule, stage, layers.layers_of_chunk, layers.choices, bytes,
                               std::vector<int64_t>(schedule.instructions[stage].size()))
             .kept});
    for (size_t i = 0; i < kLayers; ++i)
      if (layers.layers[i]) result.gradients[i] = static_cast<FakeLayer&>(*layers.layers[i]).gradient();
    if (stage == schedule.stage_of_chunk.back())
      result.losses = done.losses, result.outputs = done.outputs, result.records = executor.take_records();
  });
  return result;
}

Schedule two_chunks_on_one_stage(int microbatches) {
  Schedule schedule{"two chunks", 1, microbatches, {0, 0}, {{}}};
  auto& list = schedule.instructions[0];
  for (int i = 0; i < microbatches; ++i)
    for (int chunk : {0, 1}) list.push_back({Op::forward, i, chunk});
  for (int i = 0; i < microbatches; ++i)
    for (int chunk : {1, 0})
      for (const Op op : {Op::backward_input, Op::backward_weight}) list.push_back({op, i, chunk});
  for (int chunk : {0, 1}) list.push_back({Op::end_gradients, -1, chunk});
  return schedule;
}

int64_t count(const Diary& diary, const std::string& entry) {
  return std::count(diary.begin(), diary.end(), entry);
}

}  // namespace

TEST_CASE("a stage runs its layers forward, and backward layer by layer, each weight gradient at once") {
  const auto result = run(one_forward_one_backward(1, 1, 0));
  Diary expected;
  for (int layer = 0; layer < 5; ++layer)
    for (const char* what : {"acquire ", "forward ", "release "}) expected.push_back(cat(what, layer));
  for (int layer = 4; layer >= 0; --layer)
    for (const char* what : {"acquire ", "backward ", "weight ", "release ", "ready "})
      expected.push_back(cat(what, layer));
  CHECK(result.diaries[0] == expected);
}

TEST_CASE("gradients are ready once per layer, after the last microbatch, and nothing is kept") {
  for (int stages : {1, 2, 3, 5})
    for (int microbatches : {1, 4, 7})
      for (const auto& schedule : {simple_schedule(stages, microbatches, 0), simple_schedule(stages, microbatches, 2),
                                   one_forward_one_backward(stages, microbatches, 0)}) {
        CAPTURE(schedule.name, stages, microbatches);
        const auto result = run(schedule);
        CHECK(FakeLayer::alive() == 0);
        for (int stage = 0; stage < stages; ++stage) {
          const Diary& diary = result.diaries[stage];
          const Range mine = split_range(5, stages, stage);
          for (auto layer = mine.begin; layer < mine.end(); ++layer) {
            CHECK(count(diary, cat("forward ", layer)) == microbatches);
            CHECK(count(diary, cat("weight ", layer)) == microbatches);
            CHECK(count(diary, cat("acquire ", layer)) == 2 * microbatches);
            CHECK(count(diary, cat("release ", layer)) == 2 * microbatches);
            REQUIRE(count(diary, cat("ready ", layer)) == 1);
            const auto ready = std::find(diary.begin(), diary.end(), cat("ready ", layer));
            CHECK(std::find(ready, diary.end(), cat("weight ", layer)) == diary.end());
          }
        }
      }
}

TEST_CASE("every schedule and every number of stages gives the same bits") {
  const auto one = run(one_forward_one_backward(1, 7, 0));
  REQUIRE(one.gradients[0].abs().min().item<double>() > 0);
  for (int stages : {1, 2, 3, 5})
    for (const auto& schedule : {simple_schedule(stages, 7, 0), simple_schedule(stages, 7, 3),
                                 one_forward_one_backward(stages, 7, 0), one_forward_one_backward(stages, 7, 1)}) {
      CAPTURE(schedule.name, stages);
      const auto other = run(schedule);
      for (size_t layer = 0; layer < 5; ++layer) CHECK(at::equal(other.gradients[layer], one.gradients[layer]));
      for (size_t i = 0; i < 7; ++i) {
        CHECK(other.losses[i].sum == one.losses[i].sum);
        CHECK(other.losses[i].weight == one.losses[i].weight);
      }
    }
}

TEST_CASE("a schedule that splits the backward pass makes the weight gradients later, with the same bits") {
  Schedule schedule = one_forward_one_backward(1, 2, 0);
  const Instruction f0{Op::forward, 0}, f1{Op::forward, 1}, b0{Op::backward_input, 0}, b1{Op::backward_input, 1},
      w0{Op::backward_weight, 0}, w1{Op::backward_weight, 1};
  schedule.instructions = {{f0, f1, b0, b1, w0, w1, {Op::end_gradients}}};
  const auto result = run(schedule), at_once = run(one_forward_one_backward(1, 2, 0));
  const Diary& diary = result.diaries[0];
  const auto first_weight = std::find(diary.begin(), diary.end(), "weight 4");
  CHECK(std::find(first_weight, diary.end(), "backward 0") == diary.end());  // every input gradient comes before it
  for (int layer = 0; layer < 5; ++layer) CHECK(count(diary, cat("ready ", layer)) == 1);
  for (size_t layer = 0; layer < 5; ++layer) CHECK(at::equal(result.gradients[layer], at_once.gradients[layer]));
  CHECK(FakeLayer::alive() == 0);
}

TEST_CASE("recomputed groups give the same bits under every schedule, and keep no graph") {
  const auto one = run(one_forward_one_backward(1, 7, 0));
  Schedule split = one_forward_one_backward(1, 7, 0);
  split.instructions[0].clear();
  for (const Op op : {Op::forward, Op::backward_input, Op::backward_weight})
    for (int i = 0; i < 7; ++i) split.instructions[0].push_back({op, i});
  split.instructions[0].push_back({Op::end_gradients});
  for (const auto& schedule : {simple_schedule(1, 7, 0), simple_schedule(3, 7, 2), one_forward_one_backward(2, 7, 0),
                               one_forward_one_backward(5, 7, 0), split, two_chunks_on_one_stage(7)})
    for (const auto& [recompute, group] : {std::pair{"each", 1}, {"group_2", 2}, {"group_3", 3}, {"contiguous", 4}}) {
      CAPTURE(schedule.name, schedule.stages, recompute);
      FakeLayer::most_alive() = 0;
      const auto other = run(schedule, Mode::train, recompute);
      for (size_t layer = 0; layer < 5; ++layer) CHECK(at::equal(other.gradients[layer], one.gradients[layer]));
      for (size_t i = 0; i < 7; ++i) CHECK(other.losses[i].sum == one.losses[i].sum);
      CHECK(FakeLayer::alive() == 0);
      // At most all microbatches of the last layer, and one group of the others on each stage.
      CHECK(FakeLayer::most_alive() <= 7 + std::max(group, 1) * schedule.stages + schedule.stages);
      for (const auto& diary : other.diaries)
        for (int layer = 0; layer < 4; ++layer)
          if (count(diary, cat("forward ", layer)) > 0) {
            CHECK(count(diary, cat("forward ", layer)) == 14);
            CHECK(count(diary, cat("weight ", layer)) == 7);
            CHECK(count(diary, cat("ready ", layer)) == 1);
          }
    }
}

TEST_CASE("offloaded activations give the same bits, and the peak of the others is as predicted") {
  const auto one = run(one_forward_one_backward(1, 7, 0), Mode::train, "none", {}, 2);
  for (const auto& schedule : {simple_schedule(1, 7, 0), simple_schedule(3, 7, 0), one_forward_one_backward(2, 7, 0),
                               one_forward_one_backward(3, 7, 0), two_chunks_on_one_stage(7)})
    for (const char* recompute : {"none", "selective", "each", "group_2", "contiguous"})
      for (const int horizon : {0, 1, 4, 100}) {
        CAPTURE(schedule.name, schedule.stages, recompute, horizon);
        const OffloadOptions offload{.enabled = horizon > 0, .horizon = horizon};
        const auto other = run(schedule, Mode::train, recompute, offload, 2);
        for (size_t layer = 0; layer < 5; ++layer) CHECK(at::equal(other.gradients[layer], one.gradients[layer]));
        for (const auto& [counted, foretold] : other.activation_bytes) CHECK(counted == foretold);
      }
}

TEST_CASE("offloaded activations take no memory until their horizon") {
  const auto peak = [](const char* recompute, const OffloadOptions& offload) {
    return run(simple_schedule(1, 7, 0), Mode::train, recompute, offload, 2).activation_bytes[0].first;
  };
  const int64_t border = 2 * kLength * kHidden * 8;
  CHECK(peak("none", {}) == 7 * 4 * border);     // layers 1 to 4 keep their inputs
  CHECK(peak("group_2", {}) == 7 * 2 * border);  // {2, 3} and 4; layer 0 has none
  // Six inputs of {2, 3} are offloaded (the last one is needed at once); the seven of layer 4 stay.
  CHECK(peak("group_2", {.enabled = true, .horizon = 1}) == (7 + 1) * border);
  CHECK(peak("group_2", {.enabled = true, .horizon = 100}) == peak("group_2", {}));
}

TEST_CASE("a group is recomputed right before its backward pass, the last group first") {
  const auto result = run(one_forward_one_backward(1, 1, 0), Mode::train, "group_3");
  Diary runs;
  for (const auto& entry : result.diaries[0])
    if (entry.starts_with("forward") || entry.starts_with("backward")) runs.push_back(entry);
  CHECK(runs == Diary{"forward 0", "forward 1", "forward 2", "forward 3", "forward 4", "backward 4", "forward 3",
                      "backward 3", "forward 0", "forward 1", "forward 2", "backward 2", "backward 1", "backward 0"});
}

TEST_CASE("chunks of one stage pass tensors without a message") {
  const auto one = run(one_forward_one_backward(1, 4, 0)), two = run(two_chunks_on_one_stage(4));
  for (size_t layer = 0; layer < 5; ++layer) CHECK(at::equal(two.gradients[layer], one.gradients[layer]));
  for (size_t i = 0; i < 4; ++i) CHECK(two.losses[i].sum == one.losses[i].sum);
}

TEST_CASE("each instruction leaves a record of its time") {
  const Schedule schedule = one_forward_one_backward(1, 2, 0);
  const auto records = run(schedule).records;
  REQUIRE(records.size() == schedule.instructions[0].size());
  double busy = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    CHECK(records[i].instruction == schedule.instructions[0][i]);
    CHECK(records[i].start <= records[i].end);
    CHECK(records[i].waited == 0);
    if (i > 0) CHECK(records[i].start >= records[i - 1].end);
    if (records[i].instruction.op != Op::end_gradients) busy += records[i].end - records[i].start;
  }
  CHECK(busy_seconds(records) == Approx(busy));
}

TEST_CASE("evaluation and generation run forward only and keep nothing") {
  const auto one = run(forward_schedule(1, 4), Mode::generate);
  for (int stages : {1, 3}) {
    const auto evaluated = run(forward_schedule(stages, 4), Mode::evaluate);
    const auto trained = run(one_forward_one_backward(stages, 4, 0));
    for (size_t i = 0; i < 4; ++i) CHECK(evaluated.losses[i].sum == trained.losses[i].sum);
    const auto generated = run(forward_schedule(stages, 4), Mode::generate);
    for (size_t i = 0; i < 4; ++i) CHECK(at::equal(generated.outputs[i], one.outputs[i]));
    for (const auto& diary : generated.diaries)
      for (const auto& entry : diary)
        CHECK((entry.starts_with("acquire") || entry.starts_with("forward") || entry.starts_with("release")));
    CHECK(FakeLayer::alive() == 0);
  }
}

TEST_CASE("a schedule for other numbers of microbatches or stages fails an assertion") {
  Diary diary;
  FakeStore store(diary);
  run_ranks(1, [&](CommunicatorPtr pp) {
    StageLayers layers;
    Executor executor(layers, *pp, store);
    CHECK_THROWS_AS(executor.run(forward_schedule(1, 2), {Microbatch{}}, {}), InvariantError);
    CHECK_THROWS_AS(executor.run(forward_schedule(2, 1), {Microbatch{}}, {}), InvariantError);
  });
}

}  // namespace shardline::executor_test
