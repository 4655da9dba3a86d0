#include "engine/import/import.h"

#include <fstream>

#include "engine/import/import_files.h"
#include "tests/engine/import/job_definitions.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::import_test {
namespace {

using nlohmann::json;

Outcome outcome_of(const Import& import, const std::string& name) {
  for (const auto& key : import.keys)
    if (key.name == name) return key.outcome;
  FAIL("no row " << name);
  return {};
}

Import estimator(const json& arguments, const ImportOptions& options = {}) {
  return import_text_as(arguments.dump(), "job.json", options);
}

std::string refusal(const json& arguments, const std::string& name, const ImportOptions& options = {}) {
  const Outcome outcome = outcome_of(estimator(arguments, options), name);
  CHECK(outcome.fate == Fate::refused);
  return outcome.note;
}

std::string mistake(const std::string& text) {
  try {
    read_job(text, "job");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

using Catch::Matchers::Contains;

}  // namespace

TEST_CASE("files are recognised by their content") {
  const auto kind = [](const std::string& text) { return read_job(text, "job").back().kind; };
  CHECK(kind(R"({"TrainingJobName": "a", "HyperParameters": {}})") == "describe-training-job");
  CHECK(kind(R"({"entry_point": "run_clm.py", "hyperparameters": {}})") == "Arguments of an estimator");
  CHECK(kind(R"({"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}})") == "DeepSpeed");
  CHECK(kind(R"({"learning_rate": "1e-3", "epochs": "3", "sagemaker_program": "a.py"})") ==
        "Hyperparameters and script arguments");
  CHECK(kind("distributed_type: MULTI_GPU\nnum_processes: 2\n") == "accelerate");
  CHECK(kind("--learning_rate 1e-3 --do_train") == "script arguments");
  CHECK(kind("torchrun run_clm.py --do_train") == "script arguments");
  CHECK(kind(R"(["run_clm.py", "--do_train"])") == "script arguments");
  CHECK_THAT(mistake("nothing"), Contains("neither JSON nor YAML nor a command line"));
  CHECK_THAT(mistake("{\"a\": 1, \"a\": 2}"), Contains("given twice"));
  CHECK_THAT(mistake(R"({"zebra": 1})"), Contains("has no key of a training job"));
  CHECK_THAT(mistake(R"({"model": {}, "data": {}, "training": {}})"), Contains("is already a config of shardline"));
  CHECK_THAT(mistake("{"), Contains("not JSON"));
  CHECK_THAT(mistake("--a 1 --a 2"), Contains("--a is given twice"));
  CHECK_THAT(mistake("x --a 'b"), Contains("not closed"));
}

TEST_CASE("files that may be of two kinds are refused") {
  CHECK_THAT(mistake(R"({"train_batch_size": "32", "seed": "7"})"),
             Contains("may be of either kind: DeepSpeed, Hyperparameters"));
  CHECK(read_job(R"({"train_batch_size": "32", "epochs": "7"})", "job").back().kind ==
        "Hyperparameters and script arguments");
  CHECK(read_job(R"({"fp16": {"enabled": true}})", "job").back().kind == "DeepSpeed");
}

TEST_CASE("a job that does not train is refused") {
  const auto refused_keys = [](const std::string& command) {
    return refusals_text(import_text_as("run_glue.py --model_name_or_path m --train_file t.csv " + command, "job", {}));
  };
  CHECK(refused_keys("--do_train --do_eval").empty());
  CHECK_THAT(refused_keys("--do_train False --do_eval"), Contains("arguments.do_train") && Contains("shardline eval"));
  CHECK_THAT(refused_keys("--do_eval"), Contains("arguments.do_eval") && Contains("add do_train"));
  CHECK_THAT(refused_keys("--do-predict"), Contains("predict") && Contains("add do_train"));
  CHECK(refusals_text(import_text_as("my_train.py --task_name mrpc --do_eval", "job", {})).empty());
  CHECK(refusals_text(import_text_as("python -u run_glue.py --do_train", "job", {})).empty());
}

TEST_CASE("arguments are read as Python reads them") {
  const auto import = import_text_as(
      "run_glue.py --train_file t.csv --do_train --task_name MRPC --adam_beta1 .9 --num_train_epochs 3. --seed +5 "
      "--no_remove_unused_columns --bf16 t --use_legacy_prediction_loop",
      "job", {});
  CHECK(refusals_text(import).empty());
  CHECK(import.config["data"]["task_name"] == "mrpc");
  CHECK(import.config["training"]["adam_beta1"] == 0.9);
  CHECK(import.config["training"]["num_train_epochs"] == 3);
  CHECK(import.config["training"]["seed"] == 5);
  CHECK(import.config["training"]["bf16"] == true);
}

TEST_CASE("defaults of DeepSpeed are written to the config") {
  const auto deepspeed = [](const std::string& schedule, const std::string& more = "") {
    return import_text_as(R"({"zero_optimization": {"stage": 1}, "scheduler": )" + schedule + more + "}", "ds.json",
                          {});
  };
  const std::string linear = R"("warmup_type": "linear")";
  const auto warmup = deepspeed(R"({"type": "WarmupLR", "params": {)" + linear + "}}");
  CHECK(refusals_text(warmup).empty());
  CHECK(warmup.config["training"] == json{{"lr_scheduler_type", "constant_with_warmup"},
                                          {"learning_rate", 0.001},
                                          {"warmup_steps", 1000},
                                          {"max_grad_norm", 0}});
  CHECK_THAT(refusals_text(deepspeed(R"({"type": "WarmupDecayLR", "params": {"warmup_num_steps": 5}})")),
             Contains("scheduler.type") && Contains("along a logarithm") && Contains("set it to linear"));
  CHECK(refusals_text(deepspeed(R"({"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto"}})")).empty());
  CHECK_THAT(refusals_text(deepspeed(R"({"type": "WarmupLR", "params": {)" + linear + "}}",
                                     R"(, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}})")),
             Contains("warmup_max_lr is missing, which means 0.001") && Contains("optimizer.params.lr"));
  const auto cosine = deepspeed(R"({"type": "WarmupCosineLR", "params": {"warmup_num_steps": 5, )" + linear + "}}");
  CHECK(cosine.config["training"]["lr_scheduler_kwargs"] == json{{"min_lr_rate", 0.0001}});
  CHECK(cosine.config["training"]["lr_scheduler_type"] == "cosine_with_min_lr");

  const auto training = [](const std::string& text) {
    return import_text_as(text, "ds.json", {}).config.value("training", json::object());
  };
  const json scaled = training(R"({"fp16": {"enabled": true}, "optimizer": {"type": "AdamW"}})");
  CHECK(scaled["dynamic_loss_args"] == json{{"init_scale", 65536}, {"delayed_shift", 2}});
  // The training arguments determine the rate, also if they leave it at their own default.
  const json open = training(R"({"zero_optimization": {"stage": 1}, "gradient_clipping": "auto",
                                 "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}})");
  CHECK(open == json{{"optim", "adamw_torch"}});
  CHECK(scaled["learning_rate"] == 0.001);
  CHECK(training(R"({"fp16": {"enabled": true, "initial_scale_power": 4, "hysteresis": 1}, "gradient_clipping": 2})") ==
        json{{"fp16", true}, {"dynamic_loss_args", {{"init_scale", 16}, {"delayed_shift", 1}}}, {"max_grad_norm", 2}});
  CHECK(training(R"({"fp16": {"enabled": true, "loss_scale": 8}, "gradient_clipping": 0})") ==
        json{{"fp16", true}, {"static_loss_scale", 8}, {"max_grad_norm", 0}});
  CHECK(training(R"({"fp16": {"loss_scale": 8}, "train_batch_size": 4, "gradient_clipping": 0})") ==
        json{{"global_batch_size", 4}, {"max_grad_norm", 0}});
}

TEST_CASE("each option of a launcher becomes a key or has a reason why it does not") {
  const auto import = import_text_as(
      "accelerate launch --max_restarts 3 --num_cpu_threads_per_process 4 --main_process_port 1 run_clm.py "
      "--train_file t.txt --do_train",
      "job", {});
  CHECK(import.config["mpi_options"] == json{{"max_restarts", 3}});
  CHECK(import.config["runtime"] == json{{"threads_per_rank", 4}});
  CHECK(outcome_of(import, "launcher.main_process_port").note == "ranks find each other through MPI");
  CHECK_THAT(outcome_of(import, "launcher.words").note, Contains("would use all GPUs") && Contains("--ranks N"));
}

TEST_CASE("accelerate's command shards according to its options or their defaults") {
  const auto launch = [](const std::string& options) {
    return import_text_as("accelerate launch " + options + " run_clm.py --train_file t.txt --do_train", "job", {});
  };
  const auto sharding = [&](const std::string& options) {
    return launch("--num_processes 8 " + options).config.value("smp_options", json::object());
  };
  const json all = {{"sharded_data_parallel_degree", 8}};
  const json gradients = {{"shard_optimizer_state", true}, {"shard_gradients", true}};
  CHECK(sharding("--use_fsdp") == all);
  CHECK(sharding("--use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP") == gradients);
  CHECK(sharding("--use_fsdp --fsdp-reshard-after-forward false --fsdp_version 2") == gradients);
  CHECK(sharding("--fsdp_sharding_strategy FULL_SHARD").empty());  // FSDP is not on
  CHECK(sharding("--use_deepspeed") == gradients);
  CHECK(sharding("--use_deepspeed --zero_stage 3") == all);
  CHECK(sharding("--zero_stage 3").empty());
  CHECK(sharding("--use_megatron_lm --megatron_lm_pp_degree 2") == json{{"pipeline_parallel_degree", 2}});
  CHECK_THAT(refusals_text(launch("--use_fsdp")), Contains("launcher.use_fsdp") && Contains("give --ranks N"));
  CHECK(launch("--num_processes 2 --use_deepspeed").config["training"]["max_grad_norm"] == 1);
}

TEST_CASE("fsdp of TrainingArguments shards, and fsdp_config has an effect only with it") {
  const auto import = [](const std::string& arguments) {
    return import_text_as("torchrun --nproc_per_node 4 run_clm.py --train_file t.txt --do_train " + arguments, "job",
                          {});
  };
  const json all = {{"sharded_data_parallel_degree", 4}};
  CHECK(import("--fsdp 'full_shard auto_wrap'").config["smp_options"] == all);
  CHECK(import("--fsdp full_shard auto_wrap").config["smp_options"] == all);
  CHECK(import("--fsdp true").config["smp_options"] == all);
  CHECK(import("--fsdp shard_grad_op").config["smp_options"] ==
        json{{"shard_optimizer_state", true}, {"shard_gradients", true}});
  CHECK_FALSE(import("--fsdp ''").config.contains("smp_options"));
  CHECK_THAT(refusals_text(import("--fsdp 'full_shard offload'")), Contains("leave offload out"));
  CHECK_THAT(refusals_text(import("--fsdp full")), Contains("strategy \"FULL\" is not supported"));
  const std::string config = R"( --fsdp_config '{"activation_checkpointing": true, "fsdp_backward_prefetch": "a"}')";
  CHECK(import("--fsdp full_shard" + config).config["smp_options"]["activation_checkpointing"] == "each");
  CHECK_FALSE(import(config).config.contains("smp_options"));
  CHECK_THAT(refusals_text(import(R"(--fsdp full_shard --fsdp_config '{"nonsense": 1}')")), Contains("unknown key"));
}

TEST_CASE("the error about different numbers of processes gives all of them") {
  const auto import = import_text_as(
      "accelerate launch --config_file ner_accelerate.yaml --num_processes 8 run_ner.py --train_file t.json --do_train",
      "job", {});
  CHECK(import.config["mpi_options"]["processes_per_host"] == 8);
  CHECK(outcome_of(import, "launcher.config_file.num_processes").fate == Fate::neutral);
}

TEST_CASE("arguments that DeepSpeed's config replaces by leaving out its keys are refused") {
  const auto refused_keys = [](const std::string& arguments, const std::string& config) {
    return refusals_text(import_text_as(
        "deepspeed --num_gpus 2 run_clm.py --train_file t.txt --do_train --deepspeed '" + config + "' " + arguments,
        "job", {}));
  };
  const std::string plain = R"({"zero_optimization": {"stage": 1}})";
  CHECK_THAT(refused_keys("--max_grad_norm 1.0", plain),
             Contains("arguments.max_grad_norm") && Contains("no gradient_clipping, which means 0"));
  CHECK(refused_keys("--max_grad_norm 0", plain).empty());
  CHECK(refused_keys("--weight_decay 0.1", plain).empty());  // the optimizer is that of the script
  const std::string adam = R"({"gradient_clipping": 1, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})";
  CHECK_THAT(refused_keys("--weight_decay 0.1", adam), Contains("optimizer.params.weight_decay, which means 0"));
  CHECK_THAT(refused_keys("--adam_beta2 0.95", adam), Contains("optimizer.params.betas"));
  CHECK(refused_keys("--adam_beta2 0.999 --learning_rate 1e-4", adam).empty());
  const std::string no_rate = R"({"gradient_clipping": 1, "optimizer": {"type": "AdamW"}})";
  CHECK_THAT(refused_keys("--learning_rate 1e-4", no_rate), Contains("optimizer.params.lr, which means 0.001"));
}

TEST_CASE("a file that describes only how a script is run is not enough") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/ds.json";
  std::ofstream(path) << R"({"zero_optimization": {"stage": 1}})";
  CHECK_THAT(import_files({path}, {}).mistakes, Contains("has no script"));
}

