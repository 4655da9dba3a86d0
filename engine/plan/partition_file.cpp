#include "engine/plan/partition_file.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/files/json_reader.h"

namespace shardline {
namespace {

class PartitionFile {
 public:
  PartitionFile(const std::string& path, const ModelSpec& spec, const Schedule& schedule)
      : where_("partition_file " + path), spec_(spec), schedule_(schedule), document_(read_json_file(path)) {
    JsonReader(document_).throw_problems();
  }

  std::vector<int> chunk_of_layer() {
    const auto& file = document_.value;
    if (!file.is_object() || !file.contains("stages") || !file["stages"].is_array())
      fail("has no list \"stages\"; name the plan.json of a run");
    const auto& stages = file["stages"];
    if (std::ssize(stages) != schedule_.stages)
      fail(cat("has ", stages.size(), " stages, but pipeline_parallel_degree is ", schedule_.stages));
    for (int stage = 0; stage < schedule_.stages; ++stage) read_stage(stage, stages[stage]);
    std::string missing;
    std::vector<int> chunks;
    for (const auto& layer : spec_.layers) {
      const auto found = chunk_of_name_.find(layer.name);
      if (found == chunk_of_name_.end()) missing += cat(missing.empty() ? "" : ", ", layer.name);
      chunks.push_back(found == chunk_of_name_.end() ? 0 : found->second);
    }
    if (!missing.empty()) fail(cat("does not place ", missing, " of the model"));
    return chunks;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ConfigError(cat(where_, ": ", what)); }

  void read_stage(int stage, const nlohmann::json& entry) {
    if (!entry.is_object() || !entry.contains("chunks") || !entry["chunks"].is_array())
      fail(cat("stage ", stage, " has no list \"chunks\""));
    if (entry.contains("stage") && entry["stage"] != stage)
      fail(cat("stage ", stage, " is called ", json_shown(entry["stage"]), "; stages must be in order"));
    std::vector<int> chunks;
    for (int chunk = 0; chunk < schedule_.chunks(); ++chunk)
      if (schedule_.stage_of_chunk[chunk] == stage) chunks.push_back(chunk);
    if (entry["chunks"].size() != chunks.size())
      fail(cat("stage ", stage, " has ", entry["chunks"].size(), " chunks, but the schedule \"", schedule_.name,
               "\" gives it ", chunks.size()));
    for (size_t i = 0; i < chunks.size(); ++i)
      for (const auto& name : entry["chunks"][i]) place(name, chunks[i]);
  }

  void place(const nlohmann::json& name, int chunk) {
    const auto known = std::any_of(spec_.layers.begin(), spec_.layers.end(),
                                   [&](const LayerSpec& layer) { return name == layer.name; });
    if (!known) fail(cat("places ", json_shown(name), ", which is not a layer of the model"));
    if (!chunk_of_name_.emplace(name.get<std::string>(), chunk).second) fail(cat("places ", name.dump(), " twice"));
  }

  const std::string where_;
  const ModelSpec& spec_;
  const Schedule& schedule_;
  const JsonDocument document_;
  std::map<std::string, int> chunk_of_name_;
};

}  // namespace

std::vector<int> read_partition_file(const std::string& path, const ModelSpec& spec, const Schedule& schedule) {
  return PartitionFile(path, spec, schedule).chunk_of_layer();
}

}  // namespace shardline
