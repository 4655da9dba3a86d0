#include "engine/config/config.h"

#include <algorithm>
#include <sstream>

#include "core/error.h"
#include "engine/config/keys/memory_cap.h"
#include "engine/config/keys/recompute_rules.h"
#include "engine/config/keys/registry.h"
#include "engine/config/keys/tensor_rules.h"
#include "engine/config/rules/precision_rules.h"

#include "tests/catch.h"

namespace shardline::config_test {

using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

json minimal() {
  return json::parse(R"({"model": {"config": {"model_type": "gpt2", "n_layer": 2}},
                         "data": {"train": "a.txt", "tokenizer": "bytes"}, "output_dir": "out"})");
}

Config parsed(const json& file, const std::vector<std::string>& overrides = {}) {
  return parse_config(file.dump(), "c.json", overrides);
}

Config with(const std::string& patch, const std::vector<std::string>& overrides = {}) {
  json file = minimal();
  file.merge_patch(json::parse(patch));
  return parsed(file, overrides);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::string error_with(const std::string& patch, const std::vector<std::string>& overrides = {}) {
  return error_of([&] { with(patch, overrides); });
}

bool has_note(const Config& config, const std::string& key, bool on_accelerators = false) {
  const auto lines = notes(config, on_accelerators);
  return std::any_of(lines.begin(), lines.end(), [&](const auto& line) { return line.find(key) == 0; });
}

}  // namespace

TEST_CASE("A minimal config has the documented defaults", "[config]") {
  const Config config = with("{}");
  CHECK(config.task == kCausalLm);
  CHECK_FALSE(config.model.pretrained());
  CHECK(config.data.train == std::vector<std::string>{"a.txt"});
  CHECK(config.training.per_device_train_batch_size == 8);
  CHECK(config.training.gradient_accumulation_steps == 1);
  CHECK(config.training.learning_rate == 5e-5);
  CHECK(config.training.max_grad_norm == 1.0);
  CHECK(config.training.seed == 42);
  CHECK(config.smp.pipeline == "interleaved");
  CHECK(config.smp.optimize == Optimize::memory);
  CHECK(config.smp.placement_strategy == "cluster");
  CHECK_FALSE(config.smp.ddp.has_value());
  CHECK(with(R"({"model": {"path": "m"}})").model.pretrained());
  CHECK_FALSE(with(R"({"model": {"path": "m", "init": "random"}})").model.pretrained());
  CHECK_FALSE(with(R"({"training": {"global_batch_size": 16}})").training.per_device_train_batch_size.has_value());
}

