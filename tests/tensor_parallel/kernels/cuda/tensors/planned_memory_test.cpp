// Compares the memory of a step's tensors on a device with our kernels, as its allocator counts it, with the plan.
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

constexpr int64_t kLength = 64;

// The device with our kernels, which compute only the number of labels. Products are not computed either.
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
    fake::make_products(false);
  }
  ~AsOnGpus() {
    use_table(fake::device().type(), nullptr);
    twin::only_counts = false;
    fake::make_products(true);
  }

 private:
  KernelTable table_;
};

struct Choice {
  std::string model = "gpt2", recompute = "none";
  bool bf16 = true;
  double dropout = 0;
  bool attention_in_fp32 = false;
  bool offload = false;
  int64_t microbatches = 2, samples = 80;  // samples: of a microbatch
  int64_t hidden = 32, inner = 128, words = 2000, heads = 2;
};

Config config_of(const Choice& c) {
  nlohmann::json file = {{"model",
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
                          {{"global_batch_size", c.samples * c.microbatches},
                           {"bf16", c.bf16},
                           {"attention_in_fp32", c.attention_in_fp32}}},
                         {"smp_options",
                          {{"microbatches", c.microbatches},
                           {"pipeline", "simple"},
                           {"activation_checkpointing", c.recompute},
                           {"offload_activations", c.offload},
                           {"offload_scope", "all"},
                           {"activation_loading_horizon", 1}}},
                         {"runtime", {{"device", "cuda"}, {"communicator", "local"}}},
                         {"output_dir", "unused"}};
  if (c.model == "gptj") file["model"]["config"]["rotary_dim"] = 16;
  return parse_config(file.dump(), "planned memory test");
}

struct Peak {
  int64_t planned = 0, measured = 0;
  int64_t planned_on_host = 0, measured_on_host = 0;  // page-locked
  int64_t added_by_short_step = 0;                    // page-locked
};

// The peak of activations, while gradients are accumulated.
Peak peak_of(const Choice& choice) {
  const AsOnGpus as_on_gpus;
  const Config config = config_of(choice);
  const CommunicatorPtr world = make_local_world();
  const PlannedModel planned = plan_model(config, 1);
  const Plan& plan = planned.plan;
  RankTrainer trainer({config, plan, planned.model, make_rank_groups(plan.layout.mesh(), world, world), fake::device()},
                      1);
  fill_parameters(config.model, planned.model, 1, trainer.parameters());
  OnesSource data(choice.samples * choice.microbatches, kLength);
  const int64_t before = device_memory(fake::device()).active;
  const size_t before_on_host = fake::pinned_bytes();
  at::accelerator::resetPeakStats(0);
  trainer.accumulate_gradients(data, 1);
  CHECK(fake::take_faults() == std::vector<std::string>());
  CHECK(tensor_bytes_by_rank(placed_layers(plan))[0].host ==
        static_cast<double>(plan.activation_bytes_by_rank[0].offloaded));
  Peak peak{.planned = plan.activation_bytes_by_rank[0].in_use,
            .measured = device_memory(fake::device()).peak_active - before,
            .planned_on_host = plan.activation_bytes_by_rank[0].offloaded,
            .measured_on_host = static_cast<int64_t>(fake::pinned_bytes() - before_on_host)};
  if (choice.offload) {  // the step at the end of an epoch, whose microbatches are smaller and of different sizes
    OnesSource rest(choice.samples * choice.microbatches - 4, kLength);
    trainer.accumulate_gradients(rest, 2);
    peak.added_by_short_step = static_cast<int64_t>(fake::pinned_bytes() - before_on_host) - peak.measured_on_host;
  }
  return peak;
}

// The plan leaves out integers: for each row of the step, an id, a label, a position and the number of its sample; for
// each row of the microbatch whose head runs, whether its label is valid, and two copies of the label counted from this
// rank's first word. Everything else that it leaves out is small: the segments, the loss, and GPT-J's table of angles.
int64_t integers_of_step(const Choice& c) {
  return c.microbatches * c.samples * kLength * 4 * 8;
}
int64_t integers_of_head(const Choice& c) {
  return c.samples * kLength * (2 * 8 + 1);
}
constexpr int64_t kSmall = 8192;

}  // namespace

// All choices of the head's type and memory, each with either dropout.
TEST_CASE("the plan's peak of activations in use equals what a device's allocator counts if the head causes the peak") {
  for (const char* model : {"gpt2", "gptj"})
    for (const char* recompute : {"none", "each"})
      for (const bool bf16 : {true, false}) {
        const double dropout = (model[3] == '2') == (recompute[0] == 'n') == bf16 ? 0.1 : 0;
        CAPTURE(model, recompute, bf16, dropout);
        const Choice choice{.model = model, .recompute = recompute, .bf16 = bf16, .dropout = dropout};
        const int64_t integers = integers_of_step(choice) + integers_of_head(choice);
        const Peak peak = peak_of(choice);
        CHECK(peak.measured >= peak.planned + integers);
        CHECK(peak.measured <= peak.planned + integers + kSmall);
      }
}

// The models have narrow MLPs and few words, and enough tokens that a tensor is larger than the sums that kernels
// compute for blocks of rows, which the plan leaves out. Heads have 32 features or 256, which our kernels do not
// support. Each way to compute attention runs in both models, once with all activations kept and once without those of
// attention.
TEST_CASE(
    "the plan's peak of activations in use equals what a device's allocator counts if attention causes the peak") {
  int ways = 0;
  for (const int64_t head_dim : {32, 256})
    for (const double dropout : {0.0, 0.1})
      for (const bool attention_in_fp32 : {false, true}) {
        const bool swapped = ++ways % 2 == 0;
        for (const char* model : {"gpt2", "gptj"}) {
          const char* recompute = swapped == (model == std::string("gpt2")) ? "selective" : "none";
          CAPTURE(model, recompute, head_dim, dropout, attention_in_fp32);
          const Choice choice{.model = model,
                              .recompute = recompute,
                              .dropout = dropout,
                              .attention_in_fp32 = attention_in_fp32,
                              .samples = 32,
                              .hidden = 256,
                              .inner = 32,
                              .words = 64,
                              .heads = 256 / head_dim};
          const Peak peak = peak_of(choice);
          CHECK(peak.measured >= peak.planned + integers_of_step(choice));
          CHECK(peak.measured <= peak.planned + integers_of_step(choice) + kSmall);
        }
      }
}

// Offloaded activations stay in their buffers on the host, which are reused from step to step. What is left is the
// space between tensors in a buffer, and the ids and labels of the step.
TEST_CASE("the plan's bytes on the host are the page-locked memory of offloaded activations") {
  for (const char* recompute : {"none", "each"})
    for (const bool bf16 : {true, false}) {
      CAPTURE(recompute, bf16);
      const Choice choice{.recompute = recompute, .bf16 = bf16, .offload = true, .microbatches = 6, .samples = 5};
      const Peak peak = peak_of(choice);
      CHECK(peak.planned_on_host > 0);
      CHECK(peak.measured_on_host >= peak.planned_on_host);
      CHECK(peak.measured_on_host <= peak.planned_on_host + integers_of_step(choice) + kSmall);
      CHECK(peak.added_by_short_step <= 0);
      CHECK(peak.measured >= peak.planned + integers_of_step(choice));
      CHECK(peak.measured <= peak.planned + integers_of_step(choice) + integers_of_head(choice) + kSmall);
    }
  CHECK(peak_of({.samples = 5}).planned_on_host == 0);
}

}  // namespace shardline::planned_memory_test
