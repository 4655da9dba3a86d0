#include "engine/data/tokenizer/files/tokenizer_json.h"

#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/data/text/regex_dialect.h"
#include "engine/data/tokenizer/files/added_token_files.h"
#include "engine/data/tokenizer/files/class_settings.h"
#include "engine/data/tokenizer/files/input_settings.h"
#include "engine/data/tokenizer/steps/components.h"
#include "engine/data/tokenizer/steps/text_pattern.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr int32_t kLargestId = 1 << 24;

void refuse_if_set(const JsonValue& component, const std::string& key) {
  if (!component.has(key)) return;
  const JsonValue found = component.at(key);
  const json& value = found.json();
  const bool harmless = (value.is_string() && value.get<std::string>().empty()) || value == json(false) ||
                        (value.is_number() && value.get<double>() == 0);
  if (!harmless) found.fail("is not supported; must be unset");
}

std::vector<std::pair<std::string, std::string>> read_merges(const JsonValue& model) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const JsonValue& item : model.at("merges").items()) {
    const json& merge = item.json();
    if (merge.is_string()) {
      merges.push_back(split_merge(merge.get<std::string>(), item.where()));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      item.fail("a merge must be \"a b\" or [\"a\", \"b\"]");
    }
  }
  return merges;
}

BpeVocabulary read_bpe(const JsonValue& model) {
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) refuse_if_set(model, key);
  BpeVocabulary vocabulary;
  vocabulary.merges = read_merges(model);
  if (model.has("unk_token")) vocabulary.unknown = model.text("unk_token", "");
  vocabulary.byte_fallback = model.flag("byte_fallback", false);
  vocabulary.fuse_unknown = model.flag("fuse_unk", false);
  vocabulary.ignore_merges = model.flag("ignore_merges", false);
  return vocabulary;
}

WordPieceOptions read_word_piece(const JsonValue& model) {
  WordPieceOptions options;
  options.unknown = model.text("unk_token", options.unknown);
  options.prefix = model.text("continuing_subword_prefix", options.prefix);
  if (model.has("max_input_chars_per_word")) options.max_characters = model.at("max_input_chars_per_word").integer(0);
  return options;
}

// [["token", score], ...]
UnigramVocabulary read_unigram(const JsonValue& model) {
  UnigramVocabulary vocabulary;
  for (const JsonValue& item : model.at("vocab").items()) {
    const json& token = item.json();
    if (!token.is_array() || token.size() != 2 || !token[0].is_string() || !token[1].is_number())
      item.fail("a token must be [\"text\", score]");
    vocabulary.tokens.emplace_back(token[0].get<std::string>(), token[1].get<double>());
  }
  if (std::ssize(vocabulary.tokens) > kLargestId)
    model.at("vocab").fail(cat("a vocabulary may have at most ", kLargestId, " tokens"));
  if (model.has("unk_id")) vocabulary.unknown = token_id(model.at("unk_id"));
  vocabulary.byte_fallback = model.flag("byte_fallback", false);
  return vocabulary;
}

void read_model(const JsonValue& model, TokenizerSpec& spec) {
  // Old files have no type; then the other keys identify it.
  const char* const usual = model.has("merges") ? "BPE" : model.has("continuing_subword_prefix") ? "WordPiece" : "none";
  const std::string type = model.text("type", usual);
  if (type == "BPE") {
    spec.model = read_bpe(model);
    spec.ids = read_vocabulary(model.at("vocab"));
  } else if (type == "WordPiece") {
    spec.model = read_word_piece(model);
    spec.ids = read_vocabulary(model.at("vocab"));
  } else if (type == "Unigram") {
    UnigramVocabulary vocabulary = read_unigram(model);
    for (int32_t id = 0; id < std::ssize(vocabulary.tokens); ++id) spec.ids[vocabulary.tokens[id].first] = id;
    spec.model = std::move(vocabulary);
  } else {
    refuse_type(model, type, "BPE, WordPiece, Unigram");
  }
}