TEST_CASE("Errors about broken configs state what to change", "[config]") {
  const auto [patch, expected] = GENERATE(table<std::string, std::string>({
      {R"({"smp_options": {"tensor_paralel_degree": 2}})",
       "c.json: /smp_options/tensor_paralel_degree: unknown key; got 2; did you mean tensor_parallel_degree?"},
      {R"({"training": {"tensor-model-parallel-size": 2}})",
       "c.json: /training/tensor-model-parallel-size: unknown key; got 2; did you mean "
       "smp_options.tensor_parallel_degree?"},
      {R"({"smp_options": {"learning_rate": 1}})",
       "c.json: /smp_options/learning_rate: unknown key; got 1; did you mean training.learning_rate?"},
      {R"({"smp_options": {"microbatches": 3.7}})",
       "/smp_options/microbatches: must be an integer >= 1 and <= 65536 or \"auto\"; got 3.7"},
      {R"({"smp_options": {"microbatches": 3}})",
       "c.json: /smp_options/microbatches: must divide the replica's batch 8 (per_device_train_batch_size 8 x 1 "
       "tensor-parallel ranks); got 3; change microbatches to 2 or 4, or per_device_train_batch_size to 6 or 9"},
      {R"({"smp_options": {"partitions": 2, "pipeline_parallel_degree": 4}})",
       "c.json: /smp_options/partitions: is another name of pipeline_parallel_degree, which has another value (4); got "
       "2; keep one of them"},
      {R"({"smp_options": {"tensor_parallel_degree": 2, "ddp": false}})",
       "c.json: /smp_options/ddp: must be true with tensor_parallel_degree 2; got false; leave it out"},
      {R"({"smp_options": {"bf16": true}, "training": {"fp16": true}})",
       "c.json: /training/fp16: contradicts bf16; got true; keep one of them"},
      {R"({"smp_options": {"bf16": false}, "training": {"bf16": true}})",
       "c.json: /smp_options/bf16: contradicts training.bf16 true; got false; keep one of them"},
      {R"({"smp_options": {"sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0.5},
           "training": {"max_grad_norm": 1.0}, "mpi_options": {"processes_per_host": 2}})",
       "c.json: /smp_options/sdp_gradient_clipping: contradicts training.max_grad_norm 1.0; got 0.5"},
      {R"({"smp_options": {"sdp_gradient_clipping": 0.5}})",
       "sdp_gradient_clipping: has no effect without sharded_data_parallel_degree > 1; got 0.5"},
      {R"({"smp_options": {"microbatches": 2}, "data": {"sequence_length": 16384},
           "model": {"config": {"n_positions": 16384}},
           "training": {"per_device_train_batch_size": 16386}})",
       "makes microbatches of 8193 samples x data.sequence_length 16384 = 134234112 tokens, more than 134217728; got "
       "2"},
      {R"({"smp_options": {"microbatches": 2}, "data": {"sequence_length": 16384},
           "model": {"config": {"n_positions": 16384}},
           "training": {"per_device_train_batch_size": 16384, "per_device_eval_batch_size": 16385}})",
       "/training/per_device_eval_batch_size: makes microbatches of 8193 samples x data.sequence_length 16384 = "
       "134234112 tokens, more than 134217728; got 16385"},
      {R"({"smp_options": {"fp16_params": true}, "training": {"bf16": true}})",
       "c.json: /smp_options/fp16_params: contradicts bf16; "},
      {R"({"training": {"bf16": true}, "runtime": {"dtype": "float64"}})",
       "c.json: /training/bf16: contradicts runtime.dtype \"float64\"; got true; keep one of them"},
      {R"({"training": {"bf16": true, "static_loss_scale": 128}})",
       "c.json: /training/static_loss_scale: has no effect without fp16; got 128; set fp16"},
      {R"({"training": {"query_key_layer_scaling": true}})",
       "c.json: /training/query_key_layer_scaling: has no effect without fp16; got true"},
      {R"({"training": {"fp16": true, "static_loss_scale": 128, "dynamic_loss_scale": true}})",
       "c.json: /training/static_loss_scale: contradicts dynamic_loss_scale true; got 128; leave one of them out"},
      {R"({"training": {"fp16": true, "dynamic_loss_scale": false, "dynamic_loss_args": {"min_scale": 2}}})",
       "c.json: /training/dynamic_loss_args: is only used with a dynamic loss scale"},
      {R"({"training": {"fp16": true, "dynamic_loss_args": {"scale_windows": 2}}})",
       "c.json: /training/dynamic_loss_args: unknown argument \"scale_windows\"; got {\"scale_windows\":2}; "
       "known arguments: ["},
      {R"({"training": {"fp16": true, "dynamic_loss_args": {"scale_window": 2.5}}})",
       "\"scale_window\" must be a whole number, not 2.5"},
      {R"({"training": {"fp16": true, "dynamic_loss_args": {"scale_factor": 1}}})",
       "\"scale_factor\" must be greater than 1"},
      {R"({"smp_options": {"pipeline": "_only_forward"}})",
       "c.json: /smp_options/pipeline: \"_only_forward\" is not available; got \"_only_forward\"; use `shardline "
       "eval`"},
      {R"({"smp_options": {"pipeline": "zb_h3"}})", "did you mean \"zb_h1\"?"},
      {R"({"smp_options": {"pipeline": "mine.txt"}})", "\"*.csv\", \"*.json\"; got \"mine.txt\""},
      {R"({"smp_options": {"virtual_pipeline_degree": 0}})", "must be an integer >= 1"},
      {R"({"smp_options": {"pipeline": "interleaves"}})", "did you mean \"interleaved\"?"},
      {R"({"smp_options": {"tensor_parallel_degree": "auto"}})",
       "c.json: /smp_options/tensor_parallel_degree: \"auto\" needs training.global_batch_size; got \"auto\"; set the "
       "number of samples in a step"},
      {R"({"smp_options": {"microbatches": "auto", "pipeline": "mine.json"}, "training": {"global_batch_size": 8}})",
       "contradicts a file of instructions"},
      {R"({"smp_options": {"pipeline_parallel_degree": "auto", "auto_partition": false},
           "training": {"global_batch_size": 8}})",
       "\"auto\" contradicts an explicit partition"},
      {R"({"mpi_options": {"hosts": ["a", "b"], "processes_per_host": 2, "max_restarts": 1, "elastic": true},
           "training": {"dataloader_drop_last": true, "gradient_accumulation_steps": 2}})",
       "/mpi_options/elastic: with training.dataloader_drop_last and gradient_accumulation_steps needs "
       "training.global_batch_size; got true"},
      {R"({"smp_options": {"sharded_data_parallel_degree": "auto"}})",
       "c.json: /smp_options/sharded_data_parallel_degree: \"auto\" needs training.global_batch_size"},
      {R"({"smp_options": {"sharded_data_parallel_degree": "auto", "shard_optimizer_state": true,
           "shard_gradients": true}, "training": {"global_batch_size": 8}})",
       "\"auto\" chooses shard_gradients, too; got \"auto\"; leave that key out"},
      {R"({"smp_options": {"sharded_data_parallel_degree": 1, "sdp_max_live_parameters": 1e6},
           "training": {"global_batch_size": 8}})",
       "/smp_options/sdp_max_live_parameters: has no effect without sharded_data_parallel_degree > 1"},
      {R"({"smp_options": {"microbatches": "autom"}})", "did you mean \"auto\"?"},
      {R"({"smp_options": {"load_partition": true}})",
       "has no effect without partition_file; got true; name the plan.json"},
      {R"({"smp_options": {"partition_file": "plan.json"}})", "has no effect without load_partition"},
      {R"({"smp_options": {"manual_partition": [1, "2"], "auto_partition": false}})",
       "c.json: /smp_options/manual_partition: entry 1 must be a number of blocks, but is \"2\""},
      {R"({"smp_options": {"manual_partition": [1]}})", "contradicts auto_partition true"},
      {R"({"training": {"fsdp": "full_shard"}})",
       "c.json: /training/fsdp: not supported; got \"full_shard\"; use smp_options"},
      {R"({"training": {"eval_strategy": "steps"}})",
       "c.json: /training/eval_strategy: has no effect without data to evaluate on; got \"steps\"; give "
       "data.validation"},
      {R"({"training": {"warmup_steps": 10, "warmup_ratio": 0.1}})",
       "c.json: /training/warmup_ratio: contradicts training.warmup_steps 10; got 0.1; keep one of them"},
      {R"({"training": {"warmup_steps": 10.5}})", "must be a whole number of steps"},
      {R"({"training": {"max_steps": 0}})", "must be -1 or >= 1"},
      {R"({"training": {"no_cuda": true}, "runtime": {"device": "cuda"}})",
       "c.json: /training/no_cuda: contradicts runtime.device \"cuda\"; got true; keep one of them"},
      {R"({"training": {"output_dir": "x"}})", "move it to /output_dir"},
      {R"({"data": {"tokenizer": null}})", "/data/tokenizer: is required when there is no model.path"},
      {R"({"data": {"train": [1]}})", "/data/train: must be a string or a list of strings; got [1]"},
      {R"({"data": {"train": null}})", "/data/train: data.train or data.validation is required; give a file"},
      {R"({"model": {"config": null, "path": ""}})",
       "/model/path: model.path or model.config is required; got \"\"; set a model directory"},
      {R"({"model": {"config": {"model_type": null}}})",
       "c.json: /model/config/model_type: must name the model family; known: bert"},
      {R"({"model": {"init": "pretrained"}})", "\"pretrained\" needs model.path"},
      {R"({"task": "masked"})", "/task: must be one of"},
      {R"({"output_dir": ""})", "c.json: /output_dir: is required; got \"\"; set it to the directory"},
      {R"({"mpi_options": {"processes_per_host": 3}, "smp_options": {"partitions": 2}})",
       "c.json: /smp_options/partitions: the world size 3 must be a multiple of P x T = 2 x 1 = 2; got 2; start 2 or 4 "
       "processes"},
      {R"({"mpi_options": {"processes_per_host": 2}, "smp_options": {"ddp": false}})", "must be true with 2 replicas"},
      {R"({"mpi_options": {"processes_per_host": 4097}})",
       "/mpi_options/processes_per_host: must be at most 4096; got 4097; to plan for other machines, name them in "
       "cluster"},
      {R"({"mpi_options": {"processes_per_host": 409600000, "hosts": ["a", "b", "c", "d", "e", "f"]}, "cluster": "x"})",
       "/mpi_options/processes_per_host: must be at most 68266666; got 409600000; give the ranks on each host"},
      {R"({"model": {"path": "m.pt2", "config": {"n_layer": null}}})", "/model_type: overrides a key of a config.json"},
      {R"({"mpi_options": {"enabled": false}, "smp_options": {"partitions": 2}})",
       "/mpi_options/enabled: must be true"},
      {R"({"runtime": {"communicator": "nccl", "device": "cpu"}})", "\"nccl\" needs GPUs"},
      {R"({"smp_options": {"ddp_dist_backend": "nccl"}})",
       "c.json: /smp_options/ddp_dist_backend: has no effect without ddp; got \"nccl\"; set smp_options.ddp to true"},
      {R"({"smp_options": {"ddp_dist_backend": "nccl", "ddp": true}, "runtime": {"device": "cpu"}})",
       "\"nccl\" needs GPUs, but runtime.device is \"cpu\"; got \"nccl\"; use \"auto\""},
      {R"({"smp_options": {"ddp_dist_backend": "nccl", "ddp": true}, "runtime": {"communicator": "mpi"}})",
       "contradicts runtime.communicator \"mpi\"; got \"nccl\"; leave one of them out"},
      {R"({"smp_options": {"ddp_dist_backend": "gloo"}})", "got \"gloo\""},
      {R"({"smp_options": {"sdp_hierarchical_allgather": false}})",
       "has no effect where nothing is sharded; got false; set sharded_data_parallel_degree"},
      {R"({"smp_options": {"default_partition": 1}})", "must be < pipeline_parallel_degree 1"},
      {R"({"smp_options": {"memory_weight": 1.2}})", "must be a number >= 0 and <= 1; got 1.2"},
      {R"({"smp_options": {"parameters": {"microbatchs": 1}, "enabled": true}})",
       "c.json: /smp_options/parameters/microbatchs: unknown key; got 1; did you mean microbatches?"},
      {R"({"smp_options": {"parameters": {}, "enabled": false}})", "c.json: /smp_options/enabled: must be true"},
      {R"({"distribution": {"smdistributed": {"modelparallel": {"enabled": true, "parameters": {"microbatches": "4"}}}}})",
       "/distribution/smdistributed/modelparallel/parameters/microbatches: must be an integer >= 1 and <= 65536 or "
       "\"auto\"; got \"4\"; write 4 without quotes"},
      {R"({"distribution": {}, "smp_options": {}})", "keep one of them"},
      {R"({"smp_options": {"enabled": true, "microbatches": 2, "parameters": {}}})",
       "c.json: /smp_options/microbatches: is outside of \"parameters\"; got 2; move it into parameters"},
      {R"({"smp_options": {"enabled": true, "partition": 2, "parameters": {}}})",
       "/smp_options/partition: unknown key"},
      {R"({"smp_options": {"activation_checkpointing": [{"layers": "h\\.(0|1)x", "strategy": "each"}]}})",
       "\"h\\.(0|1)x\" is a regular expression, but names are selected by * ? and [] as in a shell; got [{\"layers"},
      {R"({"smp_options": {"manual_partition": [{"layers": "^h\\.[^0-3].*$", "stage": 0}], "auto_partition": false}})",
       "; write \"h.[!0-3]*\""},
      {R"({"smp_options": {"tensor_parallel_layers": [{"pattern": ".*attn", "split": false}]}})",
       "; write \"*attn\", or \"*attn*\" for all names in which it is found"},
      {R"({"smp_options": {"tensor_parallel_layers": [{"pattern": "h\\.\\d+\\.mlp", "split": false}]}})",
       "; write \"h.[0-9]*.mlp\", or \"*h.[0-9]*.mlp*\" for all names in which it is found"},
      {R"({"training": {"weight_decay": 0.1, "no_decay_patterns": ["*wte*", "mlp\\.c_.*weight$"]}})",
       "/training/no_decay_patterns: \"mlp\\.c_.*weight$\" is a regular expression, but names are selected by * ? and "
       "[] "
       "as in a shell; got [\"*wte*\",\"mlp\\\\.c_.*weight$\"]; write \"mlp.c_*weight\""},
      {R"({"training": {"weight_decay": 0.1, "no_decay_patterns": "bias|norm"}})",
       "/training/no_decay_patterns: \"bias|norm\" is a regular expression"},
  }));
  const std::string message = error_with(patch);
  INFO(patch << "\n" << message);
  CHECK_THAT(message, Contains(expected));
  CHECK(std::count(message.begin(), message.end(), '\n') == 0);  // one mistake must not cause further messages
}