TEST_CASE("notes depend on the value") {
  const auto note = [](const json& arguments, const std::string& name) {
    return outcome_of(estimator(arguments), name).note;
  };
  const auto of = [&](const json& hyperparameters, const std::string& name) {
    return note({{"hyperparameters", hyperparameters}}, "hyperparameters." + name);
  };
  CHECK(of({{"push_to_hub", "False"}}, "push_to_hub") == "asks for nothing");
  CHECK(of({{"save_safetensors", "True"}}, "save_safetensors") == "is the default, and what shardline does");
  CHECK(of({{"tokenizer_name", "bytes"}}, "tokenizer_name").empty());
  CHECK_THAT(of({{"tokenizer_name", "org/name"}}, "tokenizer_name"), Contains("hf download org/name"));
  CHECK(of({{"model_name", "/opt/ml/input/data/model"}}, "model_name").empty());
  CHECK_THAT(note({{"use_spot_instances", true}}, "use_spot_instances"), Contains("give training.checkpoint_dir"));
  CHECK(note({{"use_spot_instances", true}, {"checkpoint_s3_uri", "s3://a"}}, "use_spot_instances") ==
        "an interrupted job continues from its newest checkpoint");
}

TEST_CASE("accelerate uses the section of its distributed_type") {
  const auto import_with = [](const std::string& type) {
    return import_text_as("compute_environment: LOCAL_MACHINE\ndistributed_type: " + type +
                              "\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\nnum_processes: 8\n",
                          "accelerate.yaml", {});
  };
  CHECK(import_with("FSDP").config["smp_options"]["sharded_data_parallel_degree"] == 8);
  for (const char* type : {"NO", "MULTI_GPU", "DEEPSPEED"}) {
    const auto import = import_with(type);
    CHECK_FALSE(import.config.contains("smp_options"));
    CHECK(outcome_of(import, "accelerate.fsdp_config.fsdp_sharding_strategy").fate == Fate::neutral);
  }
}

