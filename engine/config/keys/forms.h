// The places where a file may hold smp_options and mpi_options, for reading and for --set:
//   "smp_options": {...}   or   {"enabled": true, "parameters": {...}}
//   "distribution": {"smdistributed": {"modelparallel": {"enabled": true, "parameters": {...}}}, "mpi": {...}}
// In `distribution`, "enabled" of "dataparallel", which is next to "modelparallel", turns data parallelism on or off.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/files/json_reader.h"
#include "engine/config/keys/options.h"

namespace shardline {

// Readers for the options themselves, inside their wrappers.
struct WrappedSections {
  JsonReader smp;
  JsonReader mpi;
  std::optional<JsonReader> data_parallel;  // unset if there is no "dataparallel"
};
WrappedSections unwrap_sections(JsonReader& root);

// Applies "dataparallel" to smp_options and mpi_options, which must have been read before.
void apply_data_parallelism(JsonReader& data_parallel, Config& config);
// Reports `enabled` false with several replicas, unless the config sets smp_options.ddp.
void check_data_parallelism(JsonReader& data_parallel, const Config& config, int replicas);

// Applies "path=value" (a path with dots, or a JSON pointer). The value is JSON or else a bare string, and replaces the
// setting's value in any spelling in the file. Mistakes become problems of the document.
void apply_override(JsonDocument& document, const std::string& assignment);

}  // namespace shardline