TEST_CASE("All mistakes of a config are reported at once", "[config]") {
  const std::string message = error_with(R"({
    "smp_options": {"pipeline": "gpipe", "tensor_parallel_degree": 0, "horovod": true},
    "training": {"learning_rate": "3e-4", "evaluation_strategy": "never", "micro_batch_size": 4},
    "data": {"format": "xml", "block_size": 3}, "runtime": {"dtype": "float16"}, "modle": {}})");
  INFO(message);
  CHECK(std::count(message.begin(), message.end(), '\n') == 9);
  for (const char* pointer :
       {"/smp_options/pipeline:", "/smp_options/tensor_parallel_degree:", "/smp_options/horovod:",
        "/training/learning_rate: must be a number >= 0; got \"3e-4\"; write 0.0003 without quotes",
        "/training/evaluation_strategy:", "/training/micro_batch_size:", "/data/format:",
        "/data/block_size: unknown key; got 3; did you mean data.sequence_length?",
        "/runtime/dtype:", "/modle: unknown key; got {}; did you mean model?"})
    CHECK_THAT(message, Contains(pointer));
}

TEST_CASE("Half precision is chosen in either section, and the loss scale by SageMaker's arguments", "[config]") {
  for (const char* patch : {R"({"smp_options": {"fp16": true}})", R"({"training": {"fp16": true}})"}) {
    const Config config = with(patch);
    CHECK(precision_of(config) == Precision::fp16);
    CHECK(number_types(config).values == at::kHalf);
    CHECK(number_types(config).borders == at::kHalf);
    CHECK(number_types(config).exact == at::kFloat);
    CHECK(loss_scale_options(config.training) == LossScaleOptions());
  }
  const Config bf16 =
      with(R"({"training": {"bf16": true, "fp32_residual_addition": true, "attention_in_fp32": true}})");
  CHECK(number_types(bf16).values == at::kBFloat16);
  CHECK(number_types(bf16).borders == at::kFloat);
  CHECK(half_options(bf16) == HalfOptions{at::kFloat, true, false});
  CHECK(half_options(with(R"({"training": {"attention_in_fp32": true}})")) == HalfOptions());
  CHECK(has_note(with(R"({"training": {"attention_in_fp32": true}})"), "training.attention_in_fp32 has no effect"));

  const auto scale = [](const char* patch) { return loss_scale_options(with(patch).training); };
  CHECK(scale(R"({"training": {"fp16": true, "static_loss_scale": 128}})") ==
        LossScaleOptions{.dynamic = false, .initial = 128});
  CHECK(scale(R"({"training": {"fp16": true, "dynamic_loss_scale": false}})") ==
        LossScaleOptions{.dynamic = false, .initial = 1});
  CHECK(
      scale(R"({"training": {"fp16": true, "dynamic_loss_args": {"scale_window": 100, "min_scale": 2,
                  "delayed_shift": 2, "init_scale": 1024, "scale_factor": 4, "consecutive_hysteresis": true}}})") ==
      LossScaleOptions{
          .initial = 1024, .factor = 4, .window = 100, .least = 2, .delayed_shift = 2, .consecutive_hysteresis = true});
}

