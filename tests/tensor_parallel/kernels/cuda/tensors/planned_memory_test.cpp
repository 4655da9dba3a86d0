// The memory that a step's tensors take on a device with our kernels: what its allocator counts, and the plan.
#include <ATen/DeviceAccelerator.h>

#include <nlohmann/json.hpp>

#include "core/comm/local_communicator.h"
#include "core/cuda/twin/grid.h"
#include "core/device/accelerator.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"
#include "tensor_parallel/kernels/cuda/cuda_kernels.h"
#include "tests/engine/train/ones_source.h"
#include "tests/fake_device/fake_device.h"

#include "tests/catch.h"

namespace shardline::planned_memory_test {
namespace {

constexpr int64_t kLength = 64, kSamplesOfMicrobatch = 80, kMicrobatches = 2;
constexpr int64_t kTokens = kSamplesOfMicrobatch * kLength;  // of a microbatch

// The device with our kernels, which compute nothing but the number of labels.
class AsOnGpus {
 public:
  AsOnGpus() {
    table_ = cuda::kernel_table();
    table_.whole_cross_entropy_ = [](at::Tensor logits, const at::Tensor& label, at::Tensor total,
                                     std::optional<double> gradient_scale) {
      total.select(0, 1).add_(label.ge(0).sum());
      return cuda::kernel_table().whole_cross_entropy_(std::move(logits), label, std::move(total), gradient_scale);
    };
    use_table(fake::device().type(), &table_);
    twin::only_counts = true;
  }
  ~AsOnGpus() {
    use_table(fake::device().type(), nullptr);
    twin::only_counts = false;
  }

 private:
  KernelTable table_;
};

struct Choice {
  std::string model = "gpt2", recompute = "none";
  bool bf16 = true;
  double dropout = 0;
};

Config config_of(const Choice& c) {
  nlohmann::json file = {
      {"model",
       {{"config",
         {{"model_type", c.model},
          {"n_layer", 2},
          {"n_head", 2},
          {"n_embd", 32},
          {"n_inner", 128},
          {"n_positions", kLength},
          {"vocab_size", 2000},
          {"resid_pdrop", c.dropout},
          {"embd_pdrop", c.dropout},
          {"attn_pdrop", c.dropout}}}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
      {"training", {{"global_batch_size", kSamplesOfMicrobatch * kMicrobatches}, {"bf16", c.bf16}}},
      {"smp_options",
       {{"microbatches", kMicrobatches}, {"pipeline", "simple"}, {"activation_checkpointing", c.recompute}}},
      {"runtime", {{"device", "cuda"}, {"communicator", "local"}}},
      {"output_dir", "unused"}};
  if (c.model == "gptj") file["model"]["config"]["rotary_dim"] = 16;
  return parse_config(file.dump(), "planned memory test");
}

struct Peak {
  int64_t planned = 0, measured = 0;
};

// Of activations, while gradients are accumulated.
Peak peak_of(const Choice& choice) {
  const AsOnGpus as_on_gpus;
  const Config config = config_of(choice);
  const CommunicatorPtr world = make_local_world();
  const PlannedModel planned = plan_model(config, 1);
  const Plan& plan = planned.plan;
  Trainer trainer({config, plan, planned.model, make_rank_groups(plan.layout.mesh(), world, world), fake::device()}, 1);
  fill_parameters(config.model, planned.model, 1, trainer.parameters());
  OnesSource data(kSamplesOfMicrobatch * kMicrobatches, kLength);
  const int64_t before = device_memory(fake::device()).allocated;
  at::accelerator::resetPeakStats(0);
  trainer.accumulate_gradients(data, 1);
  CHECK(fake::take_faults() == std::vector<std::string>());
  return {plan.activation_bytes_by_rank[0].in_use, device_memory(fake::device()).peak_allocated - before};
}

}  // namespace

// The head with its block of logits makes the peak. Integers, which the plan leaves out: ids and labels of the step; of
// the microbatch the labels that positions predict, which of them are valid, and two copies counted from this rank's
// first word. What is left is small: the samples' numbers, the loss, and GPT-J's table of angles.
TEST_CASE("the plan's peak of activations in use is what a device's allocator counts, without integers") {
  constexpr int64_t kIntegers = kMicrobatches * kTokens * 2 * 8 + kTokens * (3 * 8 + 1), kSmall = 8192;
  for (const char* model : {"gpt2", "gptj"})
    for (const char* recompute : {"none", "each"})
      for (const bool bf16 : {true, false})
        for (const double dropout : {0.0, 0.1}) {
          CAPTURE(model, recompute, bf16, dropout);
          const Peak peak = peak_of({model, recompute, bf16, dropout});
          CHECK(peak.measured >= peak.planned + kIntegers);
          CHECK(peak.measured <= peak.planned + kIntegers + kSmall);
        }
}

}  // namespace shardline::planned_memory_test
