// A padded token costs nothing: with padded rows of data, memory, messages and numbers are the same as without padding,
// on stages and on tensor-parallel ranks.
#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/data/dataset/example_source.h"
#include "engine/tasks/task.h"
#include "engine/train/trainer.h"
#include "tests/engine/data/temp_folder.h"
#include "tests/engine/uneven_gpt2.h"

#include "tests/catch.h"

namespace shardline::padded_rows_test {
namespace {

using nlohmann::json;

constexpr int64_t kLongest = 12;
const std::vector<int64_t> kLengths = {9, 3, 12, 2,
                                       7, 5, 4,  11};  // of the samples of a step, which has two microbatches

struct Layout {
  int p, t;
  std::string optimize, recompute;
};

Config config_of(const std::string& family, const std::string& task, const Layout& on) {
  json model = family == "gpt2" ? uneven_gpt2(61, 0.1) : uneven_encoder(family, 0.1);
  model[family == "gpt2" ? "n_layer" : "num_hidden_layers"] = 2;
  if (task != kCausalLm) model["num_labels"] = 3;
  json file = {{"task", task},
               {"model", {{"config", model}}},
               {"data",
                {{"train", "unused"},
                 {"tokenizer", "bytes"},
                 {"sequence_length", kLongest},
                 {"completion_only_loss", task == kCausalLm}}},
               {"training", {{"global_batch_size", kLengths.size()}}},
               {"smp_options",
                {{"pipeline_parallel_degree", on.p},
                 {"tensor_parallel_degree", on.t},
                 {"tensor_parallel_layers", {{{"pattern", "*"}, {"split", true}}}},
                 {"microbatches", 2},
                 {"optimize", on.optimize},
                 {"activation_checkpointing", on.recompute}}},
               {"runtime", {{"communicator", "threads"}}},
               {"output_dir", "unused"}};
  return parse_config(file.dump(), "padded rows test");
}

enum class Padding { none, left, right, counted };  // counted: the mask has no zeros, so padding counts

// The rows of a step, as transformers' tokenizers make them.
std::vector<json> rows_of(const std::string& task, Padding padding) {
  std::vector<json> rows;
  for (const int64_t length : kLengths) {
    std::vector<int> ids, labels;
    for (int64_t i = 0; i < length; ++i) {
      ids.push_back(static_cast<int>((rows.size() * 7 + i * 3) % 61));
      labels.push_back(task == kCausalLm ? ids.back() : static_cast<int>(i % 3));
    }
    std::vector<int> mask(ids.size(), 1);
    const size_t added = padding == Padding::none ? 0 : kLongest - length;
    const auto pad = [&](std::vector<int>& values, int filler) {
      values.insert(padding == Padding::left ? values.begin() : values.end(), added, filler);
    };
    pad(ids, 60);
    pad(labels, kNoLabel);
    pad(mask, padding == Padding::counted);
    rows.push_back({{"input_ids", ids}, {"attention_mask", mask}});
    rows.back()["labels"] = task == kSequenceClassification ? json(rows.size() % 3) : json(labels);
  }
  return rows;
}

// What a step does on all ranks together.
struct StepFacts {
  std::vector<std::vector<int64_t>> kept;  // by rank: bytes after each instruction
  std::vector<std::string> operations;     // messages and collectives with their sizes, sorted
  double loss = 0, norm = 0;
  int64_t tokens = 0;
};

StepFacts train_a_step(const Config& config, const PlannedModel& planned, const std::shared_ptr<const ExampleSet>& set,
                       int ranks) {
  StepFacts facts;
  facts.kept.resize(ranks);
  const uint64_t first = flight_ring().next_ticket();
  std::mutex mutex;
  run_ranks(ranks, [&](const CommunicatorPtr& world) {
    const RankGroups groups = make_rank_groups(planned.plan.layout.mesh(), world, world);
    RankTrainer trainer({config, planned.plan, planned.model, groups, at::kCPU}, 1);
    fill_parameters(config.model, planned.model, 1, trainer.parameters());
    ExampleSource data({set, Selection(0, set->size())},
                       {.global_batch = static_cast<int64_t>(kLengths.size()), .shuffle = false});
    const StepMetrics metrics = trainer.train_step(data, 1);
    const std::scoped_lock lock(mutex);
    for (const auto& record : trainer.last_step().instructions)
      facts.kept[world->rank()].push_back(record.activation_bytes);
    facts.loss = metrics.loss, facts.norm = metrics.grad_norm, facts.tokens = metrics.tokens;
  });
  const auto records = flight_ring().records();
  CHECK(records.front().ticket <= first);  // none of the step's is lost
  for (const FlightRecord& record : records)
    if (record.ticket >= first)
      facts.operations.push_back(
          cat(record.rank, ' ', record.op, ' ', record.group, ' ', record.what, ' ', record.elements));
  std::ranges::sort(facts.operations);
  return facts;
}

int64_t most_kept(const StepFacts& facts) {
  int64_t most = 0;
  for (const auto& of_rank : facts.kept) most = std::max(most, *std::ranges::max_element(of_rank));
  return most;
}

}  // namespace

TEST_CASE("padded rows of data keep, send and compute the same as without padding") {
  const int64_t tokens = std::accumulate(kLengths.begin(), kLengths.end(), int64_t{0});
  for (const auto& [family, task] : {std::pair{"bert", kSequenceClassification},
                                     {"bert", kTokenClassification},
                                     {"roberta", kSequenceClassification},
                                     {"gpt2", kCausalLm}})
    for (const Layout& on : {Layout{2, 1, "speed", "none"},
                             {1, 2, "memory", "none"},
                             {2, 2, "memory", "each"},
                             {2, 2, "speed", "selective"}}) {
      CAPTURE(family, task, on.p, on.t, on.optimize, on.recompute);
      const Config config = config_of(family, task, on);
      const PlannedModel planned = plan_model(config, on.p * on.t);
      const auto task_of_rows = make_task(config, planned.model.head, load_tokenizer("bytes"));
      const TempFolder folder;
      const auto step = [&](Padding padding) {
        ExampleWriter writer(task_of_rows->shape());
        int64_t number = 0;
        for (const json& row : rows_of(task, padding)) {
          RowExamples made = task_of_rows->encode({.columns = row, .where = "a row"}, true);
          REQUIRE(made.examples.size() == 1);
          made.examples[0].row = number++;
          writer.add(made.examples[0]);
        }
        const auto path = folder.path() / cat("examples.", static_cast<int>(padding));
        writer.write(path, std::string(32, '0'), {.rows = number});
        return train_a_step(config, planned, std::make_shared<const ExampleSet>(path), on.p * on.t);
      };
      const StepFacts plain = step(Padding::none);
      CHECK(plain.tokens == tokens);
      for (const Padding padding : {Padding::left, Padding::right}) {
        const StepFacts padded = step(padding);
        CHECK(padded.kept == plain.kept);
        CHECK(padded.operations == plain.operations);
        CHECK(padded.loss == plain.loss);
        CHECK(padded.norm == plain.norm);
        CHECK(padded.tokens == plain.tokens);
      }
      const StepFacts counted = step(Padding::counted);  // what padding would cost
      CHECK(counted.tokens == std::ssize(kLengths) * kLongest);
      CHECK(most_kept(counted) > 1.5 * most_kept(plain));
      CHECK(counted.operations != plain.operations);
    }
}

}  // namespace shardline::padded_rows_test
