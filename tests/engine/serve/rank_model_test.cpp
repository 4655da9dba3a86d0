// Sequences that begin and end at different times continue as each does alone, and examples that are computed together
// have the logits that each has alone, on every layout.
#include "engine/serve/rank_model.h"

#include <ATen/TensorOperators.h>

#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "core/comm/threads_communicator.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/config/rules/model_rules.h"
#include "engine/generate/generator.h"

#include "tests/catch.h"

namespace shardline::rank_model_test {
namespace {

using nlohmann::json;

struct Degrees {
  int p = 1, t = 1;
  std::string optimize = "speed";
};

Config config_of(const std::string& task, json model, const Degrees& on) {
  model["initializer_range"] = 0.3;
  return parse_config(
      json{{"model", {{"config", model}}},
           {"task", task},
           {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 16}}},
           {"training", {{"global_batch_size", 2}}},
           {"smp_options",
            {{"pipeline_parallel_degree", on.p}, {"tensor_parallel_degree", on.t}, {"optimize", on.optimize}}},
           {"runtime", {{"dtype", "float64"}, {"communicator", on.p * on.t == 1 ? "local" : "threads"}}},
           {"output_dir", "unused"}}
          .dump(),
      "rank model test");
}

// On the first rank; the others follow.
using Use = std::function<void(RankModel& model, RankTrainer& trainer, const ModelSpec& spec)>;
void with_model(
    const std::string& task, const json& keys, const Degrees& on, const Use& use,
    const Use& on_all = [](RankModel&, RankTrainer&, const ModelSpec&) {}) {
  const Config config = config_of(task, keys, on);
  run_ranks(on.p * on.t, [&](CommunicatorPtr world) {
    const auto [source, machines, plan] = plan_model(config, world->size());
    RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 0);
    fill_parameters(config.model, source, 7, trainer.parameters());
    RankModel model(trainer, source.spec, source.head.kind, *world);
    on_all(model, trainer, source.spec);
    if (world->rank() > 0) return model.follow();
    use(model, trainer, source.spec);
    model.keep_waiting();
    model.end();
  });
}

const json kGpt2 = {{"model_type", "gpt2"}, {"vocab_size", 61}, {"n_positions", 40},
                    {"n_embd", 24},         {"n_layer", 3},     {"n_head", 3}};
const json kGptNeo = {{"model_type", "gpt_neo"},
                      {"vocab_size", 61},
                      {"max_position_embeddings", 40},
                      {"hidden_size", 24},
                      {"num_layers", 2},
                      {"num_heads", 3},
                      {"window_size", 5},
                      {"attention_types", {{{"global", "local"}, 1}}}};

int64_t best(const at::Tensor& logits) {
  return logits.argmax().item<int64_t>();
}

}  // namespace

TEST_CASE("sequences of different lengths that are computed together continue as each does alone") {
  const auto& [keys, on] =
      GENERATE(std::pair(kGpt2, Degrees{}), std::pair(kGptNeo, Degrees{}), std::pair(kGpt2, Degrees{2, 1}),
               std::pair(kGpt2, Degrees{1, 2, "memory"}), std::pair(kGpt2, Degrees{2, 2, "speed"}));
  const std::vector<std::vector<int64_t>> prompts = {{3, 14, 15}, {9}, {2, 6, 5, 3, 5, 8, 9, 7}};
  constexpr int64_t kNew = 12;
  std::map<int64_t, std::vector<int32_t>> alone;
  std::mutex mutex;
  std::map<int64_t, std::vector<int32_t>> together;
  with_model(
      "causal-lm", keys, on,
      [&](RankModel& model, RankTrainer&, const ModelSpec&) {
        std::map<int64_t, int64_t> last;
        std::vector<int64_t> ended;
        // Sequence i begins at pass 3 * i.
        for (int64_t pass = 0; together.size() < prompts.size() || !last.empty(); ++pass) {
          std::vector<SequenceTokens> tokens;
          for (const auto& [sequence, token] : last) tokens.push_back({sequence, {token}});
          if (pass % 3 == 0 && pass / 3 < std::ssize(prompts)) tokens.push_back({pass / 3, prompts[pass / 3]});
          const at::Tensor logits = model.next_logits(tokens, std::exchange(ended, {}));
          for (size_t i = 0; i < tokens.size(); ++i) {
            const int64_t sequence = tokens[i].sequence;
            together[sequence].push_back(last[sequence] = best(logits[i]));
            if (std::ssize(together[sequence]) < kNew) continue;
            last.erase(sequence);
            ended.push_back(sequence);
          }
        }
        model.next_logits({}, ended);
      },
      [&](RankModel&, RankTrainer& trainer, const ModelSpec& spec) {
        for (size_t i = 0; i < prompts.size(); ++i) {
          const auto made = generate(trainer, spec, prompts[i], kNew, {}, {.temperature = 0}, 0);
          const std::lock_guard lock(mutex);
          alone[i] = made;
        }
      });
  CHECK(together == alone);
}