TEST_CASE("The error about an empty config lists all required keys", "[config]") {
  const std::string message = error_of([] { parse_config("{}", "c.json"); });
  for (const char* key : {"/output_dir: is required", "/model/path: ", "/data/train: ", "/data/tokenizer: "})
    CHECK_THAT(message, Contains(key));
}

TEST_CASE("SageMaker's forms mean the same as the bare options", "[config]") {
  const Config bare = with(
      R"({"smp_options": {"partitions": 2, "tensor_parallel_degree": 2, "microbatches": 4, "ddp": true},
          "mpi_options": {"enabled": true, "processes_per_host": 8}})");
  CHECK(bare.smp.pipeline_parallel_degree == 2);
  CHECK(bare.smp.ddp == true);
  CHECK(bare == with(R"({"smp_options": {"enabled": true, "parameters": {"pipeline_parallel_degree": 2, "partitions": 2,
                         "tensor_parallel_degree": 2, "microbatches": 4, "ddp": true}},
                         "mpi_options": {"processes_per_host": 8}})"));
  const char* distribution = R"({"distribution": {"smdistributed": {"modelparallel": {"enabled": true, "parameters": {
      "partitions": 2, "tensor_parallel_degree": 2, "microbatches": 4, "ddp": true}}},
      "mpi": {"enabled": true, "processes_per_host": 8}}})";
  CHECK(bare == with(distribution));
  CHECK(with(distribution, {"smp_options.microbatches=8"}).smp.microbatches == 8);
  CHECK(with(distribution, {"mpi_options.processes_per_host=4"}).mpi.processes_per_host == 4);
}