TEST_CASE("keys with dots in their names are not mistaken for paths") {
  const auto import = estimator({{"mpi.enabled", 1}, {"entry_point", "run_clm.py"}, {"", 2}});
  CHECK(outcome_of(import, "\"mpi.enabled\"").fate == Fate::refused);
  CHECK(outcome_of(import, "\"\"").fate == Fate::refused);
}

TEST_CASE("texts must be UTF-8") {
  CHECK_THAT(mistake("--a \xff"), Contains("not UTF-8"));
}

TEST_CASE("unknown keys are refused with the nearest name") {
  const json job = {{"entry_point", "run_clm.py"},
                    {"hyperparameters", {{"lerning_rate", "1e-3"}, {"zzz", 1}}},
                    {"instance_typ", "ml.p3.2xlarge"}};
  CHECK_THAT(refusal(job, "hyperparameters.lerning_rate"), Contains("did you mean learning_rate?"));
  CHECK_THAT(refusal(job, "hyperparameters.zzz"), Contains("unknown key"));
  CHECK_THAT(refusal(job, "instance_typ"), Contains("did you mean instance_type?"));
}

TEST_CASE("a key without effect on this kind of run is reported, and values keep their types") {
  const auto import = estimator({{"hyperparameters",
                                  {{"learning_rate", "3e-5"},
                                   {"max_steps", "10.0"},
                                   {"fp16", "True"},
                                   {"report_to", "tensorboard"},
                                   {"run_name", 7},
                                   {"resume_from_checkpoint", "True"},
                                   {"output_dir", "\"out\""}}}});
  const json& training = import.config["training"];
  CHECK(training["learning_rate"] == 3e-5);
  CHECK(training["max_steps"] == 10);
  CHECK(training["max_steps"].is_number_integer());
  CHECK(training["fp16"] == true);
  CHECK(training["resume_from_checkpoint"] == true);
  CHECK(import.config["output_dir"] == "out");
  CHECK(outcome_of(import, "hyperparameters.run_name").fate == Fate::neutral);
}

