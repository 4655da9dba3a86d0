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

constexpr int64_t kLength = 64, kMicrobatches = 2;

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
  bool attention_in_fp32 = false;
  int64_t samples = 80;  // of a microbatch
  int64_t hidden = 32, inner = 128, words = 2000, heads = 2;
};

Config config_of(const Choice& c) {
  nlohmann::json file = {
      {"model",
       {{"config",
         {{"model_type", c.model},
          {"n_layer", 2},
          {"n_head", c.heads},
          {"n_embd", c.hidden},
          {"n_inner", c.inner},
          {"n_positions", kLength},
          {"vocab_size", c.words},
          {"resid_pdrop", c.dropout},
          {"embd_pdrop", c.dropout},
          {"attn_pdrop", c.dropout}}}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
      {"training",
       {{"global_batch_size", c.samples * kMicrobatches},
        {"bf16", c.bf16},
        {"attention_in_fp32", c.attention_in_fp32}}},
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
  Trainer trainer({config, plan, planned.model, make_rank_groups(plan.mesh, world, world), fake::device()}, 1);
  fill_parameters(config.model, planned.model, 1, trainer.parameters());
  OnesSource data(choice.samples * kMicrobatches, kLength);
  const int64_t before = device_memory(fake::device()).allocated;
  at::accelerator::resetPeakStats(0);
  trainer.accumulate_gradients(data, 1);
  CHECK(fake::take_faults() == std::vector<std::string>());
  return {plan.activation_bytes_by_rank[0].in_use, device_memory(fake::device()).peak_allocated - before};
}

// What the plan leaves out: integers, which are the ids and labels of the step and, of the microbatch whose head runs,
// the labels that positions predict, which of them are valid, and two copies counted from this rank's first word. What
// is left is small: the samples' numbers, the loss, and GPT-J's table of angles.
int64_t integers_of_step(const Choice& c) {
  return kMicrobatches * c.samples * kLength * 2 * 8;
}
int64_t integers_of_head(const Choice& c) {
  return c.samples * kLength * (3 * 8 + 1);
}
constexpr int64_t kSmall = 8192;

}  // namespace

TEST_CASE("the plan's peak of activations in use is what a device's allocator counts, where the head makes it") {
  for (const char* model : {"gpt2", "gptj"})
    for (const char* recompute : {"none", "each"})
      for (const bool bf16 : {true, false})
        for (const double dropout : {0.0, 0.1}) {
          CAPTURE(model, recompute, bf16, dropout);
          const Choice choice{.model = model, .recompute = recompute, .bf16 = bf16, .dropout = dropout};
          const int64_t integers = integers_of_step(choice) + integers_of_head(choice);
          const Peak peak = peak_of(choice);
          CHECK(peak.measured >= peak.planned + integers);
          CHECK(peak.measured <= peak.planned + integers + kSmall);
        }
}

// With narrow MLPs and few words. Heads of 32 and, beyond what our kernels compute, of 256 features.
TEST_CASE("the plan's peak of activations in use is what a device's allocator counts, where attention makes it") {
  for (const char* model : {"gpt2", "gptj"})
    for (const char* recompute : {"none", "selective"})
      for (const int64_t head_dim : {32, 256})
        for (const double dropout : {0.0, 0.1})
          for (const bool attention_in_fp32 : {false, true}) {
            CAPTURE(model, recompute, head_dim, dropout, attention_in_fp32);
            const Choice choice{.model = model,
                                .recompute = recompute,
                                .dropout = dropout,
                                .attention_in_fp32 = attention_in_fp32,
                                .samples = 8,
                                .hidden = 256,
                                .inner = 32,
                                .words = 64,
                                .heads = 256 / head_dim};
            const Peak peak = peak_of(choice);
            CHECK(peak.measured >= peak.planned + integers_of_step(choice));
            CHECK(peak.measured <= peak.planned + integers_of_step(choice) + kSmall);
          }
}

}  // namespace shardline::planned_memory_test
