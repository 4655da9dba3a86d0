// The formats of data files.
#pragma once

namespace shardline {

// automatic: depends on the name of each file.
enum class DataFormat { text, jsonl, json, csv, tsv, conll, tokens, automatic };

}  // namespace shardline
