#include "engine/study/published.h"

#include <algorithm>

#include "core/error.h"
#include "engine/observe/format.h"

namespace shardline {
namespace {

std::string decimals(const std::optional<double>& value, int places) {
  return value ? format_decimals(*value, places) : "";
}

}  // namespace

CostRange cost_of_minutes(double minutes, int nodes, double hourly_price) {
  const double of_minute = nodes * hourly_price / 60;
  return {std::max(0.0, minutes - 0.5) * of_minute, (minutes + 0.5) * of_minute};
}

std::vector<PublishedRow> published_rows(const std::vector<RunRecord>& records, const Prices& prices) {
  std::vector<PublishedRow> rows;
  for (const auto& record : records) {
    const PublishedResult& published = record.published;
    if (!published.minutes && !published.cost && !published.metric) continue;
    PublishedRow row{.run = &record};
    const auto price = prices.of(record.machine);
    if (published.minutes && *published.minutes > 0 && record.kind != RunKind::failed)
      row.time_ratio = record.job_seconds / (60 * *published.minutes);
    if (published.minutes && price) row.cost = cost_of_minutes(*published.minutes, record.nodes, *price);
    row.is_misprint = row.cost && published.cost && !row.cost->contains(*published.cost);
    rows.push_back(row);
  }
  return rows;
}

std::vector<std::vector<std::string>> published_cells(const std::vector<PublishedRow>& rows) {
  if (rows.empty()) return {};
  const bool has_metric =
      std::ranges::any_of(rows, [](const auto& row) { return row.run->published.metric.has_value(); });
  std::vector<std::vector<std::string>> cells = {{"run", "machine", "nodes", "minutes here", "published minutes",
                                                  "ratio", "published cost", "cost of these minutes", ""}};
  if (has_metric) cells.front().push_back("published metric");
  for (const auto& row : rows) {
    const RunRecord& run = *row.run;
    const bool has_time = run.kind != RunKind::failed;
    cells.push_back({run.name, run.machine, std::to_string(run.nodes),
                     has_time ? format_decimals(run.job_seconds / 60, 1) : "", decimals(run.published.minutes, 0),
                     decimals(row.time_ratio, 2), decimals(run.published.cost, 2),
                     row.cost ? cat(format_decimals(row.cost->low, 2), " to ", format_decimals(row.cost->high, 2)) : "",
                     row.is_misprint ? "misprint: the cost does not follow from the minutes" : ""});
    if (has_metric) cells.back().push_back(decimals(run.published.metric, 4));
  }
  return cells;
}

}  // namespace shardline
