#include "engine/data/tokenizer/tokenizer_json.h"

#include <algorithm>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/data/text/regex_dialect.h"
#include "engine/data/tokenizer/json_object.h"

namespace shardline {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_type(const JsonObject& component, const std::string& type, const char* supported) {
  throw DataError(cat(component.where(), ": the type '", type, "' is not supported (only ", supported,
                      "); only byte-level BPE tokenizers, such as those of GPT-2, Llama 3 and Qwen, are supported"));
}

void refuse_if_set(const JsonObject& component, const std::string& key) {
  if (!component.has(key)) return;
  const json& value = component.at(key);
  const bool harmless = (value.is_string() && value.get<std::string>().empty()) || value == json(false) ||
                        (value.is_number() && value.get<double>() == 0);
  if (!harmless) throw DataError(cat(component.where(key), ": is not supported by byte-level BPE here; must be unset"));
}

std::vector<std::pair<std::string, std::string>> read_merges(const JsonObject& model) {
  std::vector<std::pair<std::string, std::string>> merges;
  const json& list = model.array("merges");
  for (size_t rank = 0; rank < list.size(); ++rank) {
    const json& merge = list[rank];
    const std::string where = cat(model.where("merges"), "/", rank);
    if (merge.is_string()) {
      merges.push_back(split_merge(merge.get<std::string>(), where));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      throw DataError(cat(where, ": a merge is \"a b\" or [\"a\", \"b\"]"));
    }
  }
  return merges;
}

BpeVocabulary read_model(const JsonObject& model) {
  // Old files have no type; then "merges" identifies BPE.
  const std::string type = model.text("type", model.has("merges") ? "BPE" : "none");
  if (type != "BPE") refuse_type(model, type, "BPE");
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
    refuse_if_set(model, key);
  }
  BpeVocabulary vocabulary;
  vocabulary.ids = read_vocabulary(model.at("vocab"), model.where("vocab"));
  vocabulary.merges = read_merges(model);
  if (model.has("unk_token")) vocabulary.unknown = model.text("unk_token", "");
  vocabulary.fuse_unknown = model.flag("fuse_unk", false);
  vocabulary.ignore_merges = model.flag("ignore_merges", false);
  return vocabulary;
}

std::vector<AddedToken> read_added_tokens(const JsonObject& root) {
  std::vector<AddedToken> tokens;
  if (!root.has("added_tokens")) return tokens;
  const json& list = root.array("added_tokens");
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonObject item(list[i], cat(root.where("added_tokens"), "/", i));
    AddedToken token = added_token(item, false);
    token.id = token_id(item.at("id"), item.where("id"));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void read_normalizer(const JsonObject& normalizer, BpeTokenizerSpec& spec) {
  const std::string type = normalizer.text("type", "none");
  if (type == "Sequence") {
    for (const json& part : normalizer.array("normalizers")) {
      read_normalizer(JsonObject(part, normalizer.where("normalizers")), spec);
    }
  } else if (type == "NFC") {
    spec.words.nfc = true;
  } else {
    refuse_type(normalizer, type, "NFC");
  }
}

SplitStep read_split(const JsonObject& split) {
  SplitStep step;
  const JsonObject pattern = split.object("pattern");
  if (pattern.has("Regex")) {
    step.pattern = pattern.text("Regex", "");
  } else if (pattern.has("String")) {
    step.pattern = literal_pattern(pattern.text("String", ""));
  } else {
    throw DataError(cat(pattern.where(), ": must have a Regex or a String"));
  }
  const std::string behavior = split.text("behavior", "none");
  const bool invert = split.flag("invert", false);
  if (behavior == "Removed") {
    step.keep = invert ? SplitPattern::Keep::matches : SplitPattern::Keep::gaps;
  } else if (behavior != "Isolated") {
    throw DataError(cat(split.where("behavior"), ": must be Isolated or Removed, not '", behavior, "'"));
  }
  return step;
}

// Appends to spec.words.splits; true once the byte level, which must come last, was read.
bool read_pre_tokenizer(const JsonObject& component, BpeTokenizerSpec& spec) {
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
  const json& parts = component.array("pretokenizers");
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonObject part(parts[i], cat(component.where("pretokenizers"), "/", i));
    if (byte_level) throw DataError(cat(part.where(), ": nothing may follow ByteLevel, which turns text into bytes"));
    byte_level = read_pre_tokenizer(part, spec);
  }
  return byte_level;
}

// Post-processors put tokens around a text, which a token stream leaves out; so only their names matter.
void check_post_processor(const JsonObject& component) {
  const std::string type = component.text("type", "none");
  if (type == "Sequence") {
    for (const json& part : component.array("processors")) {
      check_post_processor(JsonObject(part, component.where("processors")));
    }
  } else if (type != "ByteLevel" && type != "TemplateProcessing") {
    refuse_type(component, type, "ByteLevel, TemplateProcessing, Sequence");
  }
}

}  // namespace

BpeTokenizerSpec read_tokenizer_json(const std::filesystem::path& file) {
  const json content = read_data_json(file);
  const JsonObject root(content, file.string());
  BpeTokenizerSpec spec;
  spec.vocabulary = read_model(root.object("model"));
  spec.words.added = read_added_tokens(root);
  if (root.has("normalizer")) read_normalizer(root.object("normalizer"), spec);
  if (!read_pre_tokenizer(root.object("pre_tokenizer"), spec)) {
    throw DataError(cat(root.where("pre_tokenizer"), ": has no ByteLevel; only byte-level BPE is supported"));
  }
  if (root.has("post_processor")) check_post_processor(root.object("post_processor"));
  if (root.has("decoder")) {
    const JsonObject decoder = root.object("decoder");
    const std::string type = decoder.text("type", "none");
    if (type != "ByteLevel") refuse_type(decoder, type, "ByteLevel");
  }
  check_added_ids(spec, root.where("added_tokens"));
  return spec;
}

void check_added_ids(const BpeTokenizerSpec& spec, const std::string& where) {
  const auto& ids = spec.vocabulary.ids;
  std::unordered_map<std::string, int32_t> seen;
  auto next = static_cast<int64_t>(ids.size());
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

std::unordered_map<std::string, int32_t> read_vocabulary(const json& vocab, const std::string& where) {
  const JsonObject entries(vocab, where);
  std::unordered_map<std::string, int32_t> ids;
  std::unordered_map<int32_t, const std::string*> owners;
  for (const auto& [token, value] : vocab.items()) {
    const int32_t id = token_id(value, entries.where(token));
    const auto [owner, fresh] = owners.emplace(id, &token);
    if (!fresh) throw DataError(cat(where, ": id ", id, " belongs to two tokens, one of them '", token, "'"));
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

AddedToken added_token(const JsonObject& object, bool special) {
  AddedToken token;
  object.at("content");
  token.content = object.text("content", "");
  token.special = object.flag("special", special);
  token.lstrip = object.flag("lstrip", false);
  token.rstrip = object.flag("rstrip", false);
  token.single_word = object.flag("single_word", false);
  token.normalized = object.flag("normalized", !token.special);
  return token;
}

}  // namespace shardline
