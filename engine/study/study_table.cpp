#include "engine/study/study_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <sstream>
#include <tuple>

#include "core/error.h"
#include "engine/observe/format.h"

namespace shardline {
namespace {

using nlohmann::json;

// What may differ between a row and the one that its speed-up is relative to: the machines, and settings that are often
// chosen for them.
constexpr std::array kOfMachines = {
    "devices", "nodes", "cluster", "layout", "batch", "learning_rate", "learning_rate_scaling", "reference_batch"};

template <class Get>
std::optional<Spread> spread_over(const std::vector<const RunRecord*>& runs, const Get& get) {
  std::vector<double> values;
  for (const auto* run : runs)
    if (const std::optional<double> value = get(*run)) values.push_back(*value);
  return values.empty() ? std::nullopt : std::optional(spread_of(values));
}

StudyRow row_of(const std::vector<const RunRecord*>& group, const std::string& metric) {
  std::vector<const RunRecord*> runs = group;
  std::erase_if(runs, [](const RunRecord* run) { return run->kind == RunKind::failed; });
  StudyRow row{
      .first = runs.empty() ? group.front() : runs.front(), .runs = runs.size(), .failed = group.size() - runs.size()};
  row.step_seconds = spread_over(runs, [](const RunRecord& run) { return std::optional(run.step_seconds); });
  row.job_seconds = spread_over(runs, [](const RunRecord& run) { return std::optional(run.job_seconds); });
  row.samples_per_second =
      spread_over(runs, [](const RunRecord& run) { return std::optional(run.samples_per_second); });
  row.cost = spread_over(runs, [](const RunRecord& run) { return run.cost; });
  row.metric = spread_over(runs, [&](const RunRecord& run) {
    const auto found = run.metrics.find(metric);
    return found == run.metrics.end() ? std::nullopt : std::optional(found->second);
  });
  return row;
}

// The parts of a row that speed-ups compare.
struct ComparedRow {
  StudyRow* row;
  std::string work;  // everything that must be equal, except for the batch
  json batch, learning_rate;

  explicit ComparedRow(StudyRow& of) : row(&of) {
    json factors = of.first->factors;
    batch = factors.value("batch", json());
    learning_rate = factors.value("learning_rate", json());
    for (const char* key : kOfMachines) factors.erase(key);
    work = cat(to_string(of.first->kind), factors.dump());
  }
  int devices() const { return row->first->devices; }
  // Whether both have the same batch in each replica, or for each device.
  bool does_work_of(const ComparedRow& other) const {
    return work == other.work &&
           (batch == other.batch || row->first->batch_per_device == other.row->first->batch_per_device);
  }
};

// The row that the speed-up of `row` is relative to: the one with the fewest devices; among several of those, one with
// the same batch and learning rate. Null if no other row does its work and the table has rows with fewer devices.
const ComparedRow* base_of(const ComparedRow& row, const std::vector<ComparedRow>& rows, int fewest_devices) {
  const ComparedRow* base = nullptr;
  const auto rank = [&](const ComparedRow& one) {
    return std::tuple(one.devices(), one.batch != row.batch, one.learning_rate != row.learning_rate);
  };
  bool is_alone = true;
  for (const auto& other : rows) {
    if (!other.does_work_of(row)) continue;
    is_alone = is_alone && other.row == row.row;
    if (!base || rank(other) < rank(*base)) base = &other;
  }
  return is_alone && row.devices() > fewest_devices ? nullptr : base;
}

void add_speedups(std::vector<StudyRow>& all) {
  std::vector<ComparedRow> rows;
  for (auto& row : all)
    if (row.samples_per_second) rows.emplace_back(row);
  if (rows.empty()) return;
  const int fewest_devices = std::ranges::min_element(rows, {}, &ComparedRow::devices)->devices();
  for (const auto& compared : rows) {
    const ComparedRow* base = base_of(compared, rows, fewest_devices);
    if (!base || base->row->samples_per_second->mean <= 0) continue;
    StudyRow& row = *compared.row;
    row.speedup = row.samples_per_second->mean / base->row->samples_per_second->mean;
    row.efficiency = *row.speedup * base->devices() / compared.devices();
  }
}

// "0.912 +- 0.014": the mean and half the interval, or the mean alone. Says so if only some of the runs have a value.
template <class Format>
std::string with_interval(const std::optional<Spread>& spread, size_t runs, const Format& format) {
  if (!spread) return "";
  return cat(format(spread->mean), spread->half_width ? cat(" +- ", format(*spread->half_width)) : "",
             spread->count < runs ? cat(" (", spread->count, " of ", runs, " runs)") : "");
}

std::string rounded(double value, int digits) {
  std::ostringstream text;
  text.precision(digits);
  text << value;
  return text.str();
}

std::string steps_text(const RunRecord& record) {
  const double nominal = std::round(record.nominal_steps);
  if (record.nominal_steps == 0 || nominal == record.steps) return std::to_string(record.steps);
  return cat(record.steps, " (nominal ", format_decimals(nominal, 0), ")");
}

std::string kind_text(const StudyRow& row) {
  std::string text = to_string(row.first->kind);
  if (row.runs > 1) text += cat(" x ", row.runs);
  if (row.failed > 0 && row.runs > 0) text += cat(", ", row.failed, " failed");
  return text;
}

bool has(const std::vector<StudyRow>& rows, std::optional<Spread> StudyRow::*field) {
  return std::ranges::any_of(rows, [&](const StudyRow& row) { return (row.*field).has_value(); });
}

TableRow header_of(const StudyTable& table) {
  TableRow header = {"run"};
  for (const auto& key : table.columns) header.push_back(key);
  for (const char* name : {"kind", "ranks", "global batch", "learning rate", "steps", "step", "job", "samples/s",
                           "speed-up", "efficiency"})
    header.emplace_back(name);
  if (has(table.rows, &StudyRow::cost)) header.push_back(table.currency.empty() ? "cost" : "cost, " + table.currency);
  if (has(table.rows, &StudyRow::metric)) header.push_back(table.metric);
  return header;
}

TableRow cells_of(const StudyTable& table, const StudyRow& row) {
  const RunRecord& record = *row.first;
  TableRow cells = {record.group};
  for (const auto& key : table.columns) cells.push_back(factor_text(record.factors, key));
  const auto digits = [](int count) { return [count](double value) { return rounded(value, count); }; };
  const auto optional_text = [](const std::optional<double>& value, const auto& format) {
    return value ? format(*value) : std::string();
  };
  cells.insert(cells.end(),
               {kind_text(row), record.layout, std::to_string(record.global_batch), rounded(record.learning_rate, 3),
                steps_text(record), with_interval(row.step_seconds, row.runs, format_duration),
                with_interval(row.job_seconds, row.runs, format_duration),
                with_interval(row.samples_per_second, row.runs, digits(4)),
                optional_text(row.speedup, [](double value) { return format_decimals(value, 2); }),
                optional_text(row.efficiency, format_percent)});
  if (has(table.rows, &StudyRow::cost)) cells.push_back(with_interval(row.cost, row.runs, digits(4)));
  if (has(table.rows, &StudyRow::metric)) cells.push_back(with_interval(row.metric, row.runs, digits(4)));
  return cells;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const auto& cell : cells) line += (line.empty() ? "" : ",") + csv_cell(cell);
  return line + "\n";
}

std::string exact(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? json(*value).dump() : "";
}

}  // namespace

