#include "engine/plan/report/candidates_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/config/rules/shell_words.h"
#include "engine/observe/format.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr size_t kShownLosers = 20;

// The word for a layout that fits but is not among the best.
const char* worse(Ranking ranking) {
  return ranking == Ranking::time ? "slower" : ranking == Ranking::cost ? "more expensive" : "larger";
}

double dollars_per_step(const Candidates& candidates, const StepEstimate& step, int nodes) {
  return nodes * candidates.hourly_price * step.seconds / 3600;
}

json layout_json(const Layout& layout) {
  return {{"replicas", layout.replicas},
          {"pipeline", layout.pipeline},
          {"tensor", layout.tensor},
          {"placement", layout.placement},
          {"schedule", layout.schedule},
          {"chunks_per_stage", layout.chunks_per_stage},
          {"microbatch_size", layout.microbatch_size},
          {"microbatches", layout.microbatches},
          {"recompute", recompute_text(layout)},
          {"sequence_parallel", layout.sequence_parallel},
          {"offload", scope_text(layout.offload)},
          {"sharded", static_cast<int>(layout.sharded())},
          {"sharding_degree", layout.sharding.degree},
          {"text", to_string(layout)}};
}

std::string tenths(double value) {
  std::ostringstream text;
  text.setf(std::ios::fixed);
  text.precision(1);
  text << value;
  return text.str();
}

}  // namespace

json candidates_json(const Candidates& candidates) {
  json list = json::array();
  const auto& [best, reasons, losers, seconds] = candidates.found;
  for (size_t place = 0; place < best.size(); ++place) {
    const auto& planned = best[place];
    list.push_back({{"place", place + 1},
                    {"layout", layout_json(planned.layout)},
                    {"step_seconds", planned.step.seconds},
                    {"samples_per_second", planned.step.samples_per_second},
                    {"tokens_per_second", planned.step.tokens_per_second},
                    {"bubble_fraction", planned.step.bubble_fraction},
                    {"model_flops_utilization", planned.step.utilization},
                    {"memory_bytes", planned.fit.bytes},
                    {"hourly_cost", planned.step.hourly_cost},
                    {"fits", planned.fit.fits},
                    {"reason", place == 0 ? json() : json(reasons[place])},
                    {"settings", candidates.settings[place]}});
  }
  for (size_t i = 0; i < std::min(kShownLosers, losers.size()); ++i)
    list.push_back({{"place", nullptr}, {"layout", layout_json(losers[i].layout)}, {"reason", losers[i].reason}});
  return list;
}

std::string candidates_text(const Candidates& candidates, const Layout& own, const Forecast& forecast) {
  const auto& [best, reasons, losers, seconds] = candidates.found;
  const auto price = [&](const Layout& layout, const StepEstimate& step) {
    if (candidates.hourly_price == 0) return std::string("-");
    return tenths(1000 * dollars_per_step(candidates, step, forecast.cluster.nodes_of(layout.world())));
  };
  std::vector<TableRow> rows;
  const auto add = [&](const std::string& place, const Layout& layout, const StepEstimate& step, double bytes,
                       const std::string& why) {
    rows.push_back({place, to_string(layout), format_duration(step.seconds), tenths(step.samples_per_second),
                    tenths(100 * step.utilization) + " %", tenths(100 * step.bubble_fraction) + " %",
                    format_bytes(bytes), price(layout, step), why});
  };
  for (size_t place = 0; place < best.size(); ++place)
    add(std::to_string(place + 1), best[place].layout, best[place].step, best[place].fit.bytes,
        place == 0 ? "the best" : reasons[place]);
  add("config", own, forecast.step, forecast.fit.bytes, forecast.fit.fits ? "" : "does not fit");
  const auto fitting = std::ranges::count(losers, true, &Loser::fits);
  std::string text = table({"place", "layout", "step", "samples/s", "utilization", "outside passes", "memory",
                            "price/1000 steps", "why not first"},
                           rows);
  text += cat(best.size() + losers.size(), " layouts in ", format_duration(seconds), ": ", best.size(), " ranked, ",
              fitting, " ", worse(candidates.ranking), ", ", std::ssize(losers) - fitting, " that do not fit\n");
  if (best.empty())
    return text + cat("none fits",
                      losers.empty() ? ""
                                     : cat("; the closest: ", to_string(candidates.found.closest().layout), ": ",
                                           candidates.found.closest().reason),
                      "\n");
  text += "to use the best one:";
  for (const auto& setting : candidates.settings.front()) text += " --set " + shell_quoted(setting);
  if (candidates.settings.front().empty()) text += " no change to the config";
  return text + "\n";
}

}  // namespace shardline
