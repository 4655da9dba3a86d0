#include "engine/study/study_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "core/error.h"
#include "engine/observe/format.h"
#include "engine/page/chart.h"
#include "engine/page/heat_map.h"
#include "engine/page/svg_text.h"
#include "engine/study/design_map.h"
#include "engine/study/published.h"
#include "engine/study/statistics.h"
#include "engine/study/study_table.h"

namespace shardline {
namespace {

constexpr int kPointsOfBand = 40;

using Field = std::optional<Spread> StudyRow::*;

// A unit for times of about this length, and its seconds.
struct TimeUnit {
  const char* name;
  double seconds;
};
TimeUnit unit_for(const StudyTable& table) {
  double longest = 0;
  for (const auto& row : table.rows)
    if (row.job_seconds) longest = std::max(longest, row.job_seconds->mean);
  return longest >= 7200 ? TimeUnit{"hours", 3600} : longest >= 180 ? TimeUnit{"minutes", 60} : TimeUnit{"seconds", 1};
}

// The name of a row's line in figures over devices: all settings except the machines.
std::string line_of_row(const StudyTable& table, const StudyRow& row) {
  std::string name;
  for (const auto& key : table.columns) {
    constexpr std::array kNotInNames = {"devices", "nodes", "cluster"};
    if (std::ranges::find(kNotInNames, key) != kNotInNames.end()) continue;
    if (const auto text = factor_text(row.first->factors, key); !text.empty())
      name += cat(name.empty() ? "" : ", ", key, " ", text);
  }
  const std::string kind = to_string(row.first->kind);
  return name.empty() ? kind : kind == "measured" ? name : cat(name, " (", kind, ")");
}

ChartPoint point_of(const StudyRow& row, double x, const Spread& spread, double unit, const std::string& tip) {
  return {x, spread.mean / unit, spread.low() / unit, spread.high() / unit, cat(row.first->group, ": ", tip)};
}

std::string over_devices(const StudyTable& table, const std::string& title, const std::string& y_label, Field field,
                         double unit) {
  std::map<std::string, ChartSeries> lines;
  std::vector<std::string> order;
  for (const auto& row : table.rows) {
    const auto& spread = row.*field;
    if (!spread) continue;
    const std::string name = line_of_row(table, row);
    if (!lines.contains(name)) {
      order.push_back(name);
      lines[name] = {.name = name,
                     .style = ChartSeries::Style::line_with_marks,
                     .colour = order.size() - 1,
                     .dashed = row.first->kind == RunKind::planned};
    }
    lines[name].points.push_back(point_of(row, row.first->devices, *spread, unit,
                                          cat(tick_text(spread->mean / unit), " on ", row.first->devices, " devices")));
  }
  Chart chart{.title = title, .x_label = "devices", .y_label = y_label, .log_x = true, .y_from_zero = true};
  for (const auto& name : order) {
    std::ranges::stable_sort(lines[name].points, {}, &ChartPoint::x);
    chart.series.push_back(lines[name]);
  }
  if (order.size() == 1) chart.series.front().name.clear();
  return chart_svg(chart);
}

void add_metric(HtmlPage& page, const StudyTable& table, const std::vector<RunRecord>& records) {
  Points points;
  ChartSeries marks{.name = table.metric, .style = ChartSeries::Style::marks, .points = {}};
  for (const auto& record : records) {
    const auto found = record.metrics.find(table.metric);
    if (record.kind == RunKind::failed || found == record.metrics.end()) continue;
    points.emplace_back(record.global_batch, found->second);
    marks.points.push_back({points.back().first, points.back().second, 0, 0, cat(record.name, ": ", found->second)});
  }
  if (points.empty()) return;
  Chart chart{.title = table.metric + " over global batch", .x_label = "samples of a step", .y_label = table.metric};
  std::string caption = "One mark for each run.";
  if (const auto line = fitted_line(points)) {
    const auto [least, most] = std::ranges::minmax_element(points);
    ChartSeries band{.name = "95 % band", .style = ChartSeries::Style::band, .colour = 1, .points = {}};
    ChartSeries fit{.name = "least squares", .colour = 1, .points = {}};
    for (int i = 0; i <= kPointsOfBand; ++i) {
      const double x = least->first + (most->first - least->first) * i / kPointsOfBand;
      fit.points.push_back({x, line->at(x)});
      if (const auto half = line->half_band(x))
        band.points.push_back({x, line->at(x), line->at(x) - *half, line->at(x) + *half});
    }
    if (!band.points.empty()) chart.series.push_back(band);
    chart.series.push_back(fit);
    caption += cat(" Line: ", tick_text(line->intercept()), line->slope() < 0 ? " - " : " + ",
                   tick_text(std::abs(line->slope())), " x samples",
                   band.points.empty() ? "." : "; the band contains the true line with a probability of 95 %.");
  }
  chart.series.push_back(marks);
  page.figure(chart_svg(chart), caption);
}

std::string pair_text(const DesignMap& map, const std::optional<DesignMap::Pair>& pair) {
  return pair ? cat(map.names[pair->one], " and ", map.names[pair->other], ", ", format_decimals(pair->coefficient, 3))
              : "none";
}

void add_map(HtmlPage& page, const StudyTable& table) {
  const DesignMap map = design_map(table);
  if (map.names.size() < 2) return;
  page.figure(heat_map_svg("Correlation of the design", map.names, map.cells),
              cat("Pearson's coefficients over the rows of the table. Largest between two chosen quantities: ",
                  pair_text(map, map.largest_of_design()),
                  "; between a chosen and a resulting one: ", pair_text(map, map.largest_of_results()), "."));
}

// Adds the runs of a kind, and their front, to a chart of time against cost. Returns what the caption says about them.
std::string add_front(Chart& chart, const StudyTable& table, RunKind kind, const TimeUnit& unit) {
  Points points;
  const bool is_planned = kind == RunKind::planned;
  ChartSeries marks{.name = to_string(kind),
                    .style = ChartSeries::Style::marks,
                    .colour = is_planned ? size_t{2} : size_t{0},
                    .points = {}};
  for (const auto& row : table.rows) {
    if (row.first->kind != kind || !row.job_seconds || !row.cost) continue;
    points.emplace_back(row.job_seconds->mean / unit.seconds, row.cost->mean);
    marks.points.push_back({points.back().first, points.back().second, 0, 0, row.first->group});
  }
  if (points.empty()) return "";
  ChartSeries front{
      .name = cat("Pareto front, ", to_string(kind)), .colour = marks.colour + 1, .dashed = is_planned, .points = {}};
  std::string names;
  for (const size_t i : pareto_front(points)) {
    front.points.push_back(marks.points[i]);
    names += cat(names.empty() ? "" : "; ", marks.points[i].tip);
  }
  if (front.points.size() > 1) chart.series.push_back(front);
  chart.series.push_back(marks);
  if (front.points.size() == 1)
    return cat(" No ", to_string(kind), " run is faster or cheaper than the only one on the Pareto front: ", names,
               ".");
  return cat(" No ", to_string(kind), " run is both faster and cheaper than one of the front: ", names, ".");
}

void add_fronts(HtmlPage& page, const StudyTable& table, const TimeUnit& unit) {
  Chart chart{.title = "Time against cost",
              .x_label = cat("job time, ", unit.name),
              .y_label = table.currency.empty() ? "cost" : "cost, " + table.currency,
              .y_from_zero = true,
              .series = {}};
  std::string caption;
  for (const RunKind kind : {RunKind::measured, RunKind::planned}) caption += add_front(chart, table, kind, unit);
  if (!chart.empty()) page.figure(chart_svg(chart), caption.substr(std::min<size_t>(1, caption.size())));
}

}  // namespace

void add_study(HtmlPage& page, const StudySummary& summary) {
  const StudyTable table = study_table(summary.records, summary.metric, summary.prices.currency);
  const TimeUnit unit = unit_for(table);
  page.heading("Runs");
  page.paragraph(
      "Repeats are shown as their mean +- half the interval that contains the true mean with a probability of 95 % "
      "(Student's "
      "t). Planned runs were not run: their times are predictions, without start, evaluation and saving.");
  page.table(table_cells(table));
  std::vector<std::string> failures;
  for (const auto& record : summary.records)
    if (!record.error.empty()) failures.push_back(cat(record.name, " failed: ", record.error));
  if (!failures.empty()) page.items(failures);
  if (const auto published = published_cells(published_rows(summary.records, summary.prices)); !published.empty()) {
    page.heading("Compared with published results");
    if (!summary.source.empty()) page.paragraph(summary.source);
    page.table(published);
  }
  page.heading("Figures");
  if (std::ranges::any_of(table.rows, [](const auto& row) { return row.job_seconds && row.job_seconds->count > 1; }))
    page.paragraph(
        "Vertical lines are the intervals of the means; a line that reaches an edge of its figure is cut there.");
  const auto figure = [&](const std::string& svg) {
    if (!svg.empty()) page.figure(svg, "");
  };
  figure(over_devices(table, "Time over devices", cat("job time, ", unit.name), &StudyRow::job_seconds, unit.seconds));
  figure(over_devices(table, "Throughput over devices", "samples/s", &StudyRow::samples_per_second, 1));
  figure(
      over_devices(table, "Cost over devices", table.currency.empty() ? "cost" : table.currency, &StudyRow::cost, 1));
  add_metric(page, table, summary.records);
  add_fronts(page, table, unit);
  add_map(page, table);
}

std::string study_page(const StudySummary& summary) {
  HtmlPage page("Study " + summary.name);
  add_study(page, summary);
  return std::move(page).text();
}

}  // namespace shardline
