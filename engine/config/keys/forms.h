// The places where a file may hold smp_options and mpi_options, and --set, which has to find them.
//   "smp_options": {...}   or   {"enabled": true, "parameters": {...}}
//   "distribution": {"smdistributed": {"modelparallel": {"enabled": true, "parameters": {...}}}, "mpi": {...}}
// In the latter, "dataparallel": {"enabled": true} beside "modelparallel" means data parallelism, and false none.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/files/json_reader.h"
#include "engine/config/keys/options.h"

namespace shardline {

// Reads the wrappers and returns readers for the options themselves.
struct WrappedSections {
  JsonReader smp;
  JsonReader mpi;
  std::optional<JsonReader> data_parallel;  // where there is one
};
WrappedSections unwrap_sections(JsonReader& root);

// What "dataparallel" says becomes that of smp_options and mpi_options, which were read before.
void apply_data_parallelism(JsonReader& data_parallel, Config& config);
// Reports `enabled` false with several replicas, unless smp_options.ddp says something.
void check_data_parallelism(JsonReader& data_parallel, const Config& config, int replicas);

// Applies "path=value" (path with dots, or a JSON pointer). The value is JSON or else a bare string, and replaces what
// the file says about the setting in any spelling. Mistakes become problems of the document.
void apply_override(JsonDocument& document, const std::string& assignment);

}  // namespace shardline
