#include <map>
#include <random>
#include <set>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/keys/registry.h"

#include "tests/catch.h"

namespace shardline::resolved_config_test {

using nlohmann::json;

namespace {

// Values of keys whose types do not describe them, by section and name.
const std::map<std::string, std::vector<json>>& free_values() {
  static const std::map<std::string, std::vector<json>> values = {
      {"model.config", {{{"n_layer", 4}}, {{"resid_pdrop", 0.0}, {"unknown", {1, "a", nullptr}}}}},
      {"model.path", {"some/model"}},
      {"model.inputs", {{{"tokens", "input_ids"}}}},
      {"model.loss", {"loss", {{"function", "cross_entropy"}, {"logits", "logits"}}}},
      {"smp_options.activation_checkpointing",
       {"each", "group_2", json::parse(R"([{"layers": "h.[0-3]", "strategy": "selective"}])")}},
      {"smp_options.tensor_parallel_layers", {json::parse(R"([{"pattern": "*mlp", "split": "auto"}])")}},
      {"smp_options.manual_partition", {{1, 1}, json::parse(R"([{"layers": "h.0", "stage": 0}])")}},
      {"runtime.memory_cap", {1 << 30, "2GiB"}},
      {"training.lr_scheduler_kwargs", {{{"num_cycles", 2}}, R"({"lr_end": 1e-6})"}},
      {"training.dynamic_loss_args", {{{"init_scale", 1024}, {"scale_window", 10}}}},
      {"training.activation_checkpointing_kwargs", {{{"use_reentrant", false}}, {{"offload", true}}}},
      {"training.optim_args", {"momentum=0.9"}},
      {"training.resume_from_checkpoint", {true, "auto", "out/checkpoint-5"}},
      {"training.metric_for_best_model", {"loss", "eval_perplexity"}},
      {"training.no_decay_patterns", {"*wte*", {"*wte*", "*wpe*"}}},
      {"mpi_options.custom_mpi_options", {"-x 'A=1 2'"}},
      {"mpi_options.hosts", {"a", {"a", "b"}}},
  };
  return values;
}

class RandomConfigs {
 public:
  explicit RandomConfigs(unsigned seed) : random_(seed) {
    for (const auto& section : config_sections())
      for (const auto& key : section.keys)
        if (key.status == Status::honoured || key.status == Status::no_effect) keys_.push_back({&section, &key});
  }

  // A minimal config with up to eight further keys, some of which require others.
  json next() {
    json file = json::parse(R"({"model": {"config": {"model_type": "gpt2", "n_layer": 2}},
                                "data": {"train": "a.txt", "tokenizer": "bytes"}, "output_dir": "out"})");
    file.merge_patch(pick(contexts()));
    for (size_t count = draw(8) + 1; count > 0; --count) {
      const auto& [section, key] = keys_[draw(keys_.size())];
      json& place = section->name.empty() ? file : file[section->name];
      std::vector<std::string> names = key->aliases;
      names.push_back(key->name);
      place[pick(names)] = value_of(section->name + "." + key->name, *key);
    }
    return file;
  }

 private:
  static const std::vector<json>& contexts() {
    static const std::vector<json> all = {
        json::object(),
        {{"training", {{"fp16", true}}}},
        {{"smp_options", {{"sharded_data_parallel_degree", 2}}}, {"mpi_options", {{"processes_per_host", 2}}}},
        {{"smp_options", {{"load_partition", true}, {"partition_file", "plan.json"}}}},
        {{"smp_options", {{"auto_partition", false}, {"pipeline_parallel_degree", 2}}}},
        {{"data", {{"validation", "v.txt"}}}},
        {{"data", {{"validation_split_percentage", 10}}}},
        {{"data", {{"validation", "v.txt"}}}, {"training", {{"eval_strategy", "epoch"}, {"save_strategy", "epoch"}}}},
        {{"data", {{"validation", "v.txt"}}},
         {"training", {{"eval_strategy", "epoch"}, {"early_stopping_patience", 3}}}},
        {{"task", "sequence-classification"},
         {"data", {{"validation", "v.tsv"}, {"test", "t.tsv"}, {"task_name", "mnli"}}}},
        {{"task", "sequence-classification"}, {"data", {{"train", "a.csv"}, {"sequence_length", 128}}}},
        {{"task", "question-answering"},
         {"data", {{"train", "a.json"}, {"version_2_with_negative", true}, {"sequence_length", 128}}}},
        {{"task", "masked-lm"},
         {"model", {{"config", {{"model_type", "bert"}, {"n_layer", nullptr}, {"max_position_embeddings", 1024}}}}},
         {"data", {{"line_by_line", true}, {"whole_word_mask", true}, {"test", "t.txt"}, {"sequence_length", 128}}}},
        {{"task", "token-classification"}, {"data", {{"train", "a.jsonl"}, {"sequence_length", 128}}}},
        {{"model", {{"path", "m.pt2"}, {"config", nullptr}}}},
        {{"task", "seq2seq-lm"},
         {"model", {{"path", "m.pt2"}, {"config", nullptr}}},
         {"data", {{"train", "a.jsonl"}, {"sequence_length", 256}}}},
        {{"training", {{"lr_scheduler_type", "cosine"}, {"optim", "sgd"}}}},
        {{"mpi_options", {{"processes_per_host", 4}}}, {"smp_options", {{"shard_optimizer_state", true}}}},
        {{"training", {{"global_batch_size", 64}}}},
        {{"smp_options", {{"ddp", true}}}, {"mpi_options", {{"processes_per_host", 2}}}},
    };
    return all;
  }

