// The results of a study by group of repeats: means with their spread, speed-up, cost, and published results.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/study/run_record.h"
#include "engine/study/statistics.h"

namespace shardline {

struct StudyRow {
  const RunRecord* first = nullptr;  // the first of the group's runs, which differ in their seeds and results
  size_t runs = 0;                   // runs that have results
  size_t failed = 0;
  std::optional<Spread> step_seconds, job_seconds, samples_per_second, cost, metric;  // unset: no run has it
  // samples_per_second relative to the row with the fewest devices that differs only in its machines (devices, nodes,
  // cluster, layout), and in a learning rate or batch that was chosen for them; and that speed-up divided by the ratio
  // of devices. Unset if nothing can be compared with the row, unless no row has fewer devices.
  std::optional<double> speedup, efficiency;
};

struct StudyTable {
  std::string metric;                // empty: none
  std::string currency;              // empty: not known
  std::vector<std::string> columns;  // factors that differ between rows
  std::vector<StudyRow> rows;        // in the order of the study; they refer to the records
};

// The records must outlive the table.
StudyTable study_table(const std::vector<RunRecord>& records, const std::string& metric, const std::string& currency);

std::string table_text(const StudyTable& table);
std::string table_csv(const StudyTable& table);
// The cells of table_text, for pages.
std::vector<std::vector<std::string>> table_cells(const StudyTable& table);  // the first row has the names

}  // namespace shardline
