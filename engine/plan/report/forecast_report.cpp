// A forecast as JSON and as tables.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/config/rules/shell_words.h"
#include "engine/observe/format.h"
#include "engine/plan/forecast.h"

namespace shardline {
namespace {

using nlohmann::json;

int64_t whole(double bytes) {
  return std::llround(bytes);
}

json bytes_json(const MemoryBytes& bytes) {
  json classes = {{"total", whole(bytes.total())}};
  for (const auto& [name, part] : kPlannedClasses) classes[name] = whole(bytes.*part);
  return classes;
}

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

std::string money(const std::optional<double>& cost, const std::optional<double>& spot) {
  if (!cost) return "no price in the cluster file";
  return "costs " + format_decimals(*cost, 2) +
         (spot ? cat(", or ", format_decimals(*spot, 2), " at the spot price") : "");
}

std::string run_text(const Forecast& f) {
  if (f.total_steps == 0)
    return "known only with the data, because num_train_epochs determines the steps; set training.max_steps to get it";
  return cat(f.total_steps, " steps in ", format_duration(f.total_seconds), ", ", format_decimals(f.node_hours, 2),
             " node hours, ", money(f.cost, f.spot_cost));
}

// Empty if nothing is offloaded to the host's memory, and no checkpoint is copied there.
std::string host_text(const Forecast& f, const Plan& plan) {
  double most = 0;
  for (const auto& memory : f.memory) most = std::max(most, memory.host);
  std::string text;
  if (most > 0) {
    const Layout& layout = plan.layout;
    text =
        cat("has ", layout.states_on_host ? "the optimizer's states" : "",
            layout.states_on_host && layout.offload.enabled ? " and " : "", layout.offload.enabled ? "activations" : "",
            ": up to ", format_bytes(most), " per rank, ", format_bytes(f.most_host_bytes()), " per node",
            f.cluster.host_memory_bytes > 0 ? cat(" of ", format_bytes(f.cluster.host_memory_bytes)) : "");
  }
  if (f.snapshot_bytes > 0)
    text +=
        cat(text.empty() ? "" : "; ", "copies a checkpoint before it is written: ", format_bytes(f.snapshot_bytes),
            " per rank, ", format_bytes(f.snapshot_bytes * f.memory.size() / f.cluster.nodes_of(f.memory.size())),
            " per node",
            f.exchange_bytes > 0 ? cat(", and up to ", format_bytes(f.exchange_bytes), " per rank for messages") : "");
  return text;
}

std::string fits_text(const Forecast& f) {
  if (f.fits_hosts()) return cat(f.fit.fits ? "yes: " : "NO: ", f.fit.why);
  return cat("NO: a host needs ", format_bytes(f.most_host_bytes()), " of ", format_bytes(f.cluster.host_memory_bytes),
             "; ", f.fit.why);
}

// A row for each stage: its rank with the most memory.
std::string memory_table(const Forecast& f, const Plan& plan) {
  const Mesh mesh = plan.layout.mesh();
  std::vector<TableRow> rows;
  for (int stage = 0; stage < mesh.p(); ++stage) {
    size_t most = 0;
    double total = -1;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const size_t i = rank;
      if (mesh.at(rank).p != stage || f.memory[i].total() <= total) continue;
      most = i;
      total = f.memory[i].total();
    }
    const auto& b = f.memory[most];
    TableRow& row = rows.emplace_back(TableRow{std::to_string(stage), cat("r", most)});
    for (const auto& memory_class : kPlannedClasses) row.push_back(format_bytes(b.*memory_class.bytes));
    row.insert(row.end(), {format_bytes(b.total()), format_percent(b.total() / f.cluster.memory_bytes),
                           f.fits(most) ? "yes" : "NO"});
  }
  TableRow header = {"stage", "rank"};
  for (const auto& memory_class : kPlannedClasses) header.push_back(memory_class.name);
  header.insert(header.end(), {"total", "of device", "fits"});
  return table(header, rows);
}

}  // namespace

