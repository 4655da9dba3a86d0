// Normalizers of tokenizer.json, which change a text before it is split into words.
#pragma once
#include <functional>
#include <optional>

#include "engine/data/text/aligned_text.h"

namespace shardline {

class JsonValue;

using Normalizer = std::function<void(AlignedText&)>;

struct BertNormalizerOptions {
  bool clean_text = true;             // removes controls, replaces white space by spaces
  bool handle_chinese_chars = true;   // puts ideographs between spaces
  std::optional<bool> strip_accents;  // unset: as lowercase
  bool lowercase = true;
};
Normalizer bert_normalizer(const BertNormalizerOptions& options);

// Reads a component of a tokenizer.json. Throws a DataError that names what is not supported.
Normalizer read_normalizer(const JsonValue& component);

}  // namespace shardline
