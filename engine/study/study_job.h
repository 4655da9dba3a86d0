// `shardline study`: makes the runs of a study, and tables and a page of their results.
#pragma once
#include <iosfwd>
#include <string>

namespace shardline {

struct StudyOptions {
  std::string cluster;  // not empty: replaces that of the file
  int at_once = 0;      // not 0: replaces that of the file
};

// Makes the runs that have not been made yet. Prints a line for each run and the tables to `out`. Returns the program's
// exit code: 1 if a run failed. Throws ConfigError for a mistake in the study or one of its configs, before the first
// run starts.
int study_job(const std::string& path, const StudyOptions& options, std::ostream& out);

}  // namespace shardline