void add_forecast(json& plan, const Forecast& f) {
  plan["cluster"] = {{"name", f.cluster.name},
                     {"nodes", f.cluster.nodes},
                     {"devices_per_node", f.cluster.devices_per_node},
                     {"device", f.cluster.device},
                     {"memory_bytes", f.cluster.memory_bytes}};
  plan["precision"] = to_string(f.precision);
  plan["step_seconds"] = f.step.seconds;
  plan["bubble_fraction"] = f.step.bubble_fraction;
  plan["tokens_per_second"] = f.step.tokens_per_second;
  plan["samples_per_second"] = f.step.samples_per_second;
  plan["model_flops_utilization"] = f.step.utilization;
  plan["seconds"] = {{"pipeline", f.step.pipeline_seconds},
                     {"reduction", f.step.reduction_seconds},
                     {"optimizer", f.step.optimizer_seconds}};
  plan["fits"] = f.fit.fits && f.fits_hosts();
  plan["memory"] = f.fit.why;
  if (f.advice) plan["advice"] = {{"text", f.advice->text}, {"settings", f.advice_settings}};
  for (size_t rank = 0; rank < f.memory.size(); ++rank) {
    plan["ranks"][rank]["memory_bytes"] = bytes_json(f.memory[rank]);
    if (f.memory[rank].host > 0) plan["ranks"][rank]["host_bytes"] = whole(f.memory[rank].host);
    if (f.snapshot_bytes > 0) plan["ranks"][rank]["snapshot_bytes"] = whole(f.snapshot_bytes);
    if (f.exchange_bytes > 0) plan["ranks"][rank]["exchange_bytes"] = whole(f.exchange_bytes);
    plan["ranks"][rank]["fits"] = f.fits(rank);
  }
  if (const double most = f.most_host_bytes(); most > 0)
    plan["hosts"] = {
        {"bytes", whole(most)},
        {"memory_bytes", f.cluster.host_memory_bytes > 0 ? json(whole(f.cluster.host_memory_bytes)) : json()},
        {"fits", f.fits_hosts()}};
  plan["parameters"] = f.parameters;
  plan["flops_per_step"] = f.flops_per_step;
  plan["total_steps"] = f.total_steps > 0 ? json(f.total_steps) : json();
  plan["total_seconds"] = f.total_steps > 0 ? json(f.total_seconds) : json();
  plan["node_hours"] = f.total_steps > 0 ? json(f.node_hours) : json();
  plan["cost"] = or_null(f.cost);
  plan["spot_cost"] = or_null(f.spot_cost);
  const int64_t disk_bytes = f.disk_bytes;
  plan["disk_bytes"] = disk_bytes;
}

std::string forecast_text(const Forecast& f, const Plan& plan) {
  std::ostringstream flops;
  flops.precision(3);
  flops << f.flops_per_step;
  std::vector<TableRow> rows = {
      {"cluster", cat(f.cluster.nodes, " x ", f.cluster.name, ", ", f.cluster.devices(), " x ", f.cluster.device,
                      " with ", format_bytes(f.cluster.memory_bytes), "; ", to_string(f.precision))},
      {"model", cat(format_count(f.parameters), " parameters, ", flops.str(), " FLOPs a step, ",
                    format_bytes(f.disk_bytes), " on disk")},
      {"step", cat(format_duration(f.step.seconds), ": ", format_decimals(f.step.samples_per_second, 1), " samples/s, ",
                   format_count(f.step.tokens_per_second), " tokens/s; ", format_percent(f.step.bubble_fraction),
                   " of it outside passes; ", format_percent(f.step.utilization), " of the peak rate")},
      {"run", run_text(f)},
      {"fits", fits_text(f)}};
  if (const auto host = host_text(f, plan); !host.empty()) rows.push_back({"host", host});
  if (!f.fit.fits) {
    std::string change = "nothing that keeps the global batch; use more ranks";
    if (f.advice) {
      change = f.advice->text;
      for (const auto& setting : f.advice_settings) change += cat("; --set ", shell_quoted(setting));
    }
    rows.push_back({"to fit", change});
  }
  if (!f.fits_hosts())
    rows.push_back({"to fit", "offload less, shard the optimizer's states, or use fewer ranks per node"});
  return table({}, rows) + "\n" + memory_table(f, plan);
}

}  // namespace shardline
