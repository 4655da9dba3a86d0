// The bytes that real ranks count in each class, compared with the plan.
#include <ATen/ops/tensor.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/memory/caching_allocator.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"
#include "partitioner/memory/rank_memory.h"
#include "tests/case_sample.h"
#include "tests/engine/train/ones_source.h"
#include "tests/models/families/post_norm_family.h"
#include "tests/mpi/mpi_main.h"

#include "tests/catch.h"

using namespace shardline;

namespace {

constexpr int64_t kLength = 50, kHidden = 96;

struct Setting {
  int d = 1, p = 1, t = 1;
  std::string pipeline = "interleaved", recompute = "none", offload = "no", optimize = "memory", dtype = "float32";
  double dropout = 0;
  int microbatches = 4, samples = 6;  // samples in a microbatch
  bool tied = true;
  std::string whole = "nothing";  // a pattern of units that are not split over T; *e*: embedding and head
  std::string optim = "adamw_torch";
  std::string sharding = "none";  // over the replicas; "MiCS 2" over pairs of them
  std::string family = "gpt2";

  int world() const { return d * p * t; }
  std::string name() const {
    return cat("D", d, " P", p, " T", t, " ", optimize, " ", pipeline, ", ", recompute, ", offload ", offload, ", ",
               dtype, ", dropout ", dropout, ", ", microbatches, " x ", samples, tied ? ", tied" : ", untied",
               ", whole: ", whole, ", ", optim, ", sharded: ", sharding, ", ", family);
  }
};

Config config_of(const Setting& s) {
  nlohmann::json file = {{"model",
                          {{"config",
                            {{"model_type", s.family},
                             {"n_layer", 8},
                             {"n_head", 6},
                             {"n_embd", kHidden},
                             {"vocab_size", 1009},
                             {"n_positions", 64},
                             {"tie_word_embeddings", s.tied},
                             {"resid_pdrop", s.dropout},
                             {"embd_pdrop", s.dropout},
                             {"attn_pdrop", s.dropout}}}}},
                         {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
                         {"training",
                          {{"global_batch_size", s.d * s.samples * s.microbatches},
                           {"optim", s.optim},
                           {"optim_args", s.optim == "sgd" ? nlohmann::json("momentum=0.9") : nlohmann::json()}}},
                         {"smp_options",
                          {{"pipeline_parallel_degree", s.p},
                           {"tensor_parallel_degree", s.t},
                           {"ddp", true},
                           {"microbatches", s.microbatches},
                           {"pipeline", s.pipeline},
                           {"optimize", s.optimize},
                           {"activation_checkpointing", s.recompute},
                           {"offload_activations", s.offload != "no"},
                           {"offload_scope", s.offload == "no" ? "checkpointed" : s.offload},
                           {"activation_loading_horizon", 2},
                           {"offload_path", std::filesystem::temp_directory_path().string()}}},
                         {"runtime", {{"dtype", s.dtype == "float64" ? "float64" : "float32"}}},
                         {"output_dir", "unused"}};
  if (s.whole != "nothing") file["smp_options"]["tensor_parallel_layers"] = {{{"pattern", s.whole}, {"split", false}}};
  auto& smp = file["smp_options"];
  smp["bf16"] = s.dtype.starts_with("bf16");
  smp["fp16"] = s.dtype == "fp16";
  file["training"]["fp32_residual_addition"] = s.dtype == "bf16 and fp32 residuals";
  smp["shard_optimizer_state"] = s.sharding == "ZeRO-1" || s.sharding == "ZeRO-2";
  smp["shard_gradients"] = s.sharding == "ZeRO-2";
  if (s.sharding == "ZeRO-3" || s.sharding == "MiCS 2") {
    smp["sharded_data_parallel_degree"] = s.sharding == "ZeRO-3" ? s.d : 2;
    smp["sdp_param_persistence_threshold"] = s.sharding == "ZeRO-3" ? 0 : 1000;
    if (s.sharding == "MiCS 2") smp["sdp_reduce_bucket_size"] = 10000;
  }
  return parse_config(file.dump(), "memory test");
}

struct Classes {
  double weights = 0, gradients = 0, optimizer = 0;  // each at its own peak
  double others = 0;
};

// The allocator sees one buffer if a received border is kept, so activations and messages are compared as a sum.
Classes planned_for(const MemoryBytes& bytes) {
  return {bytes.weights, bytes.gradients, bytes.optimizer, bytes.activations + bytes.workspace + bytes.communication};
}

Classes counted(const Setting& setting, const Plan& plan, const ModelSource& source, const CommunicatorPtr& world) {
  const Config config = config_of(setting);
  const auto before = memory_totals();
  RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 10);
  fill_parameters(config.model, source, 1, trainer.parameters());
  OnesSource data(setting.d * setting.samples * setting.microbatches, kLength);
  const auto ready = memory_totals();
  restart_memory_peaks();
  trainer.train_step(data, 1);
  const auto end = memory_totals();
  trainer.parameters().visit_values([](const Parameter&) {});  // nothing is in flight when it is destroyed
  world->barrier();
  const auto peak = [&](MemoryClass memory) {
    const auto i = static_cast<size_t>(memory);
    return static_cast<double>(end.peak_of_class[i] - before.now[i]);
  };
  return {peak(MemoryClass::weights), peak(MemoryClass::gradients), peak(MemoryClass::optimizer),
          static_cast<double>(end.peak_live - ready.live)};
}

// With more ranks than cores, a rank may run ahead of another stage's rank that gets no core, and its borders pile up.
double waiting_for_a_core(const Setting& s) {
  const int64_t border = s.samples * kLength * kHidden * (s.dtype == "float64" ? 8 : 4);
  const bool shares = s.world() > static_cast<int>(std::thread::hardware_concurrency());
  return s.p > 1 && shares ? static_cast<double>(s.microbatches * border) : 0;
}

// If a rank loses its core to another process, borders pile up, too, though not in every run: this repeats the run a
// few times, until every rank has fewer than `most` bytes of the others' class.
Classes counted_undisturbed(const Setting& setting, const Plan& plan, const ModelSource& source,
                            const CommunicatorPtr& world, double most) {
  for (int attempt = 1;; ++attempt) {
    const Classes now = counted(setting, plan, source, world);
    auto disturbed = at::tensor({int64_t{now.others >= most}}, at::kLong);
    world->all_reduce(disturbed, {.op = ReduceOp::max, .what = "disturbed?"})->wait();
    if (attempt == 5 || disturbed.item<int64_t>() == 0) return now;
  }
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  const std::vector<Setting> layouts = {
      {.p = 2},         {.t = 2},         {.d = 2},         {.t = 2, .optimize = "speed"},
      {.p = 4},         {.t = 4},         {.p = 2, .t = 2}, {.p = 2, .t = 2, .optimize = "speed"},
      {.d = 2, .p = 2}, {.d = 2, .t = 2}, {.d = 4},         {.t = 4, .optimize = "speed"}};
  const std::vector<std::pair<std::string, std::string>> memory = {
      {"none", "no"}, {"selective", "no"}, {"each", "no"}, {"group_2", "checkpointed"}, {"none", "all"}};
  int n = 0;
  for (Setting s : layouts)
    for (const auto& [recompute, offload] : memory)
      for (const std::string pipeline : {"simple", "interleaved", "zb_h1", "zbv"}) {
        if (s.p == 1 && pipeline != "simple" && pipeline != "interleaved") continue;
        s.recompute = recompute, s.offload = offload, s.pipeline = pipeline;
        s.dropout = n % 2 == 0 ? 0 : 0.1;
        s.dtype = n % 3 == 0 ? "float64" : "float32";
        s.tied = n % 5 != 0;
        s.microbatches = n % 4 == 1 ? 8 : 4;
        s.optim = std::array{"adamw_torch", "adafactor", "sgd"}[static_cast<size_t>(n % 7) % 3];
        ++n;
        all.push_back(s);
      }
  // Units that every rank of T holds whole and computes for its own rows or for all.
  for (const char* whole : {"*", "*attn", "*mlp", "*e*"})
    for (const int t : {2, 4})
      for (const std::string optimize : {"memory", "speed"})
        for (const auto& [recompute, offload] : {memory[0], memory[1], memory[4]}) {
          Setting s{.t = t, .recompute = recompute, .offload = offload, .optimize = optimize};
          s.pipeline = n % 2 == 0 ? "simple" : "interleaved";
          s.dropout = n % 2 == 0 ? 0 : 0.1;
          s.dtype = n % 3 == 0 ? "float64" : "float32";
          s.tied = n % 5 != 0;
          s.whole = whole;
          ++n;
          all.push_back(s);
        }
  for (Setting s : std::vector<Setting>{{.d = 2}, {.d = 2, .p = 2}, {.d = 2, .t = 2}, {.d = 4}})
    for (const char* sharding : {"ZeRO-1", "ZeRO-2", "ZeRO-3", "MiCS 2"})
      for (const std::string pipeline : {"simple", "interleaved", "zb_h1"})
        for (const char* recompute : {"none", "each"}) {
          if (s.p == 1 && pipeline == "zb_h1") continue;
          s.sharding = sharding, s.pipeline = pipeline, s.recompute = recompute;
          s.tied = n % 3 != 0;
          s.optim = std::array{"adamw_torch", "adafactor", "sgd"}[static_cast<size_t>(n % 5) % 3];
          s.dtype = std::array{"float32", "bf16", "fp16", "bf16 and fp32 residuals"}[static_cast<size_t>(n) % 4];
          ++n;
          all.push_back(s);
        }
  for (Setting s : layouts)
    for (const auto& [recompute, offload] : memory) {
      s.recompute = recompute, s.offload = offload;
      s.dtype = std::array{"bf16", "fp16", "bf16 and fp32 residuals"}[static_cast<size_t>(n / 3) % 3];
      s.pipeline = std::array{"simple", "interleaved",
                              "zb_h1"}[s.p == 1 ? static_cast<size_t>(n % 2) : static_cast<size_t>(n % 3)];
      s.dropout = n % 2 == 0 ? 0 : 0.1;
      s.tied = n % 5 != 0;
      s.whole = n % 4 == 0 ? "*" : "nothing";
      ++n;
      all.push_back(s);
    }
  // A family that states nothing about its bytes.
  for (const char* recompute : {"none", "selective"})
    for (const std::string optimize : {"memory", "speed"})
      for (const std::string pipeline : {"simple", "zb_h1"}) {
        Setting s{.t = 2, .pipeline = pipeline, .recompute = recompute, .optimize = optimize, .family = "post_norm"};
        all.push_back(s);
      }
  return all;
}

}  // namespace