  size_t draw(size_t bound) { return random_() % bound; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[draw(from.size())];
  }

  std::string word(const std::vector<JsonChoice>& choices) {
    std::vector<std::string> words;
    for (const auto& choice : choices)
      if (choice.advice.empty())
        words.push_back(choice.value[0] == '*' ? "mine" + choice.value.substr(1) : choice.value);
    return words.empty() ? pick(std::vector<std::string>{"one", "two words", "a/b"}) : pick(words);
  }

  json value_of(const std::string& name, const Key& key) {
    const JsonType& type = key.type;
    if (draw(8) == 0) return type.nullable ? json() : key.default_value;
    if (const auto found = free_values().find(name); found != free_values().end()) return pick(found->second);
    const double low = std::max(type.minimum, 0.0), high = type.maximum;
    switch (type.kind) {
      case JsonType::Kind::boolean:
        return draw(2) == 0;
      case JsonType::Kind::integer:
        if (!type.choices.empty() && draw(4) == 0) return word(type.choices);
        return static_cast<int64_t>(
            std::min(high, low + static_cast<double>(pick(std::vector<int>{0, 1, 2, 8, 1000}))));
      case JsonType::Kind::number:
        return std::min(type.below ? high / 2 : high, low + pick(std::vector<double>{0, 0.1, 1, 12, 3e-4}));
      case JsonType::Kind::numbers:
        return json::array({low + 1});
      case JsonType::Kind::text:
        return word(type.choices);
      case JsonType::Kind::texts:
        return draw(2) == 0 ? json(word(type.choices)) : json{word(type.choices)};
      case JsonType::Kind::array:
        return json::array({1});
      case JsonType::Kind::object:
        return {{"a", 1}};
      case JsonType::Kind::any:
        return pick(std::vector<json>{1, "text", {{"b", false}}, json::array({1.5})});
    }
    return nullptr;
  }

  std::mt19937 random_;
  std::vector<std::pair<const Section*, const Key*>> keys_;
};

}  // namespace

TEST_CASE("The resolved config of any config gives the same run", "[config][resolved]") {
  RandomConfigs configs(8);
  size_t read = 0;
  std::set<std::string> changed;  // keys whose value differed from the default in at least one config
  for (int i = 0; i < 15000; ++i) {
    const json file = configs.next();
    Config config;
    try {
      config = parse_config(file.dump(), "c.json");
    } catch (const ConfigError&) {
      continue;
    }
    ++read;
    const json once = resolved(config, {{"version", "1"}});
    INFO(file.dump() << "\n" << once.dump());
    const Config again = parse_config(once.dump(), "config.resolved.json");
    REQUIRE(again == config);
    REQUIRE(resolved(again, {{"version", "1"}}).dump() == once.dump());
    for (const auto& section : config_sections())
      for (const auto& key : section.keys)
        if (key.load && key.load(config) != key.load(Config())) changed.insert(section.name + "." + key.name);
  }
  CHECK(read > 1000);
  for (const auto& section : config_sections())
    for (const auto& key : section.keys) {
      INFO(section.name << "." << key.name << ", " << read << " configs were read");
      const bool has_one_value = key.name == "task";
      if (key.load && !has_one_value) CHECK(changed.contains(section.name + "." + key.name));
    }
}

}  // namespace shardline::resolved_config_test
