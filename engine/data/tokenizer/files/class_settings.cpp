#include "engine/data/tokenizer/files/class_settings.h"

#include <nlohmann/json.hpp>

#include "core/files/json_data.h"
#include "engine/data/tokenizer/files/added_token_files.h"

namespace shardline {
namespace {

using nlohmann::json;

// The part of a tokenizer if it is of this type, otherwise null.
json* part_of_type(json& tokenizer, const char* key, const char* type) {
  const auto found = tokenizer.find(key);
  if (found == tokenizer.end() || !found->is_object()) return nullptr;
  const auto stated = found->find("type");
  return stated != found->end() && *stated == type ? &*found : nullptr;
}

// Sets a component's key to what the config states. If it states nothing, the key takes the usual value if the config
// names a class, and otherwise keeps its own.
void take_setting(const JsonValue& config, const char* stated, const json& usual, json& component, const char* key) {
  if (config.has(stated))
    component[key] = config.flag(stated, false);
  else if (config.has("tokenizer_class"))
    component[key] = usual;
}

}  // namespace

void apply_class_settings(const std::filesystem::path& folder, const std::string& tokenizer_class, json& tokenizer) {
  const bool is_bert = tokenizer_class == "BertTokenizer" || tokenizer_class == "DistilBertTokenizer";
  const bool is_roberta = tokenizer_class == "RobertaTokenizer", is_gpt2 = tokenizer_class == "GPT2Tokenizer";
  json* const normalizer = is_bert ? part_of_type(tokenizer, "normalizer", "BertNormalizer") : nullptr;
  json* const words = is_roberta || is_gpt2 ? part_of_type(tokenizer, "pre_tokenizer", "ByteLevel") : nullptr;
  json* const ends = is_roberta ? part_of_type(tokenizer, "post_processor", "RobertaProcessing") : nullptr;
  with_json_file(folder, "tokenizer_config.json", [&](const JsonValue& config) {
    if (normalizer) {
      take_setting(config, "do_lower_case", true, *normalizer, "lowercase");
      take_setting(config, "strip_accents", nullptr, *normalizer, "strip_accents");
      take_setting(config, "tokenize_chinese_chars", true, *normalizer, "handle_chinese_chars");
    }
    for (json* const part : {words, ends})
      if (part) take_setting(config, "add_prefix_space", false, *part, "add_prefix_space");
    if (ends) take_setting(config, "trim_offsets", true, *ends, "trim_offsets");
  });
}

}  // namespace shardline
