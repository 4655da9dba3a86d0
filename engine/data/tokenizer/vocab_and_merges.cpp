#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_set>

#include "core/error.h"
#include "core/files/json_data.h"
#include "core/files/mapped_file.h"
#include "engine/data/tokenizer/tokenizer_json.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::pair<std::string, std::string>> read_merges_file(const fs::path& path) {
  const MappedFile file(path);
  std::vector<std::pair<std::string, std::string>> merges;
  std::string_view rest = file.bytes();
  for (int64_t number = 1; !rest.empty(); ++number) {
    std::string line(rest.substr(0, rest.find('\n')));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    merges.push_back(split_merge(line, cat(path.string(), ":", number)));
  }
  return merges;
}

// A token is named by its text or by an object with its text and flags.
AddedToken token_of(const JsonValue& value) {
  if (!value.json().is_string()) return added_token(value, true);
  AddedToken token;
  token.special = true;
  token.content = value.text();
  return token;
}

// The id that is the key of a token.
int32_t id_in(const std::string& key, const JsonValue& token) {
  int32_t id = -1;
  const char* const end = key.data() + key.size();
  if (std::from_chars(key.data(), end, id).ptr != end) token.fail("the key must be a token id");
  const json number = id;
  return token_id(JsonValue(number, token.where()));
}

// Collects added tokens from the files that may define them; the first definition wins.
class AddedTokenFiles {
 public:
  explicit AddedTokenFiles(BpeTokenizerSpec& spec) : spec_(spec), next_(spec.vocabulary.ids.size()) {}

  // tokenizer_config.json: {"added_tokens_decoder": {"50256": {content and flags}}}
  void read_decoder(const JsonValue& config) {
    if (!config.has("added_tokens_decoder")) return;
    std::map<int32_t, AddedToken> by_id;
    for (const auto& [key, value] : config.at("added_tokens_decoder").members())
      by_id[id_in(key, value)] = token_of(value);
    for (const auto& [id, token] : by_id) add(token, id);
  }

  // added_tokens.json: {"content": id}
  void read_added(const JsonValue& file) {
    std::map<int32_t, std::string> by_id;
    for (const auto& [content, id] : file.members()) by_id[token_id(id)] = content;
    for (const auto& [id, content] : by_id) {
      AddedToken token;
      token.content = content;
      token.normalized = true;
      add(token, id);
    }
  }

  // The names of special tokens in tokenizer_config.json and special_tokens_map.json.
  void read_special(const JsonValue& file) {
    for (const char* key :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      if (file.has(key)) add(token_of(file.at(key)), std::nullopt);
    }
    if (!file.has("additional_special_tokens")) return;
    for (const JsonValue& value : file.at("additional_special_tokens").items()) add(token_of(value), std::nullopt);
  }

  // The token that ends a text is special, whether a file names it or it is GPT2Tokenizer's default.
  void add_eos(const fs::path& folder) {
    if (const auto eos = find_eos_token(folder, spec_)) add({.content = *eos, .special = true}, std::nullopt);
  }

 private:
  // Without an id: the vocabulary's, else the next free one.
  void add(AddedToken token, std::optional<int32_t> id) {
    if (token.content.empty() || !added_.insert(token.content).second) return;
    const auto known = spec_.vocabulary.ids.find(token.content);
    token.id = id ? *id : known != spec_.vocabulary.ids.end() ? known->second : next_;
    next_ = std::max(next_, token.id + 1);
    spec_.words.added.push_back(std::move(token));
  }

  BpeTokenizerSpec& spec_;
  std::unordered_set<std::string> added_;  // contents
  int32_t next_;                           // id
};

}  // namespace

BpeTokenizerSpec read_vocab_and_merges(const fs::path& folder) {
  BpeTokenizerSpec spec;
  const fs::path vocab = folder / "vocab.json";
  const json ids = read_data_json(vocab);
  spec.vocabulary.ids = read_vocabulary(JsonValue(ids, vocab.string()));
  spec.vocabulary.merges = read_merges_file(folder / "merges.txt");
  AddedTokenFiles added(spec);
  const auto with_file = [&](const char* name, auto&& use) {
    const fs::path path = folder / name;
    if (!fs::exists(path)) return;
    const json content = read_data_json(path);
    use(JsonValue(content, path.string()));
  };
  with_file("tokenizer_config.json", [&](const JsonValue& file) {
    spec.words.add_prefix_space = file.flag("add_prefix_space", false);
    added.read_decoder(file);
  });
  with_file("added_tokens.json", [&](const JsonValue& file) { added.read_added(file); });
  with_file("special_tokens_map.json", [&](const JsonValue& file) { added.read_special(file); });
  with_file("tokenizer_config.json", [&](const JsonValue& file) { added.read_special(file); });
  added.add_eos(folder);
  check_added_ids(spec, folder.string());
  return spec;
}

std::optional<std::string> find_eos_token(const fs::path& folder, const BpeTokenizerSpec& spec) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path path = folder / name;
    if (!fs::exists(path)) continue;
    const json content = read_data_json(path);
    const JsonValue file(content, path.string());
    if (file.has("eos_token")) return token_of(file.at("eos_token")).content;
  }
  const std::string usual = "<|endoftext|>";
  const auto is_usual = [&](const AddedToken& token) { return token.content == usual; };
  const bool known =
      spec.vocabulary.ids.count(usual) > 0 || std::any_of(spec.words.added.begin(), spec.words.added.end(), is_usual);
  return known ? std::optional(usual) : std::nullopt;
}

}  // namespace shardline