TEST_CASE("values that a key does not accept are refused, and the error states its rule") {
  CHECK_THAT(refusal({{"hyperparameters", {{"max_steps", "ten"}}}}, "hyperparameters.max_steps"),
             Contains("must be an integer"));
  CHECK_THAT(refusal({{"hyperparameters", {{"lr_scheduler_type", "cosin"}}}}, "hyperparameters.lr_scheduler_type"),
             Contains("did you mean \"cosine\"?"));
  CHECK_THAT(refusal({{"hyperparameters", {{"optim", "ademamix"}}}}, "hyperparameters.optim"),
             Contains("use \"adamw_torch_fused\""));
  CHECK_THAT(refusal({{"hyperparameters", {{"push_to_hub", "true"}}}}, "hyperparameters.push_to_hub"),
             Contains("upload output_dir"));
}

TEST_CASE("two keys of one setting must agree, and --set replaces both") {
  const json job = {{"hyperparameters", {{"epochs", 2}, {"num_train_epochs", 3}}}};
  CHECK_THAT(refusal(job, "hyperparameters.num_train_epochs"),
             Contains("contradicts hyperparameters.epochs, which sets training.num_train_epochs to 2"));
  const auto import = estimator(job, {.channels = {}, .hosts = {}, .settings = {"training.num_train_epochs=4"}});
  CHECK(import.refused().empty());
  CHECK(import.config["training"]["num_train_epochs"] == 4);
  CHECK_THROWS_WITH(estimator(job, {.channels = {}, .hosts = {}, .settings = {"training.nonsense=4"}}),
                    Contains("there is no key training.nonsense"));
}

