// A config with the settings of its command line ("--set", one per line) and the config.json of its model, whose
// directory the config calls "@model". If a config is accepted, its resolved form is read as an equal config.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/config/config.h"
#include "engine/config/rules/model_rules.h"
#include "engine/config/rules/shell_words.h"
#include "engine/config/rules/sizes.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::config_fuzz {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string with_model(std::string text) {
  const std::string word = "@model", path = fuzz::folder().string();
  for (size_t place = 0; (place = text.find(word, place)) != std::string::npos; place += path.size())
    text.replace(place, word.size(), path);
  return text;
}

// The layers to which the config's patterns are applied; a model that it describes may have any number of them.
const ModelSpec& small_model() {
  static const ModelSpec model{.layers = {{.name = "embedding"},
                                          {.name = "h.0", .is_block = true, .units = {{"attn"}, {"mlp"}}},
                                          {.name = "h.1", .is_block = true, .units = {{"attn"}, {"mlp"}}},
                                          {.name = "head"}}};
  return model;
}

void apply_to_layers(const Config& config, size_t bytes) {
  const size_t layers = small_model().layers.size();
  fuzz::accepts(bytes, [&] {
    const auto recompute = recompute_by_layer(config.smp.activation_checkpointing, small_model());
    FUZZ_REQUIRE(recompute.size() == layers, recompute.size(), " layers are recomputed");
  });
  fuzz::accepts(bytes, [&] {
    const auto stages = stages_by_hand(config.smp.manual_partition, small_model());
    FUZZ_REQUIRE(stages.size() == layers, stages.size(), " layers have a stage");
    for (const int stage : stages) FUZZ_REQUIRE(stage >= -1 && stage <= 1000000, "stage ", stage);
  });
  fuzz::accepts(bytes, [&] {
    const auto rules = tensor_rules_by_unit(config.smp.tensor_parallel_layers, small_model());
    FUZZ_REQUIRE(rules.size() <= 4, rules.size(), " units have a rule");
  });
}

void check_words(const std::string& text) {
  fuzz::accepts(text.size(), [&] {
    const std::vector<std::string> words = shell_words(text);
    std::string quoted;
    for (const auto& word : words) quoted += shell_quoted(word) + ' ';
    FUZZ_REQUIRE(shell_words(quoted) == words, quoted);
  });
}

void check_sizes_of(const Config& config, size_t bytes) {
  const auto& smp = config.smp;
  if (smp.pipeline_parallel_degree == kAuto || smp.tensor_parallel_degree == kAuto || smp.microbatches == kAuto) return;
  for (const int world_size : {1, 2, 12, configured_world_size(config)})
    fuzz::accepts(bytes, [&] {
      const Layout layout = resolve_sizes(config, world_size);
      FUZZ_REQUIRE(layout.replicas >= 1 && layout.microbatches >= 1 && layout.microbatch_size >= 1, layout.replicas);
      ranks_per_host(config, world_size);
    });
}

// A model's config.json without a run's config.
void check_model(const std::string& text) {
  const auto file = nlohmann::json::parse(text, nullptr, false);
  if (!file.is_object()) return;
  const auto mistakes = read_hf_model(file, nlohmann::json::object()).mistakes;
  FUZZ_REQUIRE(mistakes.empty() == mistakes_text(mistakes, "config.json", "").empty(), mistakes.size(), " mistakes");
}

}  // namespace

FUZZ_TARGET(config) {
  auto files = fuzz::files_of(data, size, {"run.json", "--set", "config.json"});
  const std::string text = with_model(files["run.json"]);
  const std::vector<std::string> settings = lines_of(with_model(files["--set"]));
  files.erase("run.json");
  files.erase("--set");
  fuzz::fill_folder(files);
  constexpr fuzz::Allowance for_tables{.fixed = 4 << 20};  // the tables of keys are made at the first read
  FUZZ_REQUIRE(fuzz::accepts(
                   size, [&] { check_model(files["config.json"]); }, for_tables),
               "mistakes in config.json are reported, not thrown");
  std::optional<Config> config;
  const size_t bytes = size + text.size();
  if (!fuzz::accepts(
          bytes, [&] { config = parse_config(text, "run.json", settings); }, for_tables))
    return false;
  const std::string written = resolved(*config).dump();
  std::optional<Config> again;
  fuzz::accepts(bytes + written.size(), [&] {
    try {
      again = parse_config(written, "resolved.json");
    } catch (const ConfigError& error) {
      fuzz::found(cat("the resolved config is refused: ", error.what(), "\n", written));
    }
  });
  FUZZ_REQUIRE(*again == *config, "the config changes when it is written: ", written);
  FUZZ_REQUIRE(settings_between(*config, *again).empty(), "equal configs differ in their settings");
  for (const bool on_accelerators : {false, true}) notes(*config, on_accelerators);
  apply_to_layers(*config, bytes);
  check_words(config->mpi.custom_mpi_options);
  check_sizes_of(*config, bytes);
  return true;
}

}  // namespace shardline::config_fuzz
