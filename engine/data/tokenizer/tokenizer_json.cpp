#include "engine/data/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/data/text/regex_dialect.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr int32_t kLargestId = 1 << 24;

[[noreturn]] void refuse_type(const JsonValue& component, const std::string& type, const char* supported) {
  component.fail(cat("the type '", type, "' is not supported (only ", supported,
                     "); only byte-level BPE tokenizers, such as those of GPT-2, Llama 3 and Qwen, are supported"));
}

void refuse_if_set(const JsonValue& component, const std::string& key) {
  if (!component.has(key)) return;
  const JsonValue found = component.at(key);
  const json& value = found.json();
  const bool harmless = (value.is_string() && value.get<std::string>().empty()) || value == json(false) ||
                        (value.is_number() && value.get<double>() == 0);
  if (!harmless) found.fail("is not supported by byte-level BPE here; must be unset");
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
      item.fail("a merge is \"a b\" or [\"a\", \"b\"]");
    }
  }
  return merges;
}

BpeVocabulary read_model(const JsonValue& model) {
  // Old files have no type; then "merges" identifies BPE.
  const std::string type = model.text("type", model.has("merges") ? "BPE" : "none");
  if (type != "BPE") refuse_type(model, type, "BPE");
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
    refuse_if_set(model, key);
  }
  BpeVocabulary vocabulary;
  vocabulary.ids = read_vocabulary(model.at("vocab"));
  vocabulary.merges = read_merges(model);
  if (model.has("unk_token")) vocabulary.unknown = model.text("unk_token", "");
  vocabulary.fuse_unknown = model.flag("fuse_unk", false);
  vocabulary.ignore_merges = model.flag("ignore_merges", false);
  return vocabulary;
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

void read_normalizer(const JsonValue& normalizer, BpeTokenizerSpec& spec) {
  const std::string type = normalizer.text("type", "none");
  if (type == "Sequence") {
    for (const JsonValue& part : normalizer.at("normalizers").items()) read_normalizer(part, spec);
  } else if (type == "NFC") {
    spec.words.nfc = true;
  } else {
    refuse_type(normalizer, type, "NFC");
  }
}

SplitStep read_split(const JsonValue& split) {
  SplitStep step;
  const JsonValue pattern = split.at("pattern");
  if (pattern.has("Regex")) {
    step.pattern = pattern.text("Regex", "");
  } else if (pattern.has("String")) {
    step.pattern = literal_pattern(pattern.text("String", ""));
  } else {
    pattern.fail("must have a Regex or a String");
  }
  const std::string behavior = split.text("behavior", "none");
  const bool invert = split.flag("invert", false);
  if (behavior == "Removed") {
    step.keep = invert ? SplitPattern::Keep::matches : SplitPattern::Keep::gaps;
  } else if (behavior != "Isolated") {
    split.at("behavior").fail("must be Isolated or Removed");
  }
  return step;
}

// Appends to spec.words.splits. Returns true once the byte level, which must come last, has been read.
bool read_pre_tokenizer(const JsonValue& component, BpeTokenizerSpec& spec) {
  const std::string type = component.text("type", "none");
  if (type == "ByteLevel") {
    spec.words.add_prefix_space = component.flag("add_prefix_space", true);
    spec.words.byte_level_pattern = component.flag("use_regex", true);
    return true;
  }
  if (type == "Split") {
    spec.words.splits.push_back(read_split(component));
    return false;
  }
  if (type != "Sequence") refuse_type(component, type, "ByteLevel, Split, Sequence");
  bool byte_level = false;
  for (const JsonValue& part : component.at("pretokenizers").items()) {
    if (byte_level) part.fail("nothing may follow ByteLevel, which turns text into bytes");
    byte_level = read_pre_tokenizer(part, spec);
  }
  return byte_level;
}

// Post-processors put tokens around a text, which a token stream omits, so only their names are checked.
void check_post_processor(const JsonValue& component) {
  const std::string type = component.text("type", "none");
  if (type == "Sequence") {
    for (const JsonValue& part : component.at("processors").items()) check_post_processor(part);
  } else if (type != "ByteLevel" && type != "TemplateProcessing") {
    refuse_type(component, type, "ByteLevel, TemplateProcessing, Sequence");
  }
}

}  // namespace

BpeTokenizerSpec read_tokenizer_json(const std::filesystem::path& file) {
  const json content = read_data_json(file);
  const JsonValue root(content, file.string());
  BpeTokenizerSpec spec;
  spec.vocabulary = read_model(root.at("model"));
  spec.words.added = read_added_tokens(root);
  if (root.has("normalizer")) read_normalizer(root.at("normalizer"), spec);
  const JsonValue pre_tokenizer = root.at("pre_tokenizer");
  if (!read_pre_tokenizer(pre_tokenizer, spec))
    pre_tokenizer.fail("has no ByteLevel; only byte-level BPE is supported");
  if (root.has("post_processor")) check_post_processor(root.at("post_processor"));
  if (root.has("decoder")) {
    const JsonValue decoder = root.at("decoder");
    const std::string type = decoder.text("type", "none");
    if (type != "ByteLevel") refuse_type(decoder, type, "ByteLevel");
  }
  check_added_ids(spec, file.string() + ": /added_tokens");
  return spec;
}

void check_added_ids(const BpeTokenizerSpec& spec, const std::string& where) {
  const auto& ids = spec.vocabulary.ids;
  std::unordered_map<std::string, int32_t> seen;
  int64_t next = ids.size();
  for (const AddedToken& token : spec.words.added) {
    if (token.content.empty()) throw DataError(cat(where, ": the token with id ", token.id, " is empty"));
    const auto known = ids.find(token.content);
    const auto again = seen.find(token.content);
    int64_t expected = known != ids.end() ? known->second : again != seen.end() ? again->second : next;
    if (token.id != expected) {
      throw DataError(cat(where, ": '", token.content, "' has id ", token.id, ", but by the vocabulary (", ids.size(),
                          " tokens) and the tokens before it, it gets ", expected));
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
    throw DataError(cat(where, ": a merge is two tokens with one space between, not '", line, "'"));
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