TEST_CASE("A whole SMP parameter set of the AWS examples at its defaults is accepted", "[config]") {
  const Config config = with(R"({"smp_options": {"ddp": true, "partitions": 2, "tensor_parallel_degree": 1,
      "microbatches": 4, "pipeline": "interleaved", "optimize": "speed", "placement_strategy": "spread",
      "skip_tracing": true, "delayed_parameter_initialization": true, "fp16": false, "bf16": false,
      "offload_activations": false, "activation_loading_horizon": 4, "shard_optimizer_state": false,
      "prescaled_batch": true, "sharded_data_parallel_degree": 1, "memory_weight": 0.2, "auto_partition": true,
      "default_partition": 0, "active_microbatches": 3, "deterministic_server": true, "sdp_reduce_bucket_size": 5e8,
      "_match_weights": false, "static_mode": true, "fast_mode": true}})");
  CHECK(config.smp.active_microbatches == 3);
  CHECK(config.smp.placement_strategy == "spread");
  CHECK(has_note(config, "smp_options.skip_tracing has no effect: "));
  CHECK_FALSE(has_note(config, "smp_options.ddp"));
}

TEST_CASE("Degrees may be auto, and stay auto in the resolved config", "[config]") {
  const Config config = with(R"({"smp_options": {"partitions": "auto", "tensor_parallel_degree": "auto",
      "microbatches": "auto", "virtual_pipeline_degree": "auto", "pipeline": "interleaved_1f1b",
      "sharded_data_parallel_degree": "auto", "sdp_max_live_parameters": 1e6, "sdp_hierarchical_allgather": false},
      "training": {"global_batch_size": 8}})");
  CHECK(config.smp.pipeline_parallel_degree == kAuto);
  CHECK(config.smp.microbatches == kAuto);
  CHECK(config.smp.sharded_data_parallel_degree == kAuto);
  CHECK(resolved(config)["smp_options"]["tensor_parallel_degree"] == "auto");
  CHECK(parsed(resolved(config)) == config);
}

TEST_CASE("Keys that a partition does not use are reported", "[config]") {
  CHECK(has_note(with(R"({"smp_options": {"default_partition": 0}})"), "smp_options.default_partition"));
  CHECK(has_note(with(R"({"smp_options": {"auto_partition": false, "memory_weight": 0.5}})"),
                 "smp_options.memory_weight"));
  CHECK(notes(with(R"({"smp_options": {"memory_weight": 0.5}, "training": {"save_strategy": "no"}})"), false).empty());
}

TEST_CASE("A memory cap is a number of bytes, or a text with a unit", "[config]") {
  CHECK(memory_cap_bytes(nullptr) == 0);
  CHECK(memory_cap_bytes(3000000) == 3000000);
  CHECK(memory_cap_bytes("3000000") == 3000000);
  CHECK(memory_cap_bytes("64KiB") == 65536);
  CHECK(memory_cap_bytes("1.5GiB") == int64_t{3} << 29);
  CHECK(memory_cap_bytes("2TiB") == int64_t{1} << 41);
  for (const json& wrong : json::parse(R"([0, -5, "", "GiB", "2GB", "2 GiB", "many", true, [1], {}, 1e300, "nan"])")) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(memory_cap_bytes(wrong), ConfigError);
    CHECK_THAT(error_with(cat(R"({"runtime": {"memory_cap": )", wrong.dump(), "}}")),
               Contains("/runtime/memory_cap: "));
  }
  const Config capped = with(R"({"runtime": {"memory_cap": "2GiB"}})");
  CHECK(parsed(resolved(capped)) == capped);
  CHECK_THAT(error_with(R"({"runtime": {"memory_cap": "2GiB", "communicator": "threads"},
                            "smp_options": {"pipeline_parallel_degree": 2}})"),
             Contains("2 ranks share one"));
  CHECK_THAT(error_with(R"({"runtime": {"memory_cap": "2GiB", "device": "cuda"}})"), Contains("CPU tensors"));
}

TEST_CASE("Only optimizer states of accelerators are offloaded", "[config]") {
  CHECK_FALSE(with("{}").smp.offload_optimizer_states);
  const Config config = with(R"({"smp_options": {"offload_optimizer_states": true}})");
  CHECK(config.smp.offload_optimizer_states);
  CHECK(parsed(resolved(config)) == config);
  CHECK(has_note(config, "smp_options.offload_optimizer_states has no effect on CPU ranks"));
  CHECK_FALSE(has_note(config, "smp_options.offload_optimizer_states", true));
  CHECK_FALSE(has_note(with("{}"), "smp_options.offload_optimizer_states"));
  CHECK_THAT(error_with(R"({"smp_options": {"offload_optimizer_states": "cpu"}})"),
             Contains("/smp_options/offload_optimizer_states: "));
}

