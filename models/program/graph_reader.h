// Reads models/model.json of an archive of torch.export.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "models/program/graph.h"

namespace shardline {

// `json`: the contents of the file; `file` names it in messages. Regions of set_grad_enabled and of disabled autocast
// are inlined. Throws a DataError that names the place if the file contradicts itself, and for what cannot run here:
// unknown operators, operators that draw random numbers or change tensors in place, other higher-order operators, and
// programs that change their buffers.
Graph read_graph(const nlohmann::json& json, const std::string& file);

// Advice for archives of other versions.
inline constexpr const char* kExportAgain = "export the program again with torch 2.9 or later";

// The dtype that a number stands for in such a file; throws a DataError.
at::ScalarType dtype_of_number(int64_t number, const std::string& where);

}  // namespace shardline
