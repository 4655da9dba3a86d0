// Frozen weights cost nothing: the plan counts what is trained, gradients of frozen layers are not reduced, and no
// layer below the lowest trained one runs backward.
#include <ATen/core/Tensor.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/task_source.h"
#include "tests/engine/uneven_gpt2.h"

#include "tests/catch.h"

namespace shardline::frozen_layers_test {
namespace {

using nlohmann::json;

Config config_of(const json& model, const std::vector<std::string>& trained, const json& smp = json::object()) {
  json file = {{"task", "sequence-classification"},
               {"model", {{"config", model}}},
               {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 9}}},
               {"training", {{"global_batch_size", 12}, {"trainable", trained}}},
               {"smp_options", smp},
               {"runtime", {{"communicator", smp.empty() ? "local" : "threads"}}},
               {"output_dir", "unused"}};
  return parse_config(file.dump(), "frozen layers test");
}

// A layer that counts its forward passes, and the backward passes that reach it.
class CountedLayer : public Layer {
 public:
  struct Counts {
    std::atomic<int> forward = 0, backward = 0;
  };
  CountedLayer(std::unique_ptr<Layer> inner, Counts& counts) : inner_(std::move(inner)), counts_(counts) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    ++counts_.forward;
    Border output = inner_->forward(input, context);
    if (output.at(0).requires_grad())
      output[0].register_hook([&counts = counts_](const at::Tensor&) { ++counts.backward; });
    return output;
  }

 private:
  std::unique_ptr<Layer> inner_;
  Counts& counts_;
};

struct StepCounts {
  std::vector<CountedLayer::Counts> layers;
  std::map<std::string, int64_t> reduced;  // elements of each rank's "gradients of ..." by name, all ranks together
  std::map<Op, int> instructions;          // of the first stage's ranks
  ModelSpec spec;
  std::vector<int> stage_of_layer;
  explicit StepCounts(size_t count) : layers(count) {}
};

constexpr int kReplicas = 2, kStages = 2, kMicrobatches = 3;

// One step on two replicas of two stages.
std::unique_ptr<StepCounts> count_step(const std::vector<std::string>& trained) {
  const Config config =
      config_of(uneven_encoder("distilbert"), trained,
                {{"pipeline_parallel_degree", kStages}, {"microbatches", kMicrobatches}, {"ddp", true}});
  PlannedModel planned = plan_model(config, kReplicas * kStages);
  auto& layers = planned.model.spec.layers;
  auto counts = std::make_unique<StepCounts>(layers.size());
  counts->spec = planned.model.spec;
  counts->stage_of_layer = planned.plan.stage_of_layer;
  for (size_t i = 0; i < layers.size(); ++i)
    layers[i].build = [build = layers[i].build, &of = counts->layers[i]](const LayerBuild& parts) {
      return std::make_unique<CountedLayer>(build(parts), of);
    };
  const uint64_t first = flight_ring().next_ticket();
  std::mutex mutex;
  run_ranks(kReplicas * kStages, [&](const CommunicatorPtr& world) {
    const RankGroups groups = make_rank_groups(planned.plan.layout.mesh(), world, world);
    RankTrainer trainer({config, planned.plan, planned.model, groups, at::kCPU}, 1);
    fill_parameters(config.model, planned.model, 1, trainer.parameters());
    TaskSource data(planned.model.head, {.samples = 12, .together = 2, .length = 9});
    trainer.train_step(data, 1);
    const std::scoped_lock lock(mutex);
    if (groups.coordinates.p == 0)
      for (const auto& record : trainer.last_step().instructions) ++counts->instructions[record.instruction.op];
  });
  for (const FlightRecord& record : flight_ring().records())
    if (record.ticket >= first && std::string(record.what).starts_with("gradients of "))
      counts->reduced[record.what] += record.elements;
  return counts;
}

}  // namespace

TEST_CASE(
    "a frozen DistilBERT with its classifier trains as many parameters as its patterns say, and the plan says so") {
  const json distilbert = {{"model_type", "distilbert"}, {"num_labels", 2}};  // its sizes are the defaults
  struct Case {
    const char* pattern;
    int64_t trained;
    const char* text;
  };
  for (const auto& [pattern, trained, text] :
       {Case{"head.*", 592130, "592.1k of 67.0M parameters; layers before head only run forward"},
        Case{"classifier.*", 1538, "1.5k of 67.0M parameters; layers before head only run forward"},
        Case{"pre_classifier.*", 590592, "590.6k of 67.0M parameters; layers before head only run forward"}}) {
    CAPTURE(pattern);
    const Config config = config_of(distilbert, {pattern});
    const Plan plan = plan_model(config, 1).plan;
    CHECK(plan_json(plan).at("trained_parameters") == trained);
    CHECK_THAT(plan_text(plan, 100), Catch::Contains(text));
    const MemoryBytes bytes = memory_by_rank(placed_layers(plan)).at(0);
    const double most = 4 * static_cast<double>(trained + 4 * FlatLayout::kAlignment);  // of each, padded
    CHECK(bytes.gradients >= 4.0 * trained);
    CHECK(bytes.gradients <= most);
    CHECK(bytes.optimizer >= 2 * 4.0 * trained);  // the two moments of AdamW
    CHECK(bytes.optimizer <= 2 * most);
    CHECK(bytes.weights >= 4.0 * 66955010);
  }
}

TEST_CASE("only gradients of trained parameters are reduced, and no layer below the lowest trained one runs backward") {
  using Patterns = std::vector<std::string>;
  int frozen_stages = 0;
  for (const auto& trained : {Patterns{}, {"classifier.*"}, {"head.*"}, {"h.4.mlp.*", "head.*"}, {"h.1.attn.qkv.*"}}) {
    CAPTURE(trained);
    const auto counts = count_step(trained);
    const ModelSpec& spec = counts->spec;
    const int lowest = spec.first_with_backward();
    CHECK((lowest == 0) == trained.empty());
    std::map<std::string, int64_t> expected;
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      const LayerSpec& layer = spec.layers[i];
      CAPTURE(layer.name);
      int64_t elements = 0;  // places of parameters are aligned
      for (const auto& param : layer.params)
        if (param.trainable)
          elements += (param.numel() + FlatLayout::kAlignment - 1) / FlatLayout::kAlignment * FlatLayout::kAlignment;
      if (elements > 0) expected["gradients of " + layer.name] = kReplicas * elements;
      CHECK(counts->layers[i].forward == kReplicas * kMicrobatches);
      CHECK(counts->layers[i].backward == (static_cast<int>(i) < lowest ? 0 : kReplicas * kMicrobatches));
    }
    CHECK(counts->reduced == expected);
    // If all of the first stage is frozen, the second one sends it no gradients.
    const bool all_frozen = counts->stage_of_layer[lowest] == 1;
    frozen_stages += all_frozen;
    const int passes = kReplicas * kMicrobatches;
    CHECK(counts->instructions[Op::forward] == passes);
    CHECK(counts->instructions[Op::backward_input] == (all_frozen ? 0 : passes));
    CHECK(counts->instructions[Op::recv_gradient] == (all_frozen ? 0 : passes));
  }
  CHECK(frozen_stages >= 2);
}

}  // namespace shardline::frozen_layers_test