std::vector<AddedToken> read_added_tokens(const JsonValue& root) {
  std::vector<AddedToken> tokens;
  if (!root.has("added_tokens")) return tokens;
  for (const JsonValue& item : root.at("added_tokens").items()) {
    AddedToken token = added_token(item, false);
    token.id = token_id(item.at("id"));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// Whether windows of a text can have proven words with this normalizer.
bool add_to_window_rules(const JsonValue& normalizer, WordRules& rules) {
  bool fits = true;
  for_each_component(normalizer, "normalizers", [&](const JsonValue& part) {
    fits &= part.text("type", "none") == "NFC";
    rules.nfc = true;
  });
  return fits;
}

SplitStep split_step(const JsonValue& split) {
  SplitStep step;
  const JsonValue pattern = split.at("pattern");
  step.pattern = pattern.has("Regex") ? pattern.text("Regex", "") : literal_pattern(pattern.text("String", ""));
  const bool invert = split.flag("invert", false);
  if (read_behavior(split) == SplitBehavior::removed) {
    step.keep = invert ? SplitPattern::Keep::matches : SplitPattern::Keep::gaps;
  }
  return step;
}

// The same for a pre-tokenizer that has been read: splits, then the byte level.
bool add_splits_to_window_rules(const JsonValue& pre_tokenizer, WordRules& rules) {
  bool fits = true;
  for_each_component(pre_tokenizer, "pretokenizers", [&](const JsonValue& part) {
    const std::string type = part.text("type", "none");
    if (type == "ByteLevel") {
      rules.add_prefix_space = part.flag("add_prefix_space", true);
      rules.byte_level_pattern = part.flag("use_regex", true);
    } else if (type == "Split") {
      const SplitBehavior behavior = read_behavior(part);
      fits &= behavior == SplitBehavior::isolated || behavior == SplitBehavior::removed;
      rules.splits.push_back(split_step(part));
    } else {
      fits = false;
    }
  });
  return fits;
}

std::optional<WordRules> read_window_rules(const JsonValue& root) {
  WordRules rules;
  bool fits = !root.has("normalizer") || add_to_window_rules(root.at("normalizer"), rules);
  fits &= add_splits_to_window_rules(root.at("pre_tokenizer"), rules);
  return fits ? std::optional(std::move(rules)) : std::nullopt;
}

// Whether no part looks across the end of a line.
bool works_by_line(const JsonValue& normalizer) {
  bool by_line = true;
  for_each_component(normalizer, "normalizers", [&](const JsonValue& part) {
    const std::string type = part.text("type", "none");
    by_line &= type != "Strip" && type != "Replace" && type != "Prepend";
  });
  return by_line;
}

}  // namespace

TokenizerSpec read_tokenizer_json(const std::filesystem::path& file, const std::string& tokenizer_class) {
  json content = read_data_json(file);
  if (content.is_object() && !content.contains("model"))
    throw DataError(cat(file.string(),
                        ": is not a tokenizer.json, because it has no \"model\"; name the tokenizer's own "
                        "file or its directory"));
  apply_class_settings(file.parent_path(), tokenizer_class, content);
  const JsonValue root(content, file.string());
  TokenizerSpec spec;
  read_model(root.at("model"), spec);
  spec.added = read_added_tokens(root);
  check_added_ids(spec, file.string() + ": /added_tokens");
  add_tokens_of_config(file.parent_path(), spec);
  if (root.has("normalizer")) {
    spec.normalizer = read_normalizer(root.at("normalizer"));
    spec.normalizes_lines_apart = works_by_line(root.at("normalizer"));
  }
  if (root.has("pre_tokenizer")) spec.pre_tokenizer = read_pre_tokenizer(root.at("pre_tokenizer"));
  if (root.has("post_processor")) spec.post_processor = read_post_processor(root.at("post_processor"));
  spec.post_processor.truncated_side = truncated_side(root);
  if (root.has("decoder")) spec.decoder = read_decoder(root.at("decoder"));
  if (auto* bpe = std::get_if<BpeVocabulary>(&spec.model)) {
    bpe->byte_level = spec.pre_tokenizer.byte_level;
    if (bpe->byte_level && bpe->byte_fallback)
      root.at("model").at("byte_fallback").fail("must be unset with ByteLevel");
    if (bpe->byte_level) spec.window_rules = read_window_rules(root);
  } else if (spec.pre_tokenizer.byte_level) {
    root.at("pre_tokenizer").fail("ByteLevel is only supported with BPE");
  }
  return spec;
}

void check_added_ids(const TokenizerSpec& spec, const std::string& where) {
  const auto& ids = spec.ids;
  std::unordered_map<std::string, int32_t> seen;
  int64_t next = ids.size();
  for (const AddedToken& token : spec.added) {
    if (token.content.empty()) throw DataError(cat(where, ": the token with id ", token.id, " is empty"));
    const auto known = ids.find(token.content);
    const auto again = seen.find(token.content);
    int64_t expected = known != ids.end() ? known->second : again != seen.end() ? again->second : next;
    if (token.id != expected) {
      throw DataError(cat(where, ": '", token.content, "' has id ", token.id, ", but the vocabulary (", ids.size(),
                          " tokens) and the tokens before it imply id ", expected));
    }
    if (known == ids.end() || known->second >= next) next = std::max<int64_t>(next, expected + 1);
    seen[token.content] = token.id;
  }
}

int32_t token_id(const JsonValue& value) {
  return value.integer(0, kLargestId);
}

std::unordered_map<std::string, int32_t> read_vocabulary(const JsonValue& vocab) {
  std::unordered_map<std::string, int32_t> ids;
  std::unordered_set<int32_t> of_id;
  for (const auto& [token, value] : vocab.members()) {
    const int32_t id = token_id(value);
    const bool fresh = of_id.insert(id).second;
    if (!fresh) value.fail("the id belongs to two tokens");
    ids[token] = id;
  }
  return ids;
}

std::pair<std::string, std::string> split_merge(const std::string& line, const std::string& where) {
  const size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
    throw DataError(cat(where, ": a merge must be two tokens separated by one space, not '", line, "'"));
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

AddedToken added_token(const JsonValue& object, bool special) {
  AddedToken token;
  token.content = object.at("content").text();
  token.special = object.flag("special", special);
  token.lstrip = object.flag("lstrip", false);
  token.rstrip = object.flag("rstrip", false);
  token.single_word = object.flag("single_word", false);
  token.normalized = object.flag("normalized", !token.special);
  return token;
}

}  // namespace shardline
