// `train` runs whatever `plan` accepts, and `plan` refuses whatever `train` refuses: both get random configs with many
// keys. The ranks are threads, the models are tiny, and runs have one step.
#include <random>

#include "engine/commands/parts/job_parts.h"
#include "engine/config/rules/sizes.h"
#include "tests/case_sample.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

namespace shardline::plan_verdict_test {

using Catch::Contains;
using nlohmann::json;

namespace {

constexpr int kConfigs = 300, kSampledConfigs = 50;  // configs that reach a plan

// Returns the message with which an action is refused; empty if it succeeds.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  } catch (const RunError& error) {
    return error.what();
  }
  return "";
}

// Writes tokens as nanoGPT does.
std::string token_file(int tokens) {
  std::string bytes;
  for (int i = 0; i < tokens; ++i) bytes += {static_cast<char>(i * 7 % 90), '\0'};
  return bytes;
}

// Draws the keys of a config; most of them are valid, and each is sometimes invalid.
class Draw {
 public:
  Draw(const RunFolder& folder, unsigned seed) : folder_(folder), random_(seed) {
    std::string text, lines;
    for (int i = 0; text.size() < 3000; ++i) text += cat("line ", i * i, "\n");
    for (int i = 0; i < 60; ++i) lines += json{{"text", cat("number ", i * i, " of some")}}.dump() + "\n";
    folder.write("text.txt", text);
    folder.write("lines.jsonl", lines);
    folder.write("empty.txt", "");
    folder.write("table.parquet", text);
    folder.write("tokens.bin", token_file(1500));
    folder.write("few.bin", token_file(20));
    folder.write("odd.bin", std::string(301, 'a'));
  }

  json config() {
    json file = {{"model", {{"config", model()}}}, {"output_dir", folder_ / "out"}};
    file["data"] = data();
    file["training"] = training();
    if (!json(file["data"]["train"]).dump().ends_with(".bin\"")) leave_to_reading(file);
    file["smp_options"] = smp();
    file["runtime"] = {{"communicator", "threads"}, {"threads_per_rank", 1}, {"device", "cpu"}};
    set(file["runtime"], 0.2, "dtype", {"float64"});
    set(file["runtime"], 0.1, "timeline_steps", {0, 3});
    set(file["runtime"], 0.05, "memory_cap", {"1GiB", "2GB"});
    set(file["runtime"], 0.05, "device", {"auto", "cuda"});
    if (chance(0.3)) file["mpi_options"] = {{"processes_per_host", pick({1, 2, 3, 4, 6})}};
    return file;
  }

