// What `shardline generate` refuses before it opens a model.
#include "core/error.h"
#include "engine/commands/job.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::generate_job_test {

TEST_CASE("only language models generate text") {
  Config config;
  config.model.path = "no-such-model";
  for (const char* task : {kSequenceClassification, kTokenClassification, kQuestionAnswering, kMaskedLm}) {
    config.task = task;
    CHECK_THAT(message_of<ConfigError>([&] { check_generate(config, {.prompts = {"x"}}); }),
               Catch::Contains("/task: generate needs a language model") && Catch::Contains(task) &&
                   Catch::Contains("use predict"));
  }
  for (const char* task : {kCausalLm, kSeq2SeqLm}) {
    config.task = task;
    CHECK_THAT(message_of<Error>([&] { check_generate(config, {.prompts = {"x"}}); }),
               Catch::Contains("no-such-model"));
  }
}

}  // namespace shardline::generate_job_test
