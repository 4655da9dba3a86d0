// A study's runs compared with results that others have published for them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/study/prices.h"
#include "engine/study/run_record.h"

namespace shardline {

// The lowest and the highest cost of nodes for a time that was rounded to whole minutes.
struct CostRange {
  double low = 0, high = 0;
  // Whether a cost that was rounded to hundredths is in this range.
  bool contains(double cost) const { return cost >= low - kRounding && cost <= high + kRounding; }

 private:
  static constexpr double kRounding = 0.005 + 1e-9;
};
CostRange cost_of_minutes(double minutes, int nodes, double hourly_price);

struct PublishedRow {
  const RunRecord* run = nullptr;
  std::optional<double> time_ratio;  // the run's job_seconds / the published time
  std::optional<CostRange> cost;     // follows from the published minutes, if the machine's price is known
  bool is_misprint = false;          // the published cost does not follow from the published minutes
};
// A row for each run with published numbers. The records must outlive them.
std::vector<PublishedRow> published_rows(const std::vector<RunRecord>& records, const Prices& prices);

// The first row has the names of the columns; empty without rows.
std::vector<std::vector<std::string>> published_cells(const std::vector<PublishedRow>& rows);

}  // namespace shardline
