#include "engine/study/study_summary.h"

#include <filesystem>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/json_data.h"
#include "engine/observe/format.h"
#include "engine/study/published.h"
#include "engine/study/study_table.h"

namespace shardline {

std::string records_file(const std::string& directory) {
  return directory + "/study.jsonl";
}
std::string other_records_file(const std::string& directory) {
  return directory + "/others.jsonl";
}
std::string summary_file(const std::string& directory) {
  return directory + "/study.json";
}

bool is_study(const std::string& directory) {
  return std::filesystem::exists(records_file(directory)) && std::filesystem::exists(summary_file(directory));
}

void write_summary(const std::string& directory, const StudySummary& summary) {
  const nlohmann::ordered_json file = {{"study", summary.name},
                                       {"metric", summary.metric},
                                       {"source", summary.source},
                                       {"currency", summary.prices.currency},
                                       {"hourly_prices", summary.prices.hourly}};
  write_records(records_file(directory), summary.records);
  write_file(summary_file(directory), file.dump(2) + "\n");
}

StudySummary read_summary(const std::string& directory) {
  if (!is_study(directory)) throw ConfigError(directory + " is not the output_dir of a study");
  const std::string path = summary_file(directory);
  const nlohmann::json json = read_data_json(path);
  const JsonValue file(json, path);
  StudySummary summary{
      .name = file.text("study", ""), .metric = file.text("metric", ""), .source = file.text("source", "")};
  summary.prices.currency = file.text("currency", "");
  if (file.has("hourly_prices"))
    for (const auto& [machine, price] : file.at("hourly_prices").members())
      summary.prices.hourly[machine] = price.require(json_number(0, 1e9)).get<double>();
  summary.records = read_records(records_file(directory));
  return summary;
}

std::string summary_text(const StudySummary& summary) {
  std::string text = table_text(study_table(summary.records, summary.metric, summary.prices.currency));
  for (const auto& record : summary.records)
    if (!record.error.empty()) text += cat("failed: ", record.name, ": ", record.error, "\n");
  const auto published = published_cells(published_rows(summary.records, summary.prices));
  if (published.empty()) return text;
  text += "\ncompared with published results" + (summary.source.empty() ? "" : " (" + summary.source + ")") + "\n";
  return text + table(published.front(), {published.begin() + 1, published.end()});
}

}  // namespace shardline
