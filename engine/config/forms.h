// The places where a file may hold smp_options and mpi_options, and --set, which has to find them.
//   "smp_options": {...}   or   {"enabled": true, "parameters": {...}}
//   "distribution": {"smdistributed": {"modelparallel": {"enabled": true, "parameters": {...}}}, "mpi": {...}}
#pragma once
#include <string>
#include <vector>

#include "core/json_reader.h"

namespace shardline {

// Reads the wrappers and returns readers for the options themselves.
struct WrappedSections {
  JsonReader smp;
  JsonReader mpi;
};
WrappedSections unwrap_sections(JsonReader& root);

// Applies "path=value" (path with dots, or a JSON pointer). The value is JSON or else a bare string.
// Mistakes become problems of the document.
void apply_override(JsonDocument& document, const std::string& assignment);

}  // namespace shardline