TEST_CASE("mpi: ranks count the planned memory, class by class") {
  use_caching_allocator();
  register_post_norm_family();
  const CommunicatorPtr world = testing::mpi_test_world().comm;
  int seen = 0;
  CaseSample sample(7);
  for (const auto& setting : settings()) {
    if (setting.world() != world->size()) continue;
    ++seen;
    if (!sample.takes_next()) continue;
    const Config config = config_of(setting);
    const auto [source, machines, plan] = plan_model(config, world->size());
    const auto bytes = memory_by_rank(placed_layers(plan))[world->rank()];
    const Classes planned = planned_for(bytes);
    // Memory for gathered weights and reduced gradients is in use only temporarily, in addition to this.
    const double passing = setting.sharding == "none" ? 0 : planned.weights + planned.gradients;
    const double most = 1.05 * planned.others + waiting_for_a_core(setting) + passing;
    const Classes now = counted_undisturbed(setting, plan, source, world, most);
    CAPTURE(setting.name(), world->rank(), bytes.activations, bytes.workspace, bytes.communication);
    CHECK(now.weights == planned.weights);
    CHECK(now.gradients == planned.gradients);
    CHECK(now.optimizer == planned.optimizer);
    CHECK(now.others > 0.95 * planned.others);
    CHECK(now.others < most);
    world->barrier();
  }
  CHECK(seen >= 30);
}
