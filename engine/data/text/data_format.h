// The formats of data files.
#pragma once
#include <nlohmann/json.hpp>

namespace shardline {

// automatic: by the name of each file.
enum class DataFormat { text, jsonl, tokens, automatic };
NLOHMANN_JSON_SERIALIZE_ENUM(DataFormat, {{DataFormat::automatic, "auto"},
                                          {DataFormat::text, "text"},
                                          {DataFormat::jsonl, "jsonl"},
                                          {DataFormat::tokens, "tokens"}})

}  // namespace shardline