TEST_CASE("--set replaces a value that its key does not take") {
  const json job = {{"hyperparameters", {{"seed", -1}, {"task", "text-classification"}}}};
  const auto import =
      estimator(job, {.channels = {}, .hosts = {}, .settings = {"training.seed=3", "task=sequence-classification"}});
  CHECK(import.refused().empty());
  CHECK(import.config["training"]["seed"] == 3);
}

TEST_CASE("the number of ranks follows from the machines") {
  const auto sizes = [](const json& job, const ImportOptions& options = {}) {
    return estimator(job, options).config.value("mpi_options", json::object());
  };
  CHECK(sizes({{"instance_type", "ml.p3.16xlarge"}, {"instance_count", 1}}) == json{{"processes_per_host", 8}});
  CHECK(sizes({{"instance_type", "ml.g4dn.xlarge"}, {"instance_count", 1}}).empty());
  CHECK(sizes({{"instance_type", "ml.c5.xlarge"}, {"instance_count", 2}}) ==
        json{{"processes_per_host", 1}, {"hosts", {"algo-1", "algo-2"}}});
  CHECK(sizes({{"instance_type", "ml.p4d.24xlarge"}, {"instance_count", "2"}},
              {.channels = {}, .hosts = {"a", "b"}, .ranks = 4}) ==
        json{{"processes_per_host", 2}, {"hosts", {"a", "b"}}});
  CHECK_THAT(refusal({{"instance_type", "ml.trn1.32xlarge"}}, "instance_type"), Contains("--ranks"));
  CHECK_THAT(refusal({{"instance_type", "ml.p3.2xlarge"}, {"instance_count", 0}}, "instance_count"),
             Contains("a number of machines"));
  CHECK_THAT(refusal({{"instance_type", "ml.p3.2xlarge"}, {"instance_count", 3}}, "instance_count",
                     {.channels = {}, .hosts = {"a"}}),
             Contains("give 3"));
}

TEST_CASE("--ranks and --hosts provide what a file does not state") {
  const std::string zero = R"({"zero_optimization": {"stage": 3}})";
  const auto import = import_text_as(zero, "zero.json", {.channels = {}, .hosts = {"a", "b"}, .ranks = 8});
  CHECK(import.config["smp_options"]["sharded_data_parallel_degree"] == 8);
  CHECK(import.config["mpi_options"] == json{{"hosts", {"a", "b"}}, {"processes_per_host", 4}});
  CHECK_THAT(refusals_text(import_text_as(zero, "zero.json")), Contains("give --ranks N"));
  CHECK_THROWS_WITH(import_text_as(zero, "zero.json", {.channels = {}, .hosts = {"a", "b"}, .ranks = 3}),
                    Contains("a multiple of the 2 machines"));
  CHECK_THROWS_WITH(import_text_as(zero, "zero.json", {.channels = {}, .hosts = {}, .ranks = 2000000000}),
                    Contains("--ranks"));
}

TEST_CASE("defaults of a script are written to the config") {
  const auto config = [](const std::string& command, const ImportOptions& options = {}) {
    return import_text_as(command + " --do_train --train_file t.txt", "job", options).config;
  };
  const std::string split = "validation_split_percentage";
  CHECK(config("run_clm.py")["data"][split] == 5);
  CHECK(config("run_mlm.py --validation_split_percentage 7")["data"][split] == 7);
  CHECK_FALSE(config("run_clm.py --validation_file v.txt")["data"].contains(split));
  CHECK_FALSE(config("run_clm.py", {.channels = {{"validation", "v.txt"}}})["data"].contains(split));
  CHECK_FALSE(config("run_clm.py", {.channels = {{"test", "v.txt"}}})["data"].contains(split));
  CHECK_FALSE(config("run_glue.py")["data"].contains(split));
  CHECK(config("run_clm_no_trainer.py")["data"][split] == 5);
  CHECK(config("run_ner.py")["data"]["sequence_length"] == 512);
  CHECK(config("run_ner_no_trainer.py")["data"]["sequence_length"] == 128);
  CHECK(config("run_glue_no_trainer.py")["training"] == json{{"max_grad_norm", 0}});
  CHECK_FALSE(config("run_glue.py").contains("training"));
}

