#include "engine/report/report_job.h"

#include <filesystem>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/report/report_page.h"
#include "engine/study/study_page.h"
#include "engine/study/study_summary.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

std::string without_slash(std::string directory) {
  while (directory.size() > 1 && directory.ends_with('/')) directory.pop_back();
  return directory;
}

// Names that distinguish several directories: their last parts, or the whole paths if those are equal.
std::vector<std::string> names_of(const std::vector<std::string>& directories) {
  if (directories.size() == 1) return directories;
  std::vector<std::string> names;
  for (const auto& directory : directories) names.push_back(fs::path(without_slash(directory)).filename());
  for (size_t i = 0; i < names.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (names[i] == names[j]) return directories;
  return names;
}

std::string page_of_study(const std::string& directory) {
  const StudySummary summary = read_summary(directory);
  HtmlPage page("Study " + summary.name);
  add_study(page, summary);
  std::vector<RunHistory> runs;
  std::set<std::string> groups;
  for (const auto& record : summary.records)
    if (const std::string output = cat(directory, "/runs/", record.name, "/output");
        record.kind == RunKind::measured && fs::exists(output) && groups.insert(record.group).second)
      runs.push_back(read_run(output, record.name));
  if (!runs.empty()) {
    page.heading("Curves of the runs");
    page.paragraph("Repeated runs are represented by the first one.");
    add_curves(page, runs);
  }
  return std::move(page).text();
}

std::string page_of_runs(const std::vector<std::string>& directories) {
  const auto names = names_of(directories);
  std::vector<RunHistory> runs;
  for (size_t i = 0; i < directories.size(); ++i) runs.push_back(read_run(directories[i], names[i]));
  HtmlPage page(runs.size() == 1 ? "Run " + names.front() : cat(runs.size(), " runs"));
  add_curves(page, runs);
  if (runs.size() == 1) add_details(page, runs.front());
  return std::move(page).text();
}

}  // namespace

std::string report_job(const std::vector<std::string>& directories, const std::string& file) {
  const bool about_study = directories.size() == 1 && is_study(directories.front());
  const std::string text = about_study ? page_of_study(directories.front()) : page_of_runs(directories);
  const std::string path = file.empty() ? without_slash(directories.front()) + "/report.html" : file;
  write_file(path, text);
  return path;
}

}  // namespace shardline