TEST_CASE("Activation checkpointing is a strategy or a list by layer pattern", "[config]") {
  for (const char* name : {"none", "each", "contiguous", "group_3", "selective"})
    CHECK(json(with(cat(R"({"smp_options": {"activation_checkpointing": ")", name, "\"}}"))
                   .smp.activation_checkpointing) == name);
  const Config listed = with(R"({"smp_options": {"activation_checkpointing":
      [{"layers": "h.[0-1]", "strategy": "group_2"}, {"layers": "h.*", "strategy": "selective"}],
      "offload_activations": true, "activation_loading_horizon": 6, "offload_path": "/scratch"}})");
  CHECK(listed.smp.activation_checkpointing.entries.size() == 2);
  CHECK(listed.smp.offload_activations);
  CHECK(listed.smp.activation_loading_horizon == 6);
  CHECK(listed.smp.offload_path == "/scratch");
  CHECK(parsed(resolved(listed)) == listed);
  CHECK(has_note(with(R"({"smp_options": {"offload_activations": true}})"),
                 "smp_options.offload_activations has no effect"));
  const Config all = with(R"({"smp_options": {"offload_activations": true, "offload_scope": "all"}})");
  CHECK(all.smp.offload_scope == OffloadScope::all);
  CHECK_FALSE(has_note(all, "smp_options.offload_activations"));
  CHECK_THAT(error_with(R"({"smp_options": {"offload_scope": "inputs"}})"), Contains("/smp_options/offload_scope"));
  for (const char* wrong :
       {R"("all")", R"("group_0")", "true", "3", "{}", R"([{"layers": "h.*"}])", R"(["each"])",
        R"([{"layers": "h.*", "strategy": "every"}])", R"([{"layers": "h.*", "strategy": "each", "n": 2}])"}) {
    CAPTURE(wrong);
    CHECK_THAT(error_with(cat(R"({"smp_options": {"activation_checkpointing": )", wrong, "}}")),
               Contains("/smp_options/activation_checkpointing: "));
  }
}

TEST_CASE("Patterns select what tensor parallelism splits, and the last match applies", "[config]") {
  const Config config = with(R"({"smp_options": {"tensor_parallel_layers":
      [{"pattern": "h.[0-3].mlp", "split": false}, {"pattern": "*attn", "split": "auto"}]}})");
  CHECK(config.smp.tensor_parallel_layers.entries.size() == 2);
  CHECK(parsed(resolved(config)) == config);
  CHECK(with("{}").smp.tensor_parallel_layers.entries.empty());
  for (const char* wrong :
       {"true", "{}", R"(["h.0.mlp"])", R"([{"pattern": "h.0.mlp"}])", R"([{"pattern": 3, "split": true}])",
        R"([{"pattern": "h\\.0", "split": true}])", R"([{"pattern": "h", "split": "never"}])",
        R"([{"pattern": "h", "split": 1}])", R"([{"pattern": "h", "split": true, "why": 2}])"}) {
    CAPTURE(wrong);
    CHECK_THAT(error_with(cat(R"({"smp_options": {"tensor_parallel_layers": )", wrong, "}}")),
               Contains("/smp_options/tensor_parallel_layers: "));
  }

  ModelSpec spec;
  for (const char* name : {"h.0", "h.1", "h.2"}) spec.layers.push_back({.name = name, .units = {{"attn"}, {"mlp"}}});
  const auto wishes = [&](const char* value) {
    std::string text;
    for (const auto& [name, rule] : tensor_rules_by_unit(json::parse(value), spec))
      text += cat(name, "=", static_cast<int>(rule.wish), " ");
    return text;
  };
  CHECK(wishes("null").empty());
  CHECK(wishes(R"([{"pattern": "*mlp", "split": true}, {"pattern": "h.[12].*", "split": false},
                   {"pattern": "h.2.mlp", "split": "auto"}])") ==
        "h.0.mlp=0 h.1.attn=1 h.1.mlp=1 h.2.attn=1 h.2.mlp=2 ");
  // Patterns match whole names; without a match, the message shows the nearest name.
  CHECK_THROWS_WITH(
      wishes(R"([{"pattern": "*", "split": true}, {"pattern": "h.1.atn", "split": true}])"),
      Contains("tensor_parallel_layers/1: \"h.1.atn\" matches no unit that tensor parallelism splits; did "
               "you mean \"h.1.attn\"? The names are h.0.attn, h.0.mlp, "));
  CHECK_THROWS_WITH(wishes(R"([{"pattern": "mlp", "split": true}])"),
                    Contains("patterns match whole names: write \"*mlp*\""));
}