TEST_CASE("SageMaker's script makes a GPT-2 if only sizes are given, unless the job names another family") {
  const auto import = [](json hyperparameters, const ImportOptions& options = {}) {
    hyperparameters.update({{"hidden_width", 64}, {"num_layers", 2}, {"num_heads", 2}, {"vocab_size", 256}});
    return estimator({{"entry_point", "train_gpt_simple.py"}, {"hyperparameters", hyperparameters}}, options);
  };
  const auto type = [](const Import& made) { return made.config["model"]["config"].value("model_type", ""); };
  const Import made = import({{"max_context_width", 64}});
  CHECK(made.refused().empty());
  CHECK(type(made) == "gpt2");
  CHECK_THAT(import_table(made), Contains("model.config.model_type") && Contains("the default of train_gpt_simple.py"));
  CHECK(type(import({{"model_type", "gptj"}})) == "gptj");
  CHECK(type(import({}, {.settings = {R"(model.config={"model_type": "gpt_neo"})"}})) == "gpt_neo");
  CHECK(type(import({{"model_name_or_path", "models/gpt2"}})).empty());
  CHECK_FALSE(estimator({{"entry_point", "run_clm.py"}, {"hyperparameters", {{"config_overrides", "n_embd=64"}}}})
                  .config["model"]["config"]
                  .contains("model_type"));
}

TEST_CASE("fp16 of Trainer has torch's loss scale, and that of SageMaker's library its own") {
  const auto scale = [](const std::string& script, json hyperparameters) {
    hyperparameters["fp16"] = true;
    return estimator({{"entry_point", script}, {"hyperparameters", hyperparameters}})
        .config["training"]
        .value("dynamic_loss_args", json());
  };
  CHECK(scale("run_clm.py", {}) == json{{"init_scale", 65536}, {"scale_window", 2000}});
  CHECK(scale("train_gpt_simple.py", {}).is_null());
  CHECK(scale("run_clm.py", {{"mp_parameters", {{"fp16", true}}}}).is_null());
  CHECK(scale("run_clm.py", {{"static_loss_scale", 128}}).is_null());
  CHECK_FALSE(import_text_as("run_clm.py --do_train --bf16", "job").config["training"].contains("dynamic_loss_args"));
}

TEST_CASE("values that are null set nothing") {
  for (const json& none : {json(), json("null")}) {  // SageMaker's library writes None as the text null
    const Import made = estimator({{"entry_point", "train_gpt_simple.py"},
                                   {"instance_type", none},
                                   {"instance_count", none},
                                   {"inputs", {{"train", none}}},
                                   {"hyperparameters",
                                    {{"max_context_width", none},
                                     {"model_name_or_path", none},
                                     {"config_overrides", none},
                                     {"tokenizer_name", none},
                                     {"text_column_names", none},
                                     {"use_adamw", none},
                                     {"max_steps", none},
                                     {"num_layers", 2}}}});
    CHECK(refusals_text(made).empty());
    CHECK(made.config == json{{"task", "causal-lm"},
                              {"model", {{"config", {{"model_type", "gpt2"}, {"n_layer", 2}}}}},
                              {"output_dir", "/opt/ml/model"}});
  }
}

TEST_CASE("scripts with their own training loop have arguments of their own") {
  const auto import = [](const std::string& arguments) {
    return import_text_as("run_clm_no_trainer.py --model_name_or_path m --train_file a.txt " + arguments, "job");
  };
  const Import steps =
      import("--num_warmup_steps 10 --max_train_steps 20 --checkpointing_steps 5 --with_tracking --use_slow_tokenizer");
  CHECK(refusals_text(steps).empty());
  CHECK(steps.config["training"] ==
        json{{"warmup_steps", 10}, {"max_steps", 20}, {"save_steps", 5}, {"max_grad_norm", 0}});
  CHECK(import("--checkpointing_steps epoch").config["training"]["save_strategy"] == "epoch");
}

TEST_CASE("the type of a script's weights determines the precision unless bf16 or fp16 does") {
  const auto import = [](const std::string& arguments) {
    return import_text_as("run_clm.py --do_train --train_file a.txt " + arguments, "job");
  };
  CHECK(import("--torch_dtype bfloat16").config["training"]["bf16"] == true);
  CHECK(import("--dtype bfloat16 --bf16").config["training"]["bf16"] == true);
  for (const char* neutral : {"--torch_dtype auto", "--torch_dtype float32", "--torch_dtype float16 --bf16"}) {
    CAPTURE(neutral);
    CHECK(import(neutral).refused().empty());
  }
  CHECK_FALSE(import("--torch_dtype float32").config["training"].contains("bf16"));
  const Import refused = import("--torch_dtype float16");
  REQUIRE(refused.refused().size() == 1);
  CHECK_THAT(refused.refused().front()->outcome.note, Contains("set fp16"));
  const Import unknown = import("--torch_dtype torch.bfloat16");
  REQUIRE(unknown.refused().size() == 1);
  CHECK_THAT(unknown.refused().front()->outcome.note, Contains("must be auto, float32, bfloat16 or float16"));
}

