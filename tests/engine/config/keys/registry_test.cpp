// Tests words of configs that are enums in the program.
#include "engine/config/keys/registry.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "engine/config/config.h"

#include "tests/catch.h"

namespace shardline::registry_test {
namespace {

// Words that mean the same are loaded as the first one.
const std::map<std::string, std::string> kSynonyms = {{"DPT", "cluster"}, {"TPD", "spread"}};

TEST_CASE("Every word that a key accepts is stored as a distinct value", "[config]") {
  int words = 0;
  for (const auto& section : config_sections()) {
    for (const auto& key : section.keys) {
      if (!key.store || !key.writes.empty()) continue;
      for (const auto& choice : key.type.choices) {
        if (!choice.advice.empty()) continue;  // known, but not available
        const std::string word = choice.value.starts_with('*') ? "a" + choice.value.substr(1) : choice.value;
        CAPTURE(section.name, key.name, word);
        Config config;
        key.store(config, word);
        const auto loaded = key.load(config);
        const auto synonym = kSynonyms.find(word);
        CHECK((loaded.is_array() ? loaded.at(0) : loaded) == (synonym == kSynonyms.end() ? word : synonym->second));
        ++words;
      }
    }
  }
  CHECK(words > 50);
}

Config with(const std::string& patch) {
  auto file = nlohmann::json::parse(R"({"model": {"config": {"model_type": "gpt2", "n_layer": 2}},
                                        "data": {"train": "a.txt", "tokenizer": "bytes"}, "output_dir": "out"})");
  file.merge_patch(nlohmann::json::parse(patch));
  return parse_config(file.dump(), "c.json");
}

TEST_CASE("Keys of transformers' example scripts are accepted, explained, or refused with advice", "[config]") {
  const Config config = with(R"({"data": {"pad_to_max_length": true, "overwrite_cache": true,
    "preprocessing_num_workers": 4, "keep_linebreaks": true, "streaming": false},
    "model": {"use_fast_tokenizer": false, "trust_remote_code": false, "ignore_mismatched_sizes": false}})");
  const auto told = notes(config, false);
  for (const char* line : {"data.pad_to_max_length has no effect: samples are never padded",
                           "data.overwrite_cache has no effect: caches follow the content of the files",
                           "data.preprocessing_num_workers has no effect: all cores are used",
                           "model.use_fast_tokenizer has no effect: each tokenizer is implemented once"})
    CHECK(std::ranges::find(told, line) != told.end());
  const auto [patch, expected] = GENERATE(table<std::string, std::string>({
      {R"({"data": {"keep_linebreaks": false}})", "/data/keep_linebreaks: not supported; got false; leave it out"},
      {R"({"data": {"streaming": true}})", "/data/streaming: not supported; got true; leave it out: token ids are"},
      {R"({"data": {"label_all_tokens": true}})", "/data/label_all_tokens: not supported"},
      {R"({"data": {"return_entity_level_metrics": true}})", "/data/return_entity_level_metrics: not supported"},
      {R"({"data": {"dataset_name": "imdb"}})",
       "/data/dataset_name: not supported; got \"imdb\"; name the files in train, validation and test"},
      {R"({"data": {"dataset_config_name": "de"}})", "/data/dataset_config_name: not supported"},
      {R"({"data": {"remove_splits": "test"}})", "/data/remove_splits: not supported"},
      {R"({"model": {"trust_remote_code": true}})", "/model/trust_remote_code: not supported"},
      {R"({"model": {"ignore_mismatched_sizes": true}})", "/model/ignore_mismatched_sizes: not supported"},
      {R"({"data": {"test_file": "a"}})", "/data/test_file: unknown key; got \"a\"; did you mean data.test?"},
      {R"({"data": {"do_regression": true}})", "did you mean model.config.num_labels = 1?"},
      {R"({"model": {"config_overrides": "a=1"}})", "did you mean model.config?"},
      {R"({"data": {"text_column_names": "a"}})", "did you mean data.text_column (and data.text_pair_column)?"},
      {R"({"data": {"shuffle_train_dataset": true}})", "did you mean data.max_samples_seed?"},
      {R"({"data": {"metric_name": "f1"}})", "did you mean training.metric_for_best_model?"},
      {R"({"serve": {"port": 80}})", "/serve: not supported; got {\"port\":80}; give them on its command line"},
      {R"({"study": {"runs": 2}})", "/study: not supported; got {\"runs\":2}; write a study file"},
      {R"({"smp_options": {"num_layers": 4}})", "did you mean model.config.num_hidden_layers?"},
  }));
  std::string message;
  try {
    with(patch);
  } catch (const ConfigError& error) {
    message = error.what();
  }
  CHECK_THAT(message, Catch::Contains(expected));
}

}  // namespace
}  // namespace shardline::registry_test