TEST_CASE("Layers take the first entry that names them, and only blocks are recomputed", "[config]") {
  ModelSpec spec;
  for (const char* name : {"embedding", "h.0", "h.1", "h.2", "head"})
    spec.layers.push_back({.name = name, .is_block = name[1] == '.'});
  const auto names = [&](const char* value) {
    std::string text;
    for (const auto& recompute : recompute_by_layer(json::parse(value), spec)) text += to_string(recompute) + " ";
    return text;
  };
  CHECK(names(R"("each")") == "none each each each none ");
  CHECK(names(R"([{"layers": "h.1", "strategy": "none"}, {"layers": "h.*", "strategy": "group_2"}])") ==
        "none group_2 none group_2 none ");
  CHECK(names("[]") == "none none none none none ");
  CHECK_THROWS_WITH(names(R"([{"layers": "h.9", "strategy": "each"}])"), Contains("\"h.9\" matches no block"));
  CHECK_THROWS_WITH(names(R"([{"layers": "head", "strategy": "each"}])"), Contains("matches no block"));
  CHECK_THROWS_WITH(
      names(R"([{"layers": "*", "strategy": "each"}, {"layers": "h.1", "strategy": "none"}])"),
      Contains("activation_checkpointing/1: \"h.1\" matches no block that earlier entries have not matched"));
}

TEST_CASE("TrainingArguments of version 4 are read by their old names", "[config]") {
  const Config config = with(R"({"training": {"per_gpu_train_batch_size": 4, "evaluation_strategy": "epoch",
      "warmup_ratio": 0.1, "warmup_steps": 0, "no_cuda": true, "adafactor": false, "fsdp": [], "gradient_checkpointing":
      false, "lr_scheduler_kwargs": {}, "report_to": ["tensorboard"], "label_smoothing_factor": 0, "tf32": null,
      "save_steps": 500, "dataloader_num_workers": 4}, "data": {"validation": ["v.txt"]}})");
  CHECK(config.training.per_device_train_batch_size == 4);
  CHECK(config.training.eval_strategy == EvalStrategy::epoch);
  CHECK(config.training.warmup_steps == 0.1);
  CHECK(config.training.report_to == std::vector{Tracker::tensorboard});
  CHECK(config.runtime.device == DeviceChoice::cpu);
  CHECK(has_note(config, "training.dataloader_num_workers"));
  CHECK_FALSE(has_note(with(R"({"training": {"save_strategy": "no"}})"), "training.save_strategy"));
  CHECK(with(R"({"training": {"per_gpu_train_batch_size": null, "per_device_train_batch_size": 2}})")
            .training.per_device_train_batch_size == 2);
}

TEST_CASE("A resolved config reads as the same config", "[config]") {
  for (const char* patch :
       {"{}",
        R"({"training": {"global_batch_size": 32, "warmup_steps": 100, "adam_beta2": 0.95, "learning_rate": 3e-4}})",
        R"({"training": {"warmup_ratio": 0.06, "no_cuda": true, "data_seed": 4294967295, "eval_steps": 5,
            "eval_strategy": "steps", "full_determinism": true, "hub_token": null},
            "data": {"validation_split_percentage": 5, "max_train_samples": 5000000000, "shuffle": false},
            "smp_options": {"enabled": true, "parameters": {"partitions": 2, "skip_tracing": true, "ddp": true}},
            "mpi_options": {"hosts": ["a", "b"], "processes_per_host": 2, "custom_mpi_options": "-x A=1"}})"}) {
    const Config config = with(patch);
    const json file = resolved(config, {{"global_batch", 8}, {"version", "0.1.0"}});
    CHECK(file["derived"]["version"] == "0.1.0");
    CHECK(file["model"]["config"]["n_layer"] == 2);
    CHECK(parsed(file) == config);
    CHECK(resolved(parsed(file)) == resolved(config));
  }
}

TEST_CASE("The hub's token is not written to the resolved config", "[config]") {
  const Config config = with(R"({"training": {"hub_token": "hf_secret"}})");
  CHECK(has_note(config, "training.hub_token"));
  CHECK(resolved(config).dump().find("hf_secret") == std::string::npos);
}

TEST_CASE("--set changes values before they are checked", "[config]") {
  CHECK(with("{}", {"training.max_steps=10"}).training.max_steps == 10);
  CHECK(with("{}", {"/training/max_steps=10"}).training.max_steps == 10);
  CHECK(with("{}", {"output_dir=runs/x=1"}).output_dir == "runs/x=1");
  CHECK(with("{}", {"data.train=[\"a\", \"b\"]"}).data.train.size() == 2);
  CHECK(with("{}", {"model.config.n_layer=7"}).model.config["n_layer"] == 7);
  CHECK(with("{}", {"training.max_steps=10", "training.max_steps=11"}).training.max_steps == 11);
  const char* envelope = R"({"smp_options": {"enabled": true, "parameters": {"partitions": 2}}})";
  CHECK(with(envelope, {"smp_options.pipeline_parallel_degree=4"}).smp.pipeline_parallel_degree == 4);
  CHECK(with(envelope, {"smp_options.partitions=1"}).smp.pipeline_parallel_degree == 1);

  CHECK_THAT(error_with("{}", {"training.max_steps=1O"}),
             Contains("--set training.max_steps=1O: /training/max_steps: must be an integer >= -1; got \"1O\""));
  CHECK_THAT(error_with("{}", {"training.max_stesp=1"}), Contains("did you mean max_steps?"));
  CHECK_THAT(error_with("{}", {"training.max_steps"}), Contains("must be path=value"));
  CHECK_THAT(error_with("{}", {"output_dir.x=1"}), Contains("/output_dir is not an object, but \"out\""));
  CHECK_THAT(error_with("{}", {"training..x=1"}), Contains("empty part"));
  CHECK_THAT(error_with("{}", {"a=1", "b=2"}), Contains("/a: unknown key") && Contains("/b: unknown key"));
  // A mistake on the command line causes no further messages and is not attributed to the file.
  for (const char* slip :
       {"training.max_stesp=1", "smp_options.microbatch=2", "runtime.devise=cpu", "mpi_options.host=a",
        "data.tran=a.txt", "model.pth=m", "trainig.max_steps=1", "trainig.a.b=1"}) {
    const auto message = error_with("{}", {slip});
    CAPTURE(slip, message);
    CHECK(message.starts_with(cat("--set ", slip, ": /")));
    CHECK_THAT(message, Contains(": unknown key; got ") && !Contains("\n"));
  }
  CHECK_THAT(error_with(R"({"runtime": null})", {"runtime.threads_per_rank=1", "runtime.device=gpu"}),
             Contains("--set runtime.device=gpu: /runtime/device: must be one of"));
  CHECK(with(envelope, {"smp_options.parameters.partitions=1"}).smp.pipeline_parallel_degree == 1);
}

