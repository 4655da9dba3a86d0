#include "engine/data/tokenizer/files/added_token_files.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/data/tokenizer/files/tokenizer_json.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Role {
  SpecialToken token;
  const char* key;
  std::vector<const char*> usual;  // names of the token; the first that exists counts
};

// The roles, in the order in which the reference library adds their tokens.
const std::vector<Role>& roles() {
  static const std::vector<Role> all = {{SpecialToken::bos, "bos_token", {"<s>", "<|endoftext|>"}},
                                        {SpecialToken::eos, "eos_token", {"<|endoftext|>", "</s>"}},
                                        {SpecialToken::unk, "unk_token", {"[UNK]", "<unk>"}},
                                        {SpecialToken::sep, "sep_token", {"[SEP]", "</s>"}},
                                        {SpecialToken::pad, "pad_token", {"[PAD]", "<pad>"}},
                                        {SpecialToken::cls, "cls_token", {"[CLS]", "<s>"}},
                                        {SpecialToken::mask, "mask_token", {"[MASK]", "<mask>"}}};
  return all;
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
  explicit AddedTokenFiles(TokenizerSpec& spec) : spec_(spec) {
    for (const auto& [token, id] : spec.ids) next_ = std::max(next_, id + 1);
  }

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
    for (const Role& role : roles()) {
      if (file.has(role.key)) add(token_of(file.at(role.key)), std::nullopt);
    }
    if (!file.has("additional_special_tokens")) return;
    for (const JsonValue& value : file.at("additional_special_tokens").items()) add(token_of(value), std::nullopt);
  }

  // Without `id`, the token has the vocabulary's id or else the next free one.
  void add(AddedToken token, std::optional<int32_t> id) {
    if (token.content.empty() || !added_.insert(token.content).second) return;
    const auto known = spec_.ids.find(token.content);
    token.id = id ? *id : known != spec_.ids.end() ? known->second : next_;
    next_ = std::max(next_, token.id + 1);
    spec_.added.push_back(std::move(token));
  }

 private:
  TokenizerSpec& spec_;
  std::unordered_set<std::string> added_;  // contents
  int32_t next_ = 0;                       // id
};

}  // namespace

void with_json_file(const fs::path& folder, const char* name, const std::function<void(const JsonValue&)>& use) {
  const fs::path path = folder / name;
  if (!fs::exists(path)) return;
  const json content = read_data_json(path);
  use(JsonValue(content, path.string()));
}

std::string tokenizer_class(const fs::path& folder) {
  std::string name;
  with_json_file(folder, "tokenizer_config.json",
                 [&](const JsonValue& file) { name = file.text("tokenizer_class", ""); });
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (!name.empty()) return name;
  static const std::map<std::string, const char*> by_model = {
      {"bert", "BertTokenizer"},   {"distilbert", "DistilBertTokenizer"}, {"roberta", "RobertaTokenizer"},
      {"gpt2", "GPT2Tokenizer"},   {"gpt_neo", "GPT2Tokenizer"},          {"gptj", "GPT2Tokenizer"},
      {"llama", "LlamaTokenizer"}, {"xlm-roberta", "XLMRobertaTokenizer"}};
  with_json_file(folder, "config.json", [&](const JsonValue& file) {
    const auto found = by_model.find(file.text("model_type", ""));
    if (found != by_model.end()) name = found->second;
  });
  return name;
}

RoleNames read_role_names(const fs::path& folder, RoleNames defaults) {
  RoleNames names;
  for (const char* file_name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    with_json_file(folder, file_name, [&](const JsonValue& file) {
      for (const Role& role : roles()) {
        if (file.has(role.key)) names.emplace(role.token, token_of(file.at(role.key)).content);
      }
    });
  }
  names.merge(defaults);
  return names;
}

void add_tokens_of_folder(const fs::path& folder, const RoleNames& names, const std::vector<AddedToken>& more,
                          TokenizerSpec& spec) {
  AddedTokenFiles added(spec);
  with_json_file(folder, "tokenizer_config.json", [&](const JsonValue& file) { added.read_decoder(file); });
  with_json_file(folder, "added_tokens.json", [&](const JsonValue& file) { added.read_added(file); });
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"})
    with_json_file(folder, name, [&](const JsonValue& file) { added.read_special(file); });
  for (const Role& role : roles()) {
    const auto named = names.find(role.token);
    if (named != names.end()) added.add({.content = named->second, .special = true}, std::nullopt);
  }
  for (const AddedToken& token : more) added.add(token, std::nullopt);
  check_added_ids(spec, folder.string());
}

void add_tokens_of_config(const fs::path& folder, TokenizerSpec& spec) {
  int32_t next = spec.ids.size();  // id
  for (const AddedToken& token : spec.added) next = std::max(next, token.id + 1);
  const auto put = [&](AddedToken token, std::optional<int32_t> id, bool replaces) {
    if (token.content.empty()) return;
    const auto same = std::ranges::find(spec.added, token.content, &AddedToken::content);
    if (same != spec.added.end()) {
      token.id = same->id;
      if (replaces) *same = std::move(token);
      return;
    }
    const auto known = spec.ids.find(token.content);
    token.id = known != spec.ids.end() ? known->second : id.value_or(next);
    next = std::max(next, token.id + 1);
    spec.added.push_back(std::move(token));
  };
  with_json_file(folder, "tokenizer_config.json", [&](const JsonValue& config) {
    if (config.has("added_tokens_decoder")) {
      std::map<int32_t, AddedToken> by_id;
      for (const auto& [key, value] : config.at("added_tokens_decoder").members())
        by_id[id_in(key, value)] = token_of(value);
      for (const auto& [id, token] : by_id) put(token, id, /*replaces=*/true);
    }
    for (const Role& role : roles())
      if (config.has(role.key))
        if (AddedToken token = token_of(config.at(role.key)); spec.ids.contains(token.content))
          put(std::move(token), {}, /*replaces=*/false);
    for (const char* more : {"additional_special_tokens", "extra_special_tokens"})
      if (config.has(more) && config.at(more).json().is_array())
        for (const JsonValue& value : config.at(more).items()) put(token_of(value), {}, /*replaces=*/false);
  });
  check_added_ids(spec, (folder / "tokenizer_config.json").string());
}

SpecialTokens find_special_tokens(const fs::path& folder, const TokenizerSpec& spec) {
  const RoleNames names = read_role_names(folder, {});
  SpecialTokens found;
  for (const Role& role : roles()) {
    const auto named = names.find(role.token);
    if (named != names.end()) {
      const auto id = find_token(spec, named->second);
      if (id) found.set(role.token, *id);
      if (!id && role.token == SpecialToken::eos)
        throw DataError(cat("the vocabulary has no token '", named->second, "', which is the eos_token"));
      continue;
    }
    for (const char* usual : role.usual) {
      const auto id = find_token(spec, usual);
      if (!id) continue;
      found.set(role.token, *id);
      break;
    }
  }
  return found;
}

}  // namespace shardline
