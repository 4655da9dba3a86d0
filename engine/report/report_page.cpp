#include "engine/report/report_page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "engine/observe/format.h"
#include "engine/page/bars.h"
#include "engine/page/chart.h"
#include "engine/report/timeline_rows.h"
#include "engine/report/worst_predictions.h"
#include "engine/run/median.h"

namespace shardline {
namespace {

constexpr size_t kMostCurves = 8, kMostRanksInBars = 16;

using StepValue = std::function<double(const StepMetrics&)>;

std::vector<double> values_of(const RunHistory& run, const StepValue& value) {
  std::vector<double> values;
  const auto& steps = run.metrics.steps;
  for (size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i)  // the first step is slower
    if (const double one = value(steps[i]); std::isfinite(one)) values.push_back(one);
  return values;
}

std::string median_text(const RunHistory& run, const StepValue& value,
                        const std::function<std::string(double)>& format) {
  const auto values = values_of(run, value);
  return values.empty() ? "" : format(median(values));
}

std::string significant(double value) {
  std::ostringstream text;
  text.precision(4);
  text << value;
  return text.str();
}

// The names of evaluation values, eval_loss left out.
std::vector<std::string> metric_names_of(const std::vector<RunHistory>& runs) {
  std::set<std::string> names;
  for (const auto& run : runs)
    for (const auto& evaluation : run.metrics.evaluations)
      for (const auto& [name, value] : evaluation.values) names.insert(name);
  names.erase("eval_loss");
  return {names.begin(), names.end()};
}

std::optional<double> value_in(const EvaluationMetrics& evaluation, const std::string& name) {
  const auto found = std::ranges::find(evaluation.values, name, &std::pair<std::string, double>::first);
  return found == evaluation.values.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::vector<std::string>> overview(const std::vector<RunHistory>& runs) {
  const auto metrics = metric_names_of(runs);
  std::vector<std::vector<std::string>> cells = {
      {"run", "layout", "steps", "loss", "eval_loss", "step", "tokens/s", "idle", "most memory of a rank"}};
  cells.front().insert(cells.front().end(), metrics.begin(), metrics.end());
  for (const auto& run : runs) {
    const auto& steps = run.metrics.steps;
    const auto& evaluations = run.metrics.evaluations;
    double most = 0;
    for (const auto& rank : run.metrics.most_memory) most = std::max<double>(most, rank.counted);
    const auto last_value = [&](const std::string& name) {
      const auto value = evaluations.empty() ? std::nullopt : value_in(evaluations.back(), name);
      return value ? significant(*value) : std::string();
    };
    cells.push_back({run.name, run.layout(), steps.empty() ? "0" : std::to_string(steps.back().step),
                     steps.empty() ? "" : cat(significant(steps.front().loss), " to ", significant(steps.back().loss)),
                     last_value("eval_loss"),
                     median_text(
                         run, [](const auto& s) { return s.step_seconds; }, format_duration),
                     median_text(
                         run, [](const auto& s) { return s.tokens_per_second; }, format_count),
                     median_text(
                         run, [](const auto& s) { return s.bubble_fraction; }, format_percent),
                     most > 0 ? format_bytes(most) : ""});
    for (const auto& name : metrics) cells.back().push_back(last_value(name));
  }
  return cells;
}

// Turns a table of one row into a table of names and values, which fits a phone.
std::vector<std::vector<std::string>> transposed(const std::vector<std::vector<std::string>>& cells) {
  std::vector<std::vector<std::string>> rows = {{"", ""}};
  for (size_t i = 1; i < cells[0].size(); ++i)  // the run's name is above
    if (!cells[1][i].empty()) rows.push_back({cells[0][i], cells[1][i]});
  return rows;
}

ChartPoint at_step(double step, double value) {
  return {step, value};
}

// A chart with a line for each run.
Chart chart_of_steps(const std::vector<RunHistory>& runs, const std::string& title, const std::string& y_label,
                     const StepValue& value) {
  Chart chart{.title = title, .x_label = "step", .y_label = y_label, .series = {}};
  for (size_t i = 0; i < std::min(runs.size(), kMostCurves); ++i) {
    ChartSeries series{.name = runs.size() > 1 ? runs[i].name : "", .colour = i, .points = {}};
    for (const auto& step : runs[i].metrics.steps) series.points.push_back(at_step(step.step, value(step)));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// Adds the values of evaluations, with marks.
void add_evaluations(Chart& chart, const std::vector<RunHistory>& runs, const std::string& name, bool with_name) {
  for (size_t i = 0; i < std::min(runs.size(), kMostCurves); ++i) {
    ChartSeries series{.name = with_name ? (runs.size() > 1 ? runs[i].name : name) : "",
                       .style = ChartSeries::Style::line_with_marks,
                       .colour = runs.size() > 1 ? i : chart.series.size(),
                       .dashed = !with_name || runs.size() == 1,
                       .points = {}};
    for (const auto& evaluation : runs[i].metrics.evaluations)
      if (const auto value = value_in(evaluation, name)) series.points.push_back(at_step(evaluation.step, *value));
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
}

// Says what solid and dashed lines show, because the legend of several runs only names the runs.
std::string legend_of_losses(const Chart& chart) {
  bool has_values = false, has_lines = false;
  for (const ChartSeries& series : chart.series) {
    has_values = has_values || series.dashed;
    has_lines = has_lines || (series.dashed && series.points.size() > 1);
  }
  if (!has_values) return "";
  return cat("Solid: training steps; ", has_lines ? "dashed" : "dots", ": validation data.");
}

void add_figure(HtmlPage& page, const Chart& chart, const std::string& caption = "") {
  if (const std::string svg = chart_svg(chart); !svg.empty()) page.figure(svg, caption);
}

void add_planned_bubble(Chart& chart, const RunHistory& run) {
  const auto planned = run.planned_bubble();
  const auto& steps = run.metrics.steps;
  if (!planned || steps.empty()) return;
  chart.series.front().name = "measured";
  chart.series.push_back({.name = "predicted by the schedule, with equal costs",
                          .colour = 1,
                          .dashed = true,
                          .points = {at_step(steps.front().step, *planned), at_step(steps.back().step, *planned)}});
}

// All ranks; if there are many, those that need the most.
std::vector<size_t> ranks_in_bars(const std::vector<RankMemory>& measured) {
  std::vector<size_t> ranks(measured.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] = rank;
  if (ranks.size() <= kMostRanksInBars) return ranks;
  std::ranges::stable_sort(ranks, std::greater(), [&](size_t rank) { return measured[rank].counted; });
  ranks.resize(kMostRanksInBars);
  std::ranges::sort(ranks);
  return ranks;
}

void add_memory(HtmlPage& page, RunHistory& run) {
  const auto& measured = run.metrics.most_memory;
  if (std::ranges::none_of(measured, [](const RankMemory& rank) { return rank.counted > 0; })) return;
  const auto planned = planned_memory(run);
  Bars bars{.title = "Memory of tensors by rank", .parts = {}, .rows = {}, .format = format_bytes};
  for (const auto& one : kPlannedClasses) bars.parts.emplace_back(one.name);
  bars.parts.emplace_back("measured, at most");
  std::string caption = "The most that all tensors of a rank took at once; the plan is for the longest samples.";
  double worst = 0;
  for (const size_t rank : ranks_in_bars(measured)) {
    if (planned && rank < planned->size()) {
      BarRow row{cat("rank ", rank, " plan"), {}};
      for (const auto& one : kPlannedClasses) row.parts.push_back((*planned)[rank].*one.bytes);
      bars.rows.push_back(std::move(row));
      const double counted = measured[rank].counted;
      if (counted > 0) worst = std::max(worst, std::abs((*planned)[rank].total() / counted - 1));
    }
    BarRow row{cat("rank ", rank), std::vector<double>(bars.parts.size())};
    row.parts.back() = measured[rank].counted;
    bars.rows.push_back(std::move(row));
  }
  if (planned) caption += cat(" The plan differs from the measured total by ", format_percent(worst), " at most.");
  page.heading("Memory");
  page.figure(bars_svg(bars), caption);
}

void add_predictions(HtmlPage& page, RunHistory& run) {
  const auto report = read_predictions(run);
  if (!report || report->worst.empty()) return;
  page.heading("Predictions");
  page.paragraph(cat("Of ", report->count, " predictions ", report->wrong,
                     " differ from the labels of the data. These are the worst: wrong ones that the model was most "
                     "certain of come first, then right ones that it was least certain of."));
  std::vector<std::vector<std::string>> cells = {{"row", "text", "label", "prediction", "score", ""}};
  for (const auto& one : report->worst)
    cells.push_back(
        {std::to_string(one.row), one.text, one.expected, one.predicted, one.score, one.is_wrong ? "wrong" : ""});
  page.table(cells);
}

void add_timeline(HtmlPage& page, RunHistory& run) {
  std::optional<RunTimeline> timeline;
  try {
    timeline = read_timeline(run.directory);
  } catch (const DataError& error) {
    run.notes.push_back(cat("timeline: ", error.what()));
  }
  if (!timeline) return;
  page.heading("Timeline");
  page.figure(interval_picture(cat("step ", timeline->step, ", ", format_duration(timeline->seconds)), timeline->rows,
                               timeline->seconds),
              cat("What each rank computed in step ", timeline->step, "; ", run.directory,
                  "/timeline has more, for a browser and for ui.perfetto.dev."),
              HtmlPage::Width::wide);
}

}  // namespace

void add_curves(HtmlPage& page, const std::vector<RunHistory>& runs) {
  auto cells = overview(runs);
  if (runs.size() == 1) {
    cells = transposed(cells);
    if (const auto& counts = runs.front().label_counts; !counts.empty()) cells.push_back({"label counts", counts});
  }
  page.table(cells);
  if (runs.size() > kMostCurves)
    page.paragraph(cat("The curves are those of the first ", kMostCurves, " of ", runs.size(), " runs."));
  Chart loss = chart_of_steps(runs, "Loss", "loss", [](const auto& step) { return step.loss; });
  if (runs.size() == 1 && !runs.front().metrics.evaluations.empty()) loss.series.front().name = "training";
  add_evaluations(loss, runs, "eval_loss", runs.size() == 1);
  add_figure(page, loss, runs.size() > 1 ? legend_of_losses(loss) : "");
  for (const auto& name : metric_names_of(runs)) {
    Chart chart{.title = name, .x_label = "step", .y_label = name, .series = {}};
    add_evaluations(chart, runs, name, runs.size() > 1);
    for (auto& series : chart.series) series.dashed = false;
    add_figure(page, chart);
  }
  add_figure(page,
             chart_of_steps(runs, "Learning rate", "learning rate", [](const auto& s) { return s.learning_rate; }));
  add_figure(page,
             chart_of_steps(runs, "Gradient norm", "norm before clipping", [](const auto& s) { return s.grad_norm; }));
  Chart rate = chart_of_steps(runs, "Throughput", "tokens/s", [](const auto& s) { return s.tokens_per_second; });
  rate.y_from_zero = true;
  add_figure(page, rate);
  Chart bubble = chart_of_steps(runs, "Idle share of the ranks", "share of a step",
                                [](const auto& s) { return s.bubble_fraction; });
  bubble.y_from_zero = true;
  if (runs.size() == 1) add_planned_bubble(bubble, runs.front());
  add_figure(page, bubble, "The bubble of the schedule, and waiting for others.");
}

void add_details(HtmlPage& page, RunHistory& run) {
  add_memory(page, run);
  add_timeline(page, run);
  add_predictions(page, run);
  if (run.notes.empty()) return;
  page.heading("Left out");
  page.items(run.notes);
}

}  // namespace shardline