 private:
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  json pick(const std::vector<json>& values) {
    return values[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random_)];
  }
  void set(json& section, double p, const char* key, const std::vector<json>& values) {
    if (chance(p)) section[key] = pick(values);
  }

  json model() {
    json keys = {{"model_type", pick({"gpt2", "gpt2", "gptj"})},
                 {"vocab_size", 256},
                 {"n_positions", 32},
                 {"n_embd", 24},
                 {"n_layer", pick({1, 2, 3, 4})},
                 {"n_head", pick({2, 3, 4})}};
    if (keys["model_type"] == "gptj") keys["rotary_dim"] = pick({2, 4, 6});
    set(keys, 0.04, "vocab_size", {100, 300});
    set(keys, 0.04, "n_head", {5, 1});
    set(keys, 0.04, "activation_function", {"relu", "swiglu"});
    set(keys, 0.2, "tie_word_embeddings", {true, false});
    set(keys, 0.1, "n_inner", {nullptr, 7, 40});
    set(keys, 0.1, "resid_pdrop", {0, 0.5});
    set(keys, 0.04, "hidden_size", {24, 12});
    set(keys, 0.04, "intermediate_size", {40});
    return keys;
  }

  json data() {
    json keys = {{"train", file({"text.txt", "text.txt", "lines.jsonl", "tokens.bin"})},
                 {"tokenizer", "bytes"},
                 {"sequence_length", pick({8, 16})}};
    if (chance(0.08)) keys["train"] = file({"empty.txt", "table.parquet", "few.bin", "odd.bin"});
    if (chance(0.04)) keys["train"] = {file({"text.txt"}), file({"table.parquet"})};
    set(keys, 0.06, "sequence_length", {2, 21, 32, 33, 64});
    if (keys["train"] == folder_ / "table.parquet") set(keys, 0.5, "format", {"text"});
    set(keys, 0.06, "tokenizer", {"nowhere", ""});
    set(keys, 0.1, "max_train_samples", {1, 5, 100});
    set(keys, 0.15, "validation_split_percentage", {1, 20, 99});
    if (chance(0.1)) keys["validation"] = file({"lines.jsonl", "tokens.bin", "few.bin", "table.parquet"});
    set(keys, 0.1, "max_eval_samples", {1, 3});
    set(keys, 0.1, "shuffle", {false});
    return keys;
  }
  json file(const std::vector<json>& names) { return folder_ / pick(names).get<std::string>(); }

  json training() {
    json keys = {{"max_steps", 1}};
    if (chance(0.15)) keys = {{"num_train_epochs", pick({0.01, 0.02})}};
    if (chance(0.5)) {
      keys["global_batch_size"] = pick({4, 8, 12});
    } else {
      set(keys, 0.7, "per_device_train_batch_size", {1, 2, 4, 6});
      set(keys, 0.4, "gradient_accumulation_steps", {2, 3});
    }
    set(keys, 0.05, "gradient_accumulation_steps", {2});
    set(keys, 0.2, "per_device_eval_batch_size", {1, 3});
    set(keys, 0.3, "optim", {"adamw_torch", "adam", "sgd", "adafactor", "lion_32bit"});
    set(keys, 0.1, "optim_args", {"momentum=0.9", "momentum=0.9,nesterov=true", "beta=2"});
    set(keys, 0.1, "weight_decay", {0.1});
    set(keys, 0.1, "no_decay_patterns", {{"*wte*"}, {"h.*.mlp.*"}, {"nothing like it"}, {"("}});
    schedule(keys);
    set(keys, 0.1, "max_grad_norm", {0, 0.5});
    set(keys, 0.05, "max_grad_value", {0.5});
    set(keys, 0.1, "dataloader_drop_last", {true});
    set(keys, 0.15, "bf16", {true});
    set(keys, 0.15, "fp16", {true});
    set(keys, 0.1, "fp32_residual_addition", {true});
    set(keys, 0.1, "attention_in_fp32", {true});
    set(keys, 0.03, "query_key_layer_scaling", {true});
    set(keys, 0.03, "static_loss_scale", {128});
    set(keys, 0.03, "dynamic_loss_args", {{{"scale_window", 10}}, {{"scale_window", 1.5}}});
    set(keys, 0.1, "eval_strategy", {"steps", "epoch"});
    set(keys, 0.05, "eval_on_start", {true});
    set(keys, 0.05, "do_eval", {true});
    set(keys, 0.05, "report_to", {"tensorboard"});
    return keys;
  }

  // Only reading a file shows whether it is text and how many samples it has, and plans do not read it.
  static void leave_to_reading(json& file) {
    if (file["training"].erase("num_train_epochs") == 1) file["training"]["max_steps"] = 1;
    if (file["data"].contains("validation_split_percentage")) file["data"]["validation_split_percentage"] = 20;
    if (file["data"].contains("format")) file["data"].erase("validation");
  }

  void schedule(json& keys) {
    set(keys, 0.1, "warmup_steps", {0.5, 1, 5, 1.5});
    if (chance(0.6)) return;
    const std::vector<std::pair<json, std::vector<json>>> schedules = {
        {"constant", {nullptr}},
        {"cosine", {nullptr, {{"num_cycles", 2}}, {{"min_lr", 0}}}},
        {"polynomial", {nullptr, {{"lr_end", 1}}}},
        {"cosine_with_min_lr", {nullptr, {{"min_lr_rate", 0.1}}}},
        {"warmup_stable_decay", {nullptr, {{"num_decay_steps", 1}}, {{"num_decay_steps", 1000}}}},
        {"annealing", {nullptr, {{"lr_decay_iters", 3}}, {{"plateau", 1}, {"lr_decay_style", "plateau"}}}}};
    const auto& [type, arguments] = schedules[std::uniform_int_distribution<size_t>(0, schedules.size() - 1)(random_)];
    keys["lr_scheduler_type"] = type;
    if (const json given = pick(arguments); !given.is_null()) keys["lr_scheduler_kwargs"] = given;
  }

  json smp() {
    json keys = json::object();
    set(keys, 0.5, "pipeline_parallel_degree", {2, 2, 3, 4});
    set(keys, keys.empty() ? 0.5 : 0.15, "tensor_parallel_degree", {2, 2, 3});
    set(keys, 0.6, "microbatches", {2, 2, 3, 4});
    set(keys, 0.3, "pipeline", {"simple", "interleaved", "zb_h1", "zb_h2", "zbv", "dualpipev", "interleaved_1f1b"});
    set(keys, keys.value("pipeline", "") == "interleaved_1f1b" ? 0.8 : 0.02, "virtual_pipeline_degree", {2, 3});
    set(keys, 0.05, "active_microbatches", {1, 2, 4});
    set(keys, 0.2, "optimize", {"speed", "memory"});
    set(keys, 0.1, "placement_strategy", {"spread", "PDT", "TTP"});
    set(keys, 0.05, "prescaled_batch", {true});
    set(keys, 0.03, "ddp", {false});
    set(keys, 0.2, "activation_checkpointing",
        {"each",
         "selective",
         "contiguous",
         "group_2",
         {{{"layers", "h.0"}, {"strategy", "each"}}},
         {{{"layers", "h.9"}, {"strategy", "each"}}}});
    if (chance(0.15)) {
      keys["offload_activations"] = true;
      set(keys, 0.5, "offload_scope", {"all"});
      set(keys, 0.5, "offload_path", {folder_ / "", folder_ / "nowhere", folder_ / "text.txt"});
    }
    set(keys, 0.05, "offload_optimizer_states", {true});
    set(keys, 0.1, "shard_optimizer_state", {true});
    set(keys, 0.05, "shard_gradients", {true});
    set(keys, 0.1, "sharded_data_parallel_degree", {2, 3});
    set(keys, 0.03, "sdp_param_persistence_threshold", {10});
    set(keys, 0.1, "tensor_parallel_layers",
        {{{{"pattern", "*attn"}, {"split", false}}},
         {{{"pattern", "*"}, {"split", "auto"}}},
         {{{"pattern", "nothing"}, {"split", true}}},
         {{{"pattern", "head.lm_head"}, {"split", false}}}});
    if (chance(0.08)) {
      keys["auto_partition"] = false;
      set(keys, 0.5, "default_partition", {0, 1});
      set(keys, 0.7, "manual_partition", {{1, 1}, {2, 1}, {{{"layers", "*"}, {"stage", 0}}}});
    }
    return keys;
  }

  const RunFolder& folder_;
  std::mt19937 random_;
};

}  // namespace

