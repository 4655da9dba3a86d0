// The plan's peak of activations equals what a rank counts during training, and what the allocator counts
// independently.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"
#include "tests/case_sample.h"
#include "tests/engine/train/ones_source.h"
#include "tests/engine/uneven_gpt2.h"

#include "tests/catch.h"

namespace shardline::activation_plan_test {
namespace {

constexpr int64_t kSamples = 12, kLength = 9;

struct Choice {
  int p = 1, t = 1;
  std::string pipeline = "simple";
  nlohmann::json recompute = "none";
  std::string offload = "no";  // or a scope
  std::string optimize = "memory", dtype = "float32";
  double dropout = 0;
  std::string whole = "none";  // patterns, with | between them, of units that are not split over T
  bool gptj = false;
  std::vector<std::string> trained;  // patterns; empty: all
};

Config config_of(const Choice& c) {
  nlohmann::json file = {{"model", {{"config", c.gptj ? uneven_gptj(c.dropout) : uneven_gpt2(61, c.dropout)}}},
                         {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
                         {"training", {{"global_batch_size", kSamples}, {"trainable", c.trained}}},
                         {"smp_options",
                          {{"pipeline_parallel_degree", c.p},
                           {"tensor_parallel_degree", c.t},
                           {"microbatches", 6},
                           {"pipeline", c.pipeline},
                           {"optimize", c.optimize},
                           {"activation_checkpointing", c.recompute},
                           {"offload_activations", c.offload != "no"},
                           {"offload_scope", c.offload == "no" ? "checkpointed" : c.offload},
                           {"activation_loading_horizon", 2},
                           {"offload_path", std::filesystem::temp_directory_path().string()}}},
                         {"runtime", {{"dtype", c.dtype}, {"communicator", c.p * c.t == 1 ? "local" : "threads"}}},
                         {"output_dir", "unused"}};
  file["smp_options"]["tensor_parallel_layers"] = {{{"pattern", "*"}, {"split", true}}};
  std::istringstream patterns(c.whole == "none" ? "" : c.whole);
  for (std::string pattern; std::getline(patterns, pattern, '|');)
    file["smp_options"]["tensor_parallel_layers"].push_back({{"pattern", pattern}, {"split", false}});
  return parse_config(file.dump(), "activation test");
}

// The maximum over the ranks; every rank must count what the plan states for it.
int64_t planned_and_counted(const Choice& choice) {
  const Config config = config_of(choice);
  int64_t most = 0;
  const auto [source, machines, plan] = plan_model(config, choice.p * choice.t);
  run_ranks(choice.p * choice.t, [&](CommunicatorPtr world) {
    RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 1);
    fill_parameters(config.model, source, 1, trainer.parameters());
    OnesSource data(kSamples, kLength);
    trainer.accumulate_gradients(data, 1);
    const auto rank = static_cast<size_t>(world->rank());
    const int64_t counted = trainer.last_step().peak_activation_bytes;
    const int64_t told = plan.activation_bytes_by_rank[rank].kept;
    if (counted != told) throw RunError(cat("rank ", rank, " counted ", counted, " bytes, planned ", told));
    if (world->rank() == 0) most = counted;  // the first stage keeps most microbatches
  });
  return most;
}

const std::vector<std::string> kRecompute = {"none", "selective", "each", "group_2", "contiguous"};
const std::vector<std::string> kOffload = {"no", "checkpointed", "all"};

}  // namespace

TEST_CASE("the plan's peak of activations equals what every rank counts") {
  int choices = 0;
  CaseSample sample(5);
  const auto check = [&](const Choice& c) {
    ++choices;
    if (!sample.takes_next()) return;
    CAPTURE(c.p, c.t, c.pipeline, c.recompute, c.offload, c.optimize, c.dtype, c.dropout);
    CHECK_NOTHROW(planned_and_counted(c));
  };
  for (const char* pipeline : {"simple", "interleaved", "zb_h1", "zb_h2", "zbv", "dualpipev"})
    for (const auto& recompute : kRecompute)
      for (const auto& offload : kOffload) {
        const bool two_chunks = std::string(pipeline) == "zbv" || std::string(pipeline) == "dualpipev";
        for (const int p : {1, 2, 3})
          if (!two_chunks || p > 1) check({.p = p, .pipeline = pipeline, .recompute = recompute, .offload = offload});
        for (const auto& [t, optimize] : {std::pair{2, "memory"}, {3, "speed"}, {4, "memory"}})
          check({.p = 2,
                 .t = t,
                 .pipeline = pipeline,
                 .recompute = recompute,
                 .offload = offload,
                 .optimize = optimize,
                 .dtype = t == 2 ? "float64" : "float32",
                 .dropout = t == 3 ? 0.1 : 0.0});
        check({.p = 2,
               .t = 1,
               .pipeline = pipeline,
               .recompute = recompute,
               .offload = offload,
               .dtype = "float64",
               .dropout = 0.1});
      }
  CHECK(choices == (4 * 7 + 2 * 6) * 15);
}

TEST_CASE("the plan's peak of activations equals what every rank counts if units are whole on all T ranks") {
  CaseSample sample(4);
  for (const char* whole : {"*", "*attn", "*mlp", "embedding.*|head.*", "h.[024].attn|h.[0135].mlp"})
    for (const char* optimize : {"speed", "memory"})
      for (const int t : {2, 3, 4})
        for (const auto& [pipeline, recompute, offload, dropout] : {std::tuple{"interleaved", "none", "no", 0.1},
                                                                    {"zb_h2", "none", "no", 0.0},
                                                                    {"zb_h1", "selective", "no", 0.1},
                                                                    {"simple", "selective", "all", 0.0},
                                                                    {"interleaved", "group_2", "checkpointed", 0.0}}) {
          if (!sample.takes_next()) continue;
          CAPTURE(whole, optimize, t, pipeline, recompute, offload, dropout);
          CHECK_NOTHROW(planned_and_counted({.p = 2,
                                             .t = t,
                                             .pipeline = pipeline,
                                             .recompute = recompute,
                                             .offload = offload,
                                             .optimize = optimize,
                                             .dropout = dropout,
                                             .whole = whole}));
        }
}

TEST_CASE("the plan's peak of activations equals what every rank counts if some parameters are frozen") {
  using Patterns = std::vector<std::string>;
  CaseSample sample(3);
  for (const auto& trained : {Patterns{"head.ln_f.*"}, {"h.2.mlp.*", "h.4.ln_1.*"}, {"h.[34].attn.*"}, {"*bias"}})
    for (const auto& [pipeline, recompute, offload] : {std::tuple{"interleaved", "none", "no"},
                                                       {"simple", "none", "all"},
                                                       {"interleaved", "selective", "all"},
                                                       {"zb_h2", "none", "no"},
                                                       {"zb_h1", "group_2", "checkpointed"},
                                                       {"simple", "contiguous", "all"},
                                                       {"zbv", "each", "no"}})
      for (const auto& [p, t, optimize] :
           {std::tuple{1, 1, "speed"}, {2, 1, "speed"}, {3, 1, "speed"}, {2, 2, "memory"}, {2, 3, "speed"}}) {
        if (p == 1 && std::string(pipeline) == "zbv") continue;
        if (!sample.takes_next()) continue;
        CAPTURE(trained, pipeline, recompute, offload, p, t, optimize);
        CHECK_NOTHROW(planned_and_counted({.p = p,
                                           .t = t,
                                           .pipeline = pipeline,
                                           .recompute = recompute,
                                           .offload = offload,
                                           .optimize = optimize,
                                           .dropout = 0.1,
                                           .trained = trained}));
      }
}

TEST_CASE("the plan's peak of activations equals what every rank counts for GPT-J's parallel branches") {
  CaseSample sample(3);
  for (const auto& [pipeline, recompute, offload] : {std::tuple{"interleaved", "none", "no"},
                                                     {"zb_h2", "none", "no"},
                                                     {"zb_h1", "selective", "all"},
                                                     {"simple", "each", "checkpointed"},
                                                     {"zbv", "group_2", "no"}})
    for (const auto& [t, optimize, whole] : {std::tuple{1, "speed", "none"},
                                             {2, "memory", "none"},
                                             {3, "speed", "none"},
                                             {4, "memory", "none"},
                                             {2, "memory", "*"},
                                             {3, "memory", "*attn"},
                                             {2, "memory", "*mlp"},
                                             {2, "speed", "h.*"}})
      for (const double dropout : {0.0, 0.1}) {
        if (!sample.takes_next()) continue;
        CAPTURE(pipeline, recompute, offload, t, optimize, whole, dropout);
        CHECK_NOTHROW(planned_and_counted({.p = 2,
                                           .t = t,
                                           .pipeline = pipeline,
                                           .recompute = recompute,
                                           .offload = offload,
                                           .optimize = optimize,
                                           .dtype = dropout > 0 ? "float64" : "float32",
                                           .dropout = dropout,
                                           .whole = whole,
                                           .gptj = true}));
      }
}

// With one rank, nothing is sent to others: what the allocator holds in addition to the counted activations never
// changes.
TEST_CASE("counted bytes are all bytes that the process keeps between instructions") {
  use_caching_allocator();
  OnesSource data(kSamples, kLength);
  CaseSample sample(4);
  for (const char* pipeline : {"simple", "interleaved", "zb_h2"})
    for (const auto& recompute : kRecompute)
      for (const auto& offload : kOffload)
        for (const auto& [gptj, dropout] : {std::pair{false, 0.0}, {false, 0.1}, {true, 0.1}}) {
          if (!sample.takes_next()) continue;
          const Choice choice{
              .pipeline = pipeline, .recompute = recompute, .offload = offload, .dropout = dropout, .gptj = gptj};
          CAPTURE(pipeline, recompute, offload, dropout, gptj);
          const Config config = config_of(choice);
          run_ranks(1, [&](CommunicatorPtr world) {
            const auto [source, machines, plan] = plan_model(config, 1);
            RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU},
                                1);
            fill_parameters(config.model, source, 1, trainer.parameters());
            for (int step = 1; step <= 2; ++step) trainer.accumulate_gradients(data, step);
            const auto records = trainer.last_step().instructions;
            int64_t most = 0;
            std::set<int64_t> beside;
            for (const auto& record : records) {
              most = std::max(most, record.activation_bytes);
              beside.insert(record.process_bytes - record.activation_bytes);
            }
            CHECK(most > 0);
            CHECK(beside.size() == 1);
            CHECK(records.back().activation_bytes == 0);
          });
        }
}