TEST_CASE("batches have the same size although other programs count them differently") {
  const auto of_file = [](const std::string& text) { return import_text_as(text, "a.yaml", {}).config; };
  const std::string megatron = "distributed_type: MEGATRON_LM\nnum_processes: 4\nmegatron_lm_config:\n";
  const json both = of_file(megatron + "  megatron_lm_num_micro_batches: 4\n  megatron_lm_tp_degree: 2\n");
  CHECK(both["training"]["gradient_accumulation_steps"] == 4);
  CHECK(both["smp_options"] == json{{"tensor_parallel_degree", 2}, {"prescaled_batch", true}});
  CHECK(of_file(megatron + "  megatron_lm_tp_degree: 1\n")["smp_options"] == json{{"tensor_parallel_degree", 1}});

  const auto parallel = [](const json& parameters) {
    const json distribution = {{"smdistributed", {{"modelparallel", {{"enabled", true}, {"parameters", parameters}}}}},
                               {"mpi", {{"enabled", true}, {"processes_per_host", 8}}}};
    return estimator({{"distribution", distribution}}).config["smp_options"];
  };
  CHECK(parallel({{"hybrid_shard_degree", 2}, {"tensor_parallel_degree", 2}})["prescaled_batch"] == true);
  CHECK_FALSE(parallel({{"ddp", true}, {"tensor_parallel_degree", 2}}).contains("prescaled_batch"));  // version 1

  const auto accelerator = [](const json& config) {
    return estimator({{"hyperparameters", {{"accelerator_config", config}}}});
  };
  const std::string name = "hyperparameters.accelerator_config";
  CHECK_THAT(outcome_of(accelerator({{"split_batches", true}}), name).note, Contains("global_batch_size"));
  CHECK(outcome_of(accelerator("{\"split_batches\": true}"), name).fate == Fate::refused);
  CHECK(outcome_of(accelerator("accelerator.json"), name).fate == Fate::refused);
  CHECK(outcome_of(accelerator({{"split_batches", false}}), name).fate == Fate::neutral);
  const json steps = {{"gradient_accumulation_kwargs", {{"num_steps", 4}}}};
  CHECK(accelerator(steps).config["training"]["gradient_accumulation_steps"] == 4);
}

TEST_CASE("names with dashes and with underscores mean the same") {
  const auto data = [](const json& hyperparameters) {
    return estimator({{"hyperparameters", hyperparameters}}).config["data"];
  };
  const json seven = {{"max_samples_seed", 7}};
  CHECK(data({{"shuffle-train-dataset", "true"}, {"shuffle-seed", "7"}}) == seven);
  CHECK(data({{"shuffle_train_dataset", true}, {"shuffle_seed", 7}}) == seven);
}

TEST_CASE("the DeepSpeed section of accelerate's config has the defaults of DeepSpeed's file") {
  const auto training = [](const std::string& more) {
    return import_text_as("distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n" + more,
                          "a.yaml", {})
        .config.value("training", json::object());
  };
  CHECK(training("") == json{{"max_grad_norm", 1}});  // as in a script without a Trainer
  CHECK(training("  gradient_clipping: 0.5\n") == json{{"max_grad_norm", 0.5}});
  CHECK(training("mixed_precision: fp16\n")["dynamic_loss_args"] == json{{"init_scale", 65536}, {"delayed_shift", 2}});
}

TEST_CASE("keys of DeepSpeed's config that repeat the script's arguments do not contradict them") {
  const json both = {{"logging_steps", 10}, {"deepspeed", {{"steps_per_print", 2000}}}};
  const auto import = estimator({{"hyperparameters", both}});
  CHECK(import.refused().empty());
  CHECK(import.config["training"]["logging_steps"] == 10);
}

TEST_CASE("a channel of the command line whose files are not used is a mistake") {
  const auto give = [](const ImportOptions& options) {
    return import_text_as("run_clm.py --do_train --model_name_or_path gpt2 --train_file t.txt", "job", options);
  };
  CHECK_THROWS_WITH(give({.channels = {{"model", "models/gpt2"}}}),
                    Contains("--channel model=models/gpt2") && Contains("--set model.path=models/gpt2"));
  CHECK_THROWS_WITH(give({.channels = {{"train", "here.txt"}}}), Contains("the job sets data.train to \"t.txt\""));
  CHECK_NOTHROW(give({.channels = {{"train", "t.txt"}}}));
  const json inputs = {{"hyperparameters", {{"train_file", "/data/a.csv"}}}, {"inputs", {{"train", "s3://a"}}}};
  CHECK_THROWS_WITH(estimator(inputs, {.channels = {{"train", "here.csv"}}}), Contains("--channel train=here.csv"));
}

