// Tests settings in the spellings of transformers, of SageMaker's library and of shardline.
#include <algorithm>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/keys/registry.h"

#include "tests/catch.h"

namespace shardline::spellings_test {

using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

Config reading(const std::string& patch, const std::vector<std::string>& overrides = {}) {
  json file = json::parse(R"({"model": {"config": {"model_type": "gpt2", "n_layer": 2}},
                              "data": {"train": "a.txt", "tokenizer": "bytes"}, "output_dir": "out"})");
  file.merge_patch(json::parse(patch));
  return parse_config(file.dump(), "c.json", overrides);
}

std::string mistake(const std::string& patch) {
  try {
    reading(patch);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("Activation checkpointing has three spellings", "[config][spellings]") {
  const auto strategy = [](const char* patch) { return json(reading(patch).smp.activation_checkpointing); };
  CHECK(strategy(R"({"training": {"activation_checkpointing": true}})") == "each");
  CHECK(strategy(R"({"training": {"gradient_checkpointing": true}})") == "each");
  CHECK(strategy(R"({"training": {"gradient_checkpointing": true, "activation_checkpointing": null}})") == "each");
  CHECK(strategy(R"({"smp_options": {"checkpoint_attentions": true}})") == "selective");
  CHECK(strategy(R"({"smp_options": {"enabled": true, "parameters": {"checkpoint_attentions": true}}})") ==
        "selective");
  // The same value twice is not a contradiction.
  CHECK(strategy(R"({"training": {"gradient_checkpointing": true},
                     "smp_options": {"activation_checkpointing": "each"}})") == "each");
  CHECK(strategy(R"({"training": {"gradient_checkpointing": null, "activation_checkpointing": null},
                     "smp_options": {"activation_checkpointing": "group_2", "checkpoint_attentions": false}})") ==
        "group_2");
  CHECK(strategy(R"({"training": {"gradient_checkpointing": false}})") == "none");
  CHECK_THAT(mistake(R"({"training": {"gradient_checkpointing": false},
                         "smp_options": {"activation_checkpointing": "each"}})"),
             Contains("c.json: /training/gradient_checkpointing: means activation_checkpointing \"none\" and "
                      "contradicts smp_options.activation_checkpointing \"each\"; got false; keep one of them"));

  CHECK_THAT(
      mistake(R"({"training": {"gradient_checkpointing": true},
                         "smp_options": {"activation_checkpointing": "none"}})"),
      Contains("c.json: /training/gradient_checkpointing: means activation_checkpointing \"each\" and contradicts "
               "smp_options.activation_checkpointing \"none\"; got true; keep one of them"));
  CHECK_THAT(
      mistake(R"({"training": {"activation_checkpointing": true},
                         "smp_options": {"checkpoint_attentions": true}})"),
      Contains("/smp_options/checkpoint_attentions: means") && Contains("training.activation_checkpointing true"));
  CHECK_THAT(
      mistake(R"({"smp_options": {"activation_checkpointing": "each", "checkpoint_attentions": true}})"),
      Contains("/smp_options/checkpoint_attentions: means activation_checkpointing \"selective\" and contradicts "
               "smp_options.activation_checkpointing \"each\""));
  CHECK_THAT(mistake(R"({"training": {"gradient_checkpointing": true, "activation_checkpointing": false}})"),
             Contains("is another name of activation_checkpointing, which has another value (false)"));
}

TEST_CASE("The arguments of transformers' gradient checkpointing are accepted or refused", "[config][spellings]") {
  const char* quiet = R"({"training": {"gradient_checkpointing": true, "gradient_checkpointing_kwargs":
                          {"use_reentrant": false, "every_n_layers": 1, "offload": false}}})";
  CHECK(reading(quiet) == reading(R"({"training": {"gradient_checkpointing": true}})"));
  CHECK(reading(R"({"training": {"activation_checkpointing_kwargs": {"offload": true}}})").smp.offload_activations);
  for (const auto& [arguments, says] : std::vector<std::pair<std::string, std::string>>{
           {R"({"every_n_layers": 2})",
            "\"every_n_layers\" is not supported; got {\"every_n_layers\":2}; list the layers"},
           {R"({"offload": "cpu"})", "\"offload\" must be true or false"},
           {R"({"use_reentant": true})", "unknown argument \"use_reentant\""},
           {R"(["offload"])", "must be an object"}}) {
    INFO(arguments);
    CHECK_THAT(mistake(cat(R"({"training": {"activation_checkpointing_kwargs": )", arguments, "}}")),
               Contains("/training/activation_checkpointing_kwargs: ") && Contains(says));
  }
  CHECK_THAT(mistake(R"({"training": {"gradient_checkpointing_kwargs": {"offload": true}},
                         "smp_options": {"offload_activations": false}})"),
             Contains("/training/gradient_checkpointing_kwargs: means offload_activations true and contradicts "
                      "smp_options.offload_activations false"));
}