TEST_CASE("Every key is listed once, with the texts that its status requires", "[config]") {
  for (const auto& section : config_sections()) {
    std::vector<std::string> names;
    for (const auto& key : section.keys) {
      names.push_back(key.name);
      names.insert(names.end(), key.aliases.begin(), key.aliases.end());
      CHECK((key.store != nullptr) == (key.status == Status::honoured && key.writes.empty()));
      CHECK((key.store != nullptr) == (key.load != nullptr));
      if (!key.writes.empty()) CHECK((key.means && key_named(key.writes).store));
      CHECK((key.status == Status::honoured || !key.advice.empty()));
      CHECK((key.status == Status::no_effect || !key.meaning.empty()));
    }
    std::sort(names.begin(), names.end());
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  }
}

TEST_CASE("tf32 is on, off, or has no effect if no product has fp32 inputs", "[config]") {
  const auto tf32 = [](const std::string& training) { return with(R"({"training": {)" + training + "}}"); };
  CHECK(tf32(R"("tf32": true)").training.tf32 == true);
  CHECK(tf32(R"("tf32": false)").training.tf32 == false);
  CHECK_FALSE(tf32(R"("tf32": null)").training.tf32.has_value());
  CHECK(describe_numbers(tf32(R"("tf32": true)")) == "float32, products in TF32");
  CHECK(describe_numbers(tf32(R"("tf32": false)")) == "float32");
  CHECK_FALSE(has_note(tf32(R"("tf32": true)"), "training.tf32"));
  CHECK(has_note(tf32(R"("tf32": true, "bf16": true)"), "training.tf32 has no effect"));
  CHECK_FALSE(has_note(tf32(R"("tf32": true, "bf16": true, "attention_in_fp32": true)"), "training.tf32"));
}

TEST_CASE("Every name of transformers 5's TrainingArguments is known", "[config]") {
  std::istringstream names(
      "output_dir per_device_train_batch_size num_train_epochs max_steps learning_rate "
      "lr_scheduler_type lr_scheduler_kwargs warmup_steps optim optim_args "
      "weight_decay adam_beta1 adam_beta2 adam_epsilon optim_target_modules "
      "gradient_accumulation_steps average_tokens_across_devices max_grad_norm label_smoothing_factor bf16 "
      "fp16 bf16_full_eval fp16_full_eval tf32 activation_checkpointing "
      "activation_checkpointing_kwargs gradient_checkpointing gradient_checkpointing_kwargs torch_compile "
      "torch_compile_backend torch_compile_mode use_liger_kernel liger_kernel_config use_cache neftune_noise_alpha "
      "torch_empty_cache_steps auto_find_batch_size logging_strategy logging_steps logging_first_step "
      "log_on_each_node logging_nan_inf_filter include_num_input_tokens_seen log_level log_level_replica "
      "disable_tqdm report_to run_name project trackio_space_id "
      "trackio_bucket_id trackio_static_space_id eval_strategy eval_steps eval_delay "
      "per_device_eval_batch_size prediction_loss_only eval_on_start eval_do_concat_batches eval_use_gather_object "
      "eval_accumulation_steps include_for_metrics batch_eval_metrics save_only_model save_strategy "
      "save_steps save_on_each_node save_total_limit enable_jit_checkpoint push_to_hub "
      "hub_token hub_private_repo hub_model_id hub_strategy hub_always_push "
      "hub_revision load_best_model_at_end metric_for_best_model greater_is_better ignore_data_skip "
      "restore_callback_states_from_checkpoint full_determinism seed data_seed use_cpu "
      "accelerator_config parallelism_config dataloader_drop_last dataloader_num_workers dataloader_pin_memory "
      "dataloader_persistent_workers dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order "
      "remove_unused_columns "
      "label_names train_sampling_strategy length_column_name ddp_find_unused_parameters ddp_bucket_cap_mb "
      "ddp_broadcast_buffers ddp_static_graph ddp_backend ddp_timeout fsdp "
      "fsdp_config deepspeed debug skip_memory_metrics do_train "
      "do_eval do_predict resume_from_checkpoint local_rank ");
  const auto& sections = config_sections();
  const auto training =
      std::find_if(sections.begin(), sections.end(), [](const Section& s) { return s.name == "training"; });
  for (std::string name; names >> name;) {
    INFO(name);
    CHECK(std::any_of(training->keys.begin(), training->keys.end(), [&](const Key& key) {
      return key.name == name || std::find(key.aliases.begin(), key.aliases.end(), name) != key.aliases.end();
    }));
  }
}

}  // namespace shardline::config_test
