// The formats of data files.
#pragma once

namespace shardline {

// automatic: depends on the name of each file. memory: there are no files; a program passes its samples itself.
enum class DataFormat { text, jsonl, json, csv, tsv, conll, tokens, automatic, memory, parquet, arrow, safetensors };

}  // namespace shardline
