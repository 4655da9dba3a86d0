#include "engine/config/key_help.h"

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/key_texts.h"

#include "tests/catch.h"

namespace shardline::key_help_test {

using Catch::Contains;

TEST_CASE("Every honoured key has an example that it accepts", "[key_help]") {
  for (const auto& section : config_sections())
    for (const auto& key : section.keys) {
      INFO(full_name(section, key));
      const auto example = example_value(section, key);
      if (key.status != Status::honoured) {
        CHECK(example.is_null());
        continue;
      }
      REQUIRE_FALSE(example.is_null());
      CHECK_FALSE(example == "");
      CHECK(key.type.accepts(example));
      Config config;
      if (key.store) CHECK_NOTHROW(key.store(config, example));
      if (!key.writes.empty()) CHECK_NOTHROW(key_named(key.writes).store(config, key.meaning_of(example)));
    }
}

TEST_CASE("The help for a key shows its values, default, other names, needs and an example", "[key_help]") {
  const std::string microbatches = key_help("smp_options.microbatches");
  CHECK_THAT(microbatches, Contains("\n  value    an integer >= 1 and <= 65536 or \"auto\"\n"));
  CHECK_THAT(microbatches, Contains("\n  default  1\n"));
  CHECK_THAT(microbatches, Contains("  example  \"smp_options\": { \"microbatches\": 8 }\n"));
  CHECK_THAT(microbatches, Contains("           --set smp_options.microbatches=8\n"));
  CHECK(key_help("microbatches") == microbatches);
  CHECK(key_help("/smp_options/microbatches") == microbatches);
  CHECK_THAT(key_help("partitions"), Contains("smp_options.pipeline_parallel_degree\n"));
  CHECK_THAT(key_help("pipeline_parallel_degree"), Contains("  also     partitions\n"));
  CHECK_THAT(key_help("static_loss_scale"), Contains("  note     has no effect without fp16; set fp16 to true"));
  CHECK_THAT(key_help("mlm_probability"), Contains("set task to \"masked-lm\""));
  CHECK_THAT(key_help("smp_options.checkpoint_attentions"),
             Contains("  sets     smp_options.activation_checkpointing\n"));
  CHECK_THAT(key_help("task"), Contains("\n  example  \"task\": \"masked-lm\"\n"));
  CHECK_THAT(key_help("no_decay_patterns"), Contains("--set 'training.no_decay_patterns=*wte*'"));
}

TEST_CASE("Help states that a key has no effect or is not supported", "[key_help]") {
  CHECK_THAT(key_help("torch_compile"), Contains("accepted, but has no effect"));
  CHECK_THAT(key_help("data.streaming"),
             Contains("not supported; only the default is accepted") && Contains("Instead:"));
}

TEST_CASE("A name that several sections have is explained for each", "[key_help]") {
  CHECK_THAT(key_help("fp16"), Contains("training.fp16\n") && Contains("smp_options.fp16\n"));
}

TEST_CASE("Help finds a key by its name in other trainers", "[key_help]") {
  CHECK_THAT(key_help("lr"), Contains("lr is training.learning_rate here") && Contains("\ntraining.learning_rate\n"));
  CHECK_THAT(key_help("--micro-batch-size"), Contains("training.per_device_train_batch_size\n"));
}

TEST_CASE("Help for a section lists all of its keys", "[key_help]") {
  for (const auto& section : config_sections()) {
    const std::string text = key_help(section.name.empty() ? "top level" : section.name);
    for (const auto& key : section.keys) CHECK_THAT(text, Contains(key.name));
    if (!section.name.empty()) CHECK_THAT(sections_help(), Contains(section.name));
  }
}

TEST_CASE("An unknown name is refused, and the error suggests the nearest ones", "[key_help]") {
  CHECK_THROWS_WITH(key_help("learning_rat"),
                    Contains("no config key \"learning_rat\"; the nearest is training.learning_rate"));
  CHECK_THROWS_WITH(key_help("microbatchez"), Contains("smp_options.microbatches"));
  CHECK_THROWS_WITH(key_help("training.batch"), Contains("training.global_batch_size"));
  CHECK_THROWS_WITH(key_help("zzzzzzzzzzzz"), Contains("shardline help lists the sections"));
  CHECK_THROWS_AS(key_help(""), ConfigError);
}

TEST_CASE("Help is plain text in lines of at most 100 characters", "[key_help]") {
  for (const auto& section : config_sections())
    for (const auto& key : section.keys) {
      const std::string text = key_help(full_name(section, key));
      INFO(text);
      CHECK_THAT(text, !Contains("`") && !Contains("](#"));
    }
}

}  // namespace shardline::key_help_test