TEST_CASE("channels have all the forms that an estimator's fit takes") {
  const Import alone = estimator({{"entry_point", "run_clm.py"}, {"inputs", "s3://bucket/text"}});
  CHECK(refusals_text(alone).empty());
  CHECK(alone.config["data"]["train"] == "/opt/ml/input/data/training");
  const Import file_system =
      estimator({{"entry_point", "run_clm.py"},
                 {"inputs",
                  {{"train",
                    {{"file_system_id", "fs-1"},
                     {"file_system_type", "EFS"},
                     {"file_system_access_mode", "ro"},
                     {"directory_path", "/text"}}},
                   {"validation", {{"s3_data", "s3://b"}, {"shuffle_config", {{"seed", 3}}}}}}}});
  CHECK(refusals_text(file_system).empty());
  CHECK(file_system.config["data"]["train"] == "/opt/ml/input/data/train");
  CHECK(file_system.config["training"]["data_seed"] == 3);
  CHECK_THAT(refusal({{"entry_point", "run_clm.py"}, {"distribution", {{"mpi", true}}}}, "distribution.mpi"),
             Contains("must be an object"));
}

TEST_CASE("channels of the command line are used once") {
  const auto import = estimator({{"inputs", {{"train", "s3://a"}, {"test", "s3://b"}}}},
                                {.channels = {{"train", "a.csv"}, {"test", "b.csv"}, {"validation", "c.csv"}}});
  CHECK(import.config["data"] == json{{"train", "a.csv"}, {"validation", "c.csv"}, {"test", "b.csv"}});
  CHECK_THROWS_WITH(estimator({{"role", "a"}}, {.channels = {{"trian", "a.csv"}}}),
                    Contains("no key reads this channel"));
}

TEST_CASE("the channel test is used for evaluation only if no other channel is") {
  const auto data = [](const json& inputs) { return estimator({{"inputs", inputs}}).config["data"]; };
  const std::string folder = "/opt/ml/input/data/";
  CHECK(data({{"test", "s3://a"}}) == json{{"validation", folder + "test"}});
  CHECK(data({{"test", "s3://a"}, {"validation", "s3://b"}}) ==
        json{{"validation", folder + "validation"}, {"test", folder + "test"}});
}

TEST_CASE("options that are switched off have no effect") {
  const auto import =
      estimator({{"distribution",
                  {{"smdistributed",
                    {{"modelparallel", {{"enabled", false}, {"parameters", {{"partitions", 4}, {"zzz", 1}}}}}}}}}});
  const std::string place = "distribution.smdistributed.modelparallel.parameters.";
  CHECK(outcome_of(import, place + "partitions") == neutral("the option that it belongs to is off"));
  CHECK(outcome_of(import, place + "zzz").fate == Fate::refused);
  CHECK(!import.config.contains("smp_options"));
}

TEST_CASE("the task follows from the script, from telling keys, or from --set") {
  const auto task = [](const json& job, const ImportOptions& options = {}) {
    return estimator(job, options).config["task"];
  };
  CHECK(task({{"entry_point", "scripts/run_ner.py"}}) == "token-classification");
  CHECK(task({{"entry_point", "train.py"}, {"hyperparameters", {{"doc_stride", 64}}}}) == "question-answering");
  CHECK(task({{"entry_point", "train.py"}}, {.channels = {}, .hosts = {}, .settings = {"task=masked-lm"}}) ==
        "masked-lm");
  CHECK_THAT(refusal({{"entry_point", "train.py"}}, "entry_point"), Contains("--set task="));
  CHECK(task({{"entry_point", "train.py"}, {"hyperparameters", {{"task", "masked-lm"}}}}) == "masked-lm");
  CHECK(estimator({{"entry_point", "run_glue.py"}}).config["data"]["sequence_length"] == 128);
}

TEST_CASE("pipe mode and data that hosts do not share are refused by name") {
  CHECK_THAT(refusal({{"input_mode", "Pipe"}}, "input_mode"), Contains("\"Pipe\""));
  const json inputs = {
      {"train", {{"s3_data", "s3://a/b"}, {"distribution", "ShardedByS3Key"}, {"input_mode", "Pipe"}}}};
  const json job = {{"instance_count", 2}, {"instance_type", "ml.p3.2xlarge"}, {"inputs", inputs}};
  CHECK_THAT(refusal(job, "inputs.train.distribution"), Contains("FullyReplicated"));
  CHECK_THAT(refusal(job, "inputs.train.input_mode"), Contains("File or FastFile"));
}

TEST_CASE("the table contains no bytes that a terminal interprets") {
  const auto import = estimator({{"hyperparameters", {{"a\x1b[2J", "b\x1b[2J"}}}});
  CHECK(import_table(import).find('\x1b') == std::string::npos);
  CHECK(refusals_text(import).find('\x1b') == std::string::npos);
}

}  // namespace shardline::import_test