TEST_CASE("A value on the command line replaces every spelling in the file", "[config][spellings]") {
  const char* file = R"({"training": {"gradient_checkpointing": true, "adafactor": true, "warmup_ratio": 0.1}})";
  CHECK(json(reading(file, {"smp_options.activation_checkpointing=contiguous"}).smp.activation_checkpointing) ==
        "contiguous");
  CHECK(json(reading(file, {"training.activation_checkpointing=false"}).smp.activation_checkpointing) == "none");
  CHECK(reading(file, {"training.optim=sgd"}).training.optim == Optim::sgd);
  CHECK(reading(file, {"training.warmup_steps=7"}).training.warmup_steps == 7);
  const char* envelope = R"({"smp_options": {"enabled": true, "parameters": {"checkpoint_attentions": true}}})";
  CHECK(json(reading(envelope, {"smp_options.activation_checkpointing=each"}).smp.activation_checkpointing) == "each");
  // This also works in the other direction, and for keys with the same name in two sections.
  CHECK(reading(R"({"training": {"optim": "sgd"}})", {"training.adafactor=true"}).training.optim == Optim::adafactor);
  CHECK(reading(R"({"training": {"warmup_steps": 9}})", {"training.warmup_ratio=0.5"}).training.warmup_steps == 0.5);
  CHECK(reading(R"({"training": {"eval_strategy": "steps"}, "data": {"validation": "v.txt"}})",
                {"training.evaluation_strategy=epoch"})
            .training.eval_strategy == EvalStrategy::epoch);
  const char* each = R"({"smp_options": {"activation_checkpointing": "each"}})";
  CHECK(json(reading(each, {"training.gradient_checkpointing=false"}).smp.activation_checkpointing) == "none");
  CHECK(json(reading(each, {"smp_options.checkpoint_attentions=true"}).smp.activation_checkpointing) == "selective");
  CHECK(reading(R"({"training": {"fp16": true}})", {"smp_options.fp16=true"}).training.fp16);
  CHECK_FALSE(reading(R"({"training": {"fp16": true}})", {"smp_options.fp16=false"}).training.fp16);
  CHECK_FALSE(reading(R"({"smp_options": {"bf16": true}})", {"training.bf16=false"}).training.bf16);
  // If a flag is reset, exactly the settings that it stands for are reset.
  CHECK(reading(R"({"training": {"optim": "sgd"}})", {"training.adafactor=false"}).training.optim == Optim::sgd);
  CHECK(reading(R"({"training": {"optim": "adafactor"}})", {"training.adafactor=false"}).training.optim ==
        TrainingOptions().optim);
  CHECK(json(reading(each, {"smp_options.checkpoint_attentions=false"}).smp.activation_checkpointing) == "each");
}

TEST_CASE("Two values on the command line in two spellings must agree", "[config][spellings]") {
  const auto refused = [](const std::vector<std::string>& overrides, const std::string& says) {
    CAPTURE(overrides);
    const auto both = [&](const std::vector<std::string>& order) {
      try {
        reading("{}", order);
      } catch (const ConfigError& error) {
        return std::string(error.what());
      }
      return std::string("no error");
    };
    CHECK_THAT(both(overrides), Contains("--set ") && Contains(says));
    CHECK_THAT(both({overrides.rbegin(), overrides.rend()}), Contains("--set ") && Contains(says));
  };
  refused({"training.optim=sgd", "training.adafactor=true"}, "/training/adafactor: means optim \"adafactor\" and");
  refused({"training.warmup_steps=7", "training.warmup_ratio=0.1"}, "contradicts training.warmup_steps 7");
  refused({"smp_options.partitions=2", "smp_options.pipeline_parallel_degree=4"}, "another name of pipeline_parallel");
  refused({"training.evaluation_strategy=no", "training.eval_strategy=steps"}, "another name of eval_strategy");
  refused({"training.bf16=true", "smp_options.bf16=false"}, "contradicts training.bf16 true");
  refused({"training.gradient_checkpointing=true", "smp_options.activation_checkpointing=none"}, "\"each\" and");
  CHECK(reading("{}", {"training.adafactor=true", "training.optim=adafactor"}).training.optim == Optim::adafactor);
  CHECK(reading("{}", {"training.optim=adafactor", "training.optim=sgd"}).training.optim == Optim::sgd);
  // The number to which "auto" was resolved does not contradict it.
  CHECK(reading(R"({"training": {"global_batch_size": 8}})",
                {"smp_options.partitions=auto", "smp_options.pipeline_parallel_degree=2"})
            .smp.pipeline_parallel_degree == 2);
}

