#include "engine/plan/replica_traffic.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "tests/engine/uneven_gpt2.h"

#include "tests/catch.h"

namespace shardline::replica_traffic_test {
namespace {

Config config_of(nlohmann::json smp, int replicas) {
  smp["tensor_parallel_degree"] = 1;
  const nlohmann::json file = {{"model", {{"config", uneven_gpt2(61, 0)}}},
                               {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 9}}},
                               {"training", {{"global_batch_size", 16}}},
                               {"smp_options", smp},
                               {"mpi_options", {{"processes_per_host", replicas}}},
                               {"output_dir", "unused"}};
  return parse_config(file.dump(), "traffic test");
}

struct Told {
  std::string reduced, gathered;
};
Told told(const nlohmann::json& smp, int replicas, const std::vector<int>& host_of) {
  const Config config = config_of(smp, replicas);
  const auto planned = plan_model(config, replicas);
  return {reduction_text(config, planned.plan), gathering_text(planned.plan, host_of, at::kCPU)};
}

using Catch::Contains;

TEST_CASE("one replica reduces and gathers nothing") {
  const Told nothing = told({}, 1, {0});
  CHECK((nothing.reduced.empty() && nothing.gathered.empty()));
}

TEST_CASE("the text about gradients has the number of segments, the smallest, the median and the largest") {
  const Config config = config_of({{"ddp", true}}, 2);
  const auto planned = plan_model(config, 2);
  const auto text = reduction_text(config, planned.plan);
  CAPTURE(text);
  CHECK_THAT(text, Contains(" segments, ") && Contains(" to ") && Contains(", median ") &&
                       Contains("each overlaps with the backward pass of earlier layers"));
  nlohmann::json zero3 = {
      {"sharded_data_parallel_degree", 2}, {"microbatches", 4}, {"sdp_param_persistence_threshold", 0}};
  CHECK_THAT(told(zero3, 2, {}).reduced, Contains("in each of 4 microbatches"));
  zero3["sdp_param_persistence_threshold"] = 1000000;  // larger than every parameter of the model
  CHECK_THAT(told(zero3, 2, {}).reduced, !Contains("in each of"));
  CHECK_THAT(told(zero3, 2, {0, 1}).gathered, Contains("none") && Contains("sdp_param_persistence_threshold"));
}

TEST_CASE("the text about gathering states whether it takes two steps, and why") {
  const nlohmann::json zero3 = {{"sharded_data_parallel_degree", 4}, {"sdp_param_persistence_threshold", 0}};
  CHECK(told({{"ddp", true}}, 4, {0, 0, 1, 1}).gathered == "");
  CHECK_THAT(told(zero3, 4, {}).gathered, Contains("one step") && Contains("on one host"));
  CHECK_THAT(told(zero3, 4, {0, 0, 0, 0}).gathered, Contains("one step") && Contains("on one host"));
  CHECK(told(zero3, 4, {0, 0, 2, 2}).gathered == "in two steps: between 2 hosts, then among 2 ranks of each");
  CHECK(told(zero3, 4, {0, 1, 0, 1}).gathered == "in two steps: between 2 hosts, then among 2 ranks of each");
  CHECK_THAT(told(zero3, 4, {0, 0, 0, 3}).gathered, Contains("one step") && Contains("different numbers"));
  CHECK_THAT(told(zero3, 4, {0, 1, 2, 3}).gathered, Contains("one step") && Contains("4 hosts, one on each"));
  nlohmann::json off = zero3;
  off["sdp_hierarchical_allgather"] = false;
  CHECK_THAT(told(off, 4, {0, 0, 2, 2}).gathered, Contains("one step") && Contains("is false"));
  const nlohmann::json mics = {{"sharded_data_parallel_degree", 2}, {"sdp_param_persistence_threshold", 0}};
  CHECK_THAT(told(mics, 4, {0, 0, 2, 2}).gathered, Contains("one step") && Contains("on one host"));
  CHECK_THAT(told(mics, 8, {0, 1, 2, 3, 4, 5, 6, 7}).gathered, Contains("2 hosts, one on each"));
}

TEST_CASE("frozen parameters are gathered, too") {
  Config config = config_of({{"sharded_data_parallel_degree", 2}, {"sdp_param_persistence_threshold", 1000}}, 2);
  config.training.trainable = {"head.ln_f.*"};  // below the threshold
  CHECK_THAT(gathering_text(plan_model(config, 2).plan, {0, 0}, at::kCPU), Contains("one step"));
}

}  // namespace
}  // namespace shardline::replica_traffic_test