TEST_CASE("plan and train accept or refuse the same random configs", "[verdict]") {
  const RunFolder folder("verdicts");
  Draw draw(folder, 20260101);
  const int configs = checks_all_cases() ? kConfigs : kSampledConfigs;
  int run = 0, refused = 0;
  while (run + refused < configs) {
    const json file = draw.config();
    Config config;
    if (!refusal([&] { config = parse_config(file.dump(), "run.json"); }).empty()) continue;
    if (configured_world_size(config) > 8) continue;
    const std::string planned = refusal([&] { plan_job(config, {}); });
    const std::string trained = refusal([&] { train_in_process(config); });
    CAPTURE(file.dump(), planned, trained);
    CHECK(planned.empty() == trained.empty());
    ++(planned.empty() ? run : refused);
    std::filesystem::remove_all(folder / "out");
  }
  CHECK(run >= configs / 2);
  CHECK(refused >= configs / 8);
}

TEST_CASE("a plan does not need the data, and states what keeps the run from starting", "[verdict]") {
  const RunFolder folder("not-yet");
  const auto text = [&](const json& changes) {
    return plan_job(parse_config(tiny_run(folder, changes).dump(), "run.json"), {});
  };
  CHECK_THAT(text(json::object()), !Contains("note: not ready"));
  CHECK_THAT(text({{"data", {{"train", {folder / "text.txt", folder / "later.jsonl"}}}}}),
             Contains("note: not ready to train: " + (folder / "later.jsonl") + ": there is no such data file"));
  CHECK_THAT(text({{"output_dir", folder / ""}}),
             Contains("note: not ready to train: /output_dir: ") && Contains("is not empty"));
  // Files that exist are still checked.
  CHECK_THAT(refusal([&] {
               text({{"data", {{"train", {folder.write("a.orc", "x"), folder / "later.txt"}}}}});
             }),
             Contains("a.orc: the extension '.orc'"));
}

TEST_CASE("a plan finds everything that is wrong with the machine, the tokenizer and the data at once", "[verdict]") {
  const RunFolder folder("all-at-once");
  const auto file =
      tiny_run(folder, {{"data", {{"tokenizer", folder / "nowhere"}}},
                        {"smp_options", {{"offload_activations", true}, {"offload_path", folder / "text.txt"}}},
                        {"training", {{"use_cpu", false}}},
                        {"runtime", {{"device", "cuda"}}}});
  const auto config = parse_config(file.dump(), "run.json");
  if (gpu_count() > 0) return;
  for (const auto& said : {refusal([&] { plan_job(config, {}); }), refusal([&] { train_in_process(config); })}) {
    CHECK_THAT(said, Contains("/runtime/device: \"cuda\" needs"));
    CHECK_THAT(said, Contains("/smp_options/offload_path: must be a directory"));
    CHECK_THAT(said, Contains("nowhere\" is neither"));
  }
}

}  // namespace shardline::plan_verdict_test
