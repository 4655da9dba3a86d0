// What a study's directory contains besides its runs: study.json, from which tables and pages can be made again.
#pragma once
#include <string>
#include <vector>

#include "engine/study/prices.h"
#include "engine/study/run_record.h"

namespace shardline {

struct StudySummary {
  std::string name;    // the study file's name
  std::string metric;  // empty: none
  std::string source;  // where the published results come from
  Prices prices;       // for the machines that the runs used
  std::vector<RunRecord> records;
};

// Files of a study's directory.
std::string records_file(const std::string& directory);        // study.jsonl
std::string other_records_file(const std::string& directory);  // others.jsonl: runs that the study no longer has
std::string summary_file(const std::string& directory);        // study.json
bool is_study(const std::string& directory);

void write_summary(const std::string& directory, const StudySummary& summary);
// Throws ConfigError if the directory is not a study's, DataError for files that are damaged.
StudySummary read_summary(const std::string& directory);

// The tables of a study: its runs, and their comparison with published results.
std::string summary_text(const StudySummary& summary);

}  // namespace shardline