TEST_CASE("examples that are computed together have the logits of each alone") {
  const json bert = {{"model_type", "bert"},          {"vocab_size", 61},         {"hidden_size", 24},
                     {"num_hidden_layers", 2},        {"num_attention_heads", 3}, {"intermediate_size", 30},
                     {"max_position_embeddings", 40}, {"num_labels", 3}};
  const std::string task = GENERATE(kSequenceClassification, kTokenClassification, kQuestionAnswering, kMaskedLm);
  const Degrees on = GENERATE(Degrees{}, Degrees{2, 1}, Degrees{1, 2, "memory"});
  std::vector<Example> examples = {{.ids = {1, 2, 3}}, {.ids = {4}}, {.ids = {5, 6, 7, 8, 9}}};
  json keys = bert;
  if (task == kMaskedLm || task == kQuestionAnswering) keys.erase("num_labels");
  for (Example& example : examples) {
    example.types.resize(example.ids.size());
    if (task == kMaskedLm) example.labels.assign(example.ids.size(), 3);
  }
  with_model(task, keys, on, [&](RankModel& model, RankTrainer&, const ModelSpec&) {
    const std::vector<Logits> all = model.logits(examples);
    REQUIRE(all.size() == 3);
    for (size_t i = 0; i < all.size(); ++i) {
      const std::vector<Logits> one = model.logits({examples[i]});
      REQUIRE(one[0].values.size() == all[i].values.size());
      CHECK(all[i].rows() == logits_rows(examples[i], head_choice(task).kind));
      for (size_t k = 0; k < one[0].values.size(); ++k)
        CHECK(all[i].values[k] == Approx(one[0].values[k]).margin(1e-9));
    }
  });
}

TEST_CASE("each example gets the words that it requests for its masks") {
  const json bert = {{"model_type", "bert"},         {"vocab_size", 61},         {"hidden_size", 24},
                     {"num_hidden_layers", 2},       {"num_attention_heads", 3}, {"intermediate_size", 30},
                     {"max_position_embeddings", 40}};
  const Degrees on = GENERATE(Degrees{}, Degrees{2, 1}, Degrees{1, 2, "memory"});
  const auto masked = [](const std::vector<int32_t>& ids, const WantedWords& words) {
    return Example{.ids = ids,
                   .types = std::vector<uint8_t>(ids.size()),
                   .labels = std::vector<int32_t>(ids.size(), 3),
                   .words = words};
  };
  const std::vector<Example> examples = {masked({1, 2}, {}), masked({3, 4, 5}, {.most = 70}),
                                         masked({6, 7}, {.most = 2, .only = {9, 60}})};
  with_model(kMaskedLm, bert, on, [&](RankModel& model, RankTrainer&, const ModelSpec&) {
    const std::vector<Logits> found = model.logits(examples);
    REQUIRE(found.size() == 3);
    CHECK(found[0].width == 10);
    REQUIRE(found[1].width == 140);
    REQUIRE(found[2].width == 4);
    for (int64_t row = 0; row < 3; ++row) {  // all 61 words, whose probabilities are 1 together
      double sum = 0;
      for (int64_t i = 0; i < 70; ++i) sum += std::exp(found[1].row(row)[70 + i]);
      CHECK(sum == Approx(1));
    }
    const std::vector<Logits> all = model.logits({masked({6, 7}, {.most = 61})});
    for (int64_t row = 0; row < 2; ++row) {
      std::map<double, double> scores;  // by word
      for (int64_t i = 0; i < 61; ++i) scores[all[0].row(row)[i]] = all[0].row(row)[61 + i];
      const auto words = found[2].row(row);
      CHECK(std::set{words[0], words[1]} == std::set{9.0, 60.0});
      CHECK(words[2] >= words[3]);
      for (int i = 0; i < 2; ++i) CHECK(words[2 + i] == Approx(scores[words[i]]).margin(1e-9));
    }
  });
}

}  // namespace shardline::rank_model_test
