// `shardline report`: a page about runs that have ended or are still running.
#pragma once
#include <string>
#include <vector>

namespace shardline {

// Writes a page about one run (its output_dir), several runs, or a study (its output_dir), to `file`; empty:
// report.html in the first directory. Returns the path of the page. Throws ConfigError for a directory that is neither,
// DataError for records that are damaged.
std::string report_job(const std::vector<std::string>& directories, const std::string& file);

}  // namespace shardline