TEST_CASE("recomputation and offloading reduce the kept bytes") {
  const auto peak = [](const nlohmann::json& recompute, const std::string& offload) {
    return planned_and_counted({.recompute = recompute, .offload = offload});
  };
  const int64_t tokens = kSamples / 6 * kLength, border = tokens * 40 * 4;
  const int64_t block = tokens * 4 * (4 * 40 + 4 + 3 * 40 + 40 + 5 + 2 * 70), head = tokens * 4 * (2 * 40 + 2);
  CHECK(peak("none", "no") == 6 * (6 * block + head));
  CHECK(peak("none", "checkpointed") == peak("none", "no"));
  CHECK(peak("selective", "no") == 6 * (6 * (block - tokens * 4 * (40 + 5)) + head));
  CHECK(peak("each", "no") == 6 * (6 * border + head) + block - border - head);  // the last block runs again
  CHECK(peak("contiguous", "no") < peak("group_2", "no") + 4 * block);
  CHECK(peak("contiguous", "checkpointed") < peak("contiguous", "no"));
  // Four microbatches of six are offloaded; the last two would have to come back within the horizon.
  CHECK(peak("none", "all") < peak("none", "no") * 3 / 5);
  CHECK(peak("each", "all") < peak("each", "no") / 2);
  CHECK(peak({{{"layers", "h.[0-2]"}, {"strategy", "contiguous"}}}, "no") < peak("none", "no"));
}

}  // namespace shardline::activation_plan_test