StudyTable study_table(const std::vector<RunRecord>& records, const std::string& metric, const std::string& currency) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const RunRecord*>> groups;
  std::vector<StudyPoint> points;
  for (const auto& record : records) {
    auto& group = groups[record.group];
    if (group.empty()) {
      order.push_back(record.group);
      points.push_back({.name = record.group, .factors = record.factors, .published = {}});
    }
    group.push_back(&record);
  }
  StudyTable table{.metric = metric, .currency = currency, .columns = varied_factors(points)};
  for (const auto& name : order) table.rows.push_back(row_of(groups[name], metric));
  add_speedups(table.rows);
  return table;
}

std::vector<TableRow> table_cells(const StudyTable& table) {
  std::vector<TableRow> cells = {header_of(table)};
  for (const auto& row : table.rows) cells.push_back(cells_of(table, row));
  return cells;
}

std::string table_text(const StudyTable& table) {
  const auto cells = table_cells(table);
  return shardline::table(cells.front(), {cells.begin() + 1, cells.end()});
}

std::string table_csv(const StudyTable& table) {
  struct Quantity {
    const char* name;
    std::optional<Spread> StudyRow::*field;
  };
  constexpr std::array kQuantities = {Quantity{"step_seconds", &StudyRow::step_seconds},
                                      Quantity{"job_seconds", &StudyRow::job_seconds},
                                      Quantity{"samples_per_second", &StudyRow::samples_per_second},
                                      Quantity{"cost", &StudyRow::cost}, Quantity{"metric", &StudyRow::metric}};
  std::vector<std::string> header = {"run"};
  for (const auto& key : table.columns) header.push_back("factor " + key);
  for (const char* name : {"kind", "machine", "runs", "failed", "devices", "nodes", "layout", "global_batch",
                           "batch_per_device", "learning_rate", "samples", "steps", "nominal_steps"})
    header.emplace_back(name);
  for (const auto& quantity : kQuantities) {
    const std::string name =
        quantity.field == &StudyRow::metric && !table.metric.empty() ? table.metric : quantity.name;
    for (const char* part : {"", "_deviation", "_low", "_high"}) header.push_back(name + part);
  }
  header.insert(header.end(), {"speedup", "efficiency"});
  std::string text = csv_line(header);
  for (const auto& row : table.rows) {
    const RunRecord& record = *row.first;
    std::vector<std::string> cells = {record.group};
    for (const auto& key : table.columns) cells.push_back(factor_text(record.factors, key));
    cells.insert(cells.end(), {to_string(record.kind), record.machine, std::to_string(row.runs),
                               std::to_string(row.failed), std::to_string(record.devices), std::to_string(record.nodes),
                               record.layout, std::to_string(record.global_batch), exact(record.batch_per_device),
                               exact(record.learning_rate), record.samples ? std::to_string(*record.samples) : "",
                               std::to_string(record.steps), exact(record.nominal_steps)});
    for (const auto& quantity : kQuantities) {
      const auto& spread = row.*quantity.field;
      if (!spread) {
        cells.insert(cells.end(), 4, "");
        continue;
      }
      cells.push_back(exact(spread->mean));
      cells.push_back(exact(spread->deviation));
      cells.push_back(spread->half_width ? exact(spread->low()) : "");
      cells.push_back(spread->half_width ? exact(spread->high()) : "");
    }
    cells.push_back(exact(row.speedup));
    cells.push_back(exact(row.efficiency));
    text += csv_line(cells);
  }
  return text;
}

}  // namespace shardline
