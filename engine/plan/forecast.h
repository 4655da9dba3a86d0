// The cost of a plan on a cluster, before anything runs: time, memory of every rank, money, disk space.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "partitioner/cost/step_estimate.h"
#include "partitioner/memory/memory_fit.h"

namespace shardline {

struct Forecast {
  Cluster cluster;
  Precision precision = Precision::fp32;
  StepEstimate step;
  std::vector<MemoryBytes> memory;           // by rank
  MemoryFit fit;                             // whether the stage that needs the most fits
  std::optional<MemoryAdvice> advice;        // if the plan does not fit and something would help
  std::vector<std::string> advice_settings;  // what to set in the config to follow the advice
  int64_t parameters = 0;
  double flops_per_step = 0;
  int64_t total_steps = 0;  // 0: num_train_epochs determines it, so it is known only with the data
  double total_seconds = 0, node_hours = 0;
  std::optional<double> cost, spot_cost;  // unset if the cluster states no prices
  double disk_bytes = 0;                  // size of the saved model
  // Bytes in host memory, as the average over ranks: the copy of a checkpoint that is being written (with
  // save_on_each_node one copy for each host, as if hosts did not share the directory), and the most that the messages
  // between ranks need for it; 0 for a single rank.
  double snapshot_bytes = 0, exchange_bytes = 0;

  bool fits(size_t rank) const { return memory[rank].total() <= cluster.memory_bytes; }
  double most_host_bytes() const;  // on the node whose ranks have the most in host memory
  // Whether the hosts have room for what is offloaded, as far as the cluster states their memory.
  bool fits_hosts() const { return cluster.host_memory_bytes == 0 || most_host_bytes() <= cluster.host_memory_bytes; }
};

// Simulates the plan's instruction lists, with the plan's chunks, at prices for `machines`.
StepEstimate forecast_step(const Machines& machines, const Plan& plan);

Forecast make_forecast(const Config& config, const Machines& machines, const Plan& plan);

// An SVG of the predicted busy times: a row of boxes for each stage, in seconds.
std::string forecast_picture(const Machines& machines, const Plan& plan);

// Adds a forecast's keys to those of plan_json: step_seconds, bubble_fraction, tokens_per_second, ..., and to each
// entry of `ranks` memory_bytes and fits, and snapshot_bytes and exchange_bytes if checkpoints are saved. If anything
// is offloaded to host memory, also `hosts` and host_bytes of ranks.
void add_forecast(nlohmann::json& plan, const Forecast& forecast);
std::string forecast_text(const Forecast& forecast, const Plan& plan);

}  // namespace shardline
