#include "engine/data/tokenizer/files/input_settings.h"

#include <algorithm>

#include "core/files/json_data.h"
#include "engine/data/tokenizer/files/added_token_files.h"

namespace shardline {
namespace {

// Classes of transformers whose models take no token types. TokenizersBackend is version 5's name of a tokenizer that
// belongs to no model.
bool has_no_types(const std::string& tokenizer_class) {
  static constexpr const char* kClasses[] = {"DistilBertTokenizer", "GPT2Tokenizer",     "LlamaTokenizer",
                                             "RobertaTokenizer",    "TokenizersBackend", "XLMRobertaTokenizer"};
  return std::ranges::find(kClasses, tokenizer_class) != std::end(kClasses);
}

TextSide side_in(const JsonValue& value, const std::string& left, const std::string& right) {
  const std::string side = value.text();
  if (side != left && side != right) value.fail("must be \"" + left + "\" or \"" + right + '"');
  return side == left ? TextSide::left : TextSide::right;
}

}  // namespace

TextSide truncated_side(const JsonValue& tokenizer) {
  if (!tokenizer.has("truncation") || !tokenizer.at("truncation").has("direction")) return TextSide::right;
  return side_in(tokenizer.at("truncation").at("direction"), "Left", "Right");
}

std::string apply_settings(const std::filesystem::path& folder, const std::string& tokenizer_class,
                           TokenizerSpec& spec) {
  bool drops_types = has_no_types(tokenizer_class);
  with_json_file(folder, "tokenizer_config.json", [&](const JsonValue& file) {
    spec.cleans_up = file.flag("clean_up_tokenization_spaces", false);
    if (file.has("truncation_side"))
      spec.post_processor.truncated_side = side_in(file.at("truncation_side"), "left", "right");
    if (!file.has("model_input_names")) return;
    const auto names = file.at("model_input_names").items();
    drops_types = std::ranges::none_of(names, [](const JsonValue& name) { return name.text() == "token_type_ids"; });
  });
  if (drops_types) spec.post_processor.drop_types();
  const bool cuts_left = spec.post_processor.truncated_side == TextSide::left;
  return std::string(cuts_left ? " left" : "") + (drops_types ? " no types" : "");
}

}  // namespace shardline