TEST_CASE("SageMaker's data parallelism is honoured", "[config][spellings]") {
  const auto distribution = [](const std::string& data_parallel, const std::string& rest = "") {
    return cat(R"({"distribution": {"smdistributed": {"dataparallel": )", data_parallel, "}", rest, "}}");
  };
  const std::string four = R"(, "mpi": {"enabled": true, "processes_per_host": 4})";
  const Config config = reading(distribution(R"({"enabled": true, "custom_mpi_options": "-x A=1"})", four));
  CHECK(config.smp.ddp == true);
  CHECK(config.mpi.processes_per_host == 4);
  CHECK(config.mpi.custom_mpi_options == "-x A=1");
  CHECK(config == reading(R"({"smp_options": {"ddp": true}, "mpi_options": {"processes_per_host": 4,
                              "custom_mpi_options": "-x A=1"}})"));
  CHECK_FALSE(reading(distribution(R"({"enabled": false})")).smp.ddp.has_value());
  CHECK_THAT(mistake(distribution(R"({"enabled": false})", four)),
             Contains("dataparallel/enabled: must be true with 4 replicas (D = world size / (P x T) > 1); got false"));
  CHECK_NOTHROW(reading(R"({"distribution": {"smdistributed": {"dataparallel": {"enabled": false}, "modelparallel":
                            {"enabled": true, "parameters": {"ddp": true}}}, "mpi": {"processes_per_host": 4}}})"));
  CHECK_FALSE(reading(distribution("{}")).smp.ddp.has_value());
  // With model parallelism, the number of replicas is the number of ranks / (P x T).
  CHECK(reading(R"({"distribution": {"smdistributed": {"dataparallel": {"enabled": true}, "modelparallel":
                    {"enabled": true, "parameters": {"partitions": 2}}}, "mpi": {"processes_per_host": 4}}})")
            .smp.pipeline_parallel_degree == 2);

  const std::string at = "c.json: /distribution/smdistributed/dataparallel";
  CHECK_THAT(mistake(distribution(R"({"enabled": true})")),
             Contains(at + "/enabled: needs the number of ranks on each host; got true; add \"mpi\""));
  CHECK_THAT(mistake(distribution(R"({"enabled": 1})", four)), Contains(at + "/enabled: must be true or false"));
  CHECK_THAT(mistake(distribution(R"({"enable": true})", four)), Contains(at + "/enable: unknown key"));
  CHECK_THAT(mistake(distribution(R"({"enabled": true, "custom_mpi_options": "-x A=1"})",
                                  R"(, "mpi": {"processes_per_host": 4, "custom_mpi_options": "-x A=2"})")),
             Contains(at + "/custom_mpi_options: contradicts that of mpi, \"-x A=2\"; got \"-x A=1\""));
  CHECK_THAT(mistake(R"({"distribution": {"smdistributed": {"dataparallel": {"enabled": true}, "modelparallel":
                         {"enabled": true, "parameters": {"ddp": false}}}, "mpi": {"processes_per_host": 4}}})"),
             Contains(at + "/enabled: contradicts ddp false"));
}

TEST_CASE("Keys that promise something that shardline does not do are refused", "[config][spellings]") {
  CHECK(reading(R"({"training": {"full_determinism": true}})").training.full_determinism);
  CHECK_THAT(mistake(R"({"training": {"full_determinism": true}, "runtime": {"device": "cuda"}})"),
             Contains("/training/full_determinism: is not supported on GPUs"));
  CHECK_THAT(mistake(R"({"training": {"do_predict": true}})"),
             Contains("/training/do_predict: needs data.test") &&
                 Contains("/training/do_predict: language models predict nothing but text"));
  CHECK_THAT(mistake(R"({"training": {"split_batches": true}})"), Contains("/training/split_batches: not supported"));
  CHECK_THAT(mistake(R"({"training": {"accelerator_config": {"split_batches": true}}})"),
             Contains("/training/accelerator_config: \"split_batches\" is not supported"));
  CHECK_THAT(mistake(R"({"training": {"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 4}}}})"),
             Contains("give it as gradient_accumulation_steps"));
  CHECK_NOTHROW(reading(R"({"training": {"accelerator_config": {"split_batches": false, "even_batches": true}}})"));
  CHECK_THAT(mistake(R"({"runtime": {"communicator": "threads", "threads_per_rank": 2}})"),
             Contains("/runtime/threads_per_rank: must be 1 with communicator \"threads\""));
  const auto lines = notes(reading(R"({"smp_options": {"auto_partition": false, "default_partition": 0,
                                       "manual_partition": [2]}})"),
                           false);
  CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("smp_options.default_partition has no effect where manual_partition gives") == 0;
  }));
}

TEST_CASE("Sentences of the reference do not capitalise names", "[config][spellings]") {
  for (const auto& section : config_sections())
    for (const auto& key : section.keys) {
      if (!key.meaning.empty()) continue;  // if there is no meaning, the advice begins the sentence
      INFO(key.name << ": " << key.advice);
      const auto first = key.advice.substr(0, key.advice.find_first_of(" :,"));
      CHECK((first.front() == '`' || first.find_first_of("._/") == std::string::npos));
    }
}

}  // namespace shardline::spellings_test
