#include <algorithm>

#include "core/error.h"
#include "core/files/json_data.h"
#include "core/files/mapped_file.h"
#include "engine/data/tokenizer/files/added_token_files.h"
#include "engine/data/tokenizer/files/tokenizer_json.h"
#include "engine/data/tokenizer/files/vocabulary_files.h"

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

// The roles that GPT2Tokenizer has by default, if the vocabulary has their token.
RoleNames gpt2_roles(const TokenizerSpec& spec) {
  const std::string token = "<|endoftext|>";
  if (!spec.ids.contains(token)) return {};
  return {{SpecialToken::bos, token}, {SpecialToken::eos, token}, {SpecialToken::unk, token}};
}

RoleNames roberta_roles() {
  return {{SpecialToken::bos, "<s>"},    {SpecialToken::eos, "</s>"},  {SpecialToken::sep, "</s>"},
          {SpecialToken::cls, "<s>"},    {SpecialToken::unk, "<unk>"}, {SpecialToken::pad, "<pad>"},
          {SpecialToken::mask, "<mask>"}};
}

}  // namespace

TokenizerSpec read_vocab_and_merges(const fs::path& folder, const std::string& tokenizer_class) {
  const bool roberta = tokenizer_class == "RobertaTokenizer";
  if (!roberta && !tokenizer_class.empty() && tokenizer_class != "GPT2Tokenizer") {
    throw DataError(cat(folder.string(),
                        ": a vocab.json with merges.txt but without tokenizer.json is supported for "
                        "GPT2Tokenizer and RobertaTokenizer, not for ",
                        tokenizer_class));
  }
  TokenizerSpec spec;
  const fs::path vocab = folder / "vocab.json";
  const json ids = read_data_json(vocab);
  spec.ids = read_vocabulary(JsonValue(ids, vocab.string()));
  BpeVocabulary model;
  model.merges = read_merges_file(folder / "merges.txt");
  spec.model = std::move(model);
  WordRules rules;
  bool trim_offsets = true;
  with_json_file(folder, "tokenizer_config.json", [&](const JsonValue& file) {
    rules.add_prefix_space = file.flag("add_prefix_space", false);
    trim_offsets = file.flag("trim_offsets", true);
  });
  spec.pre_tokenizer = byte_level_pre_tokenizer(rules.add_prefix_space);
  spec.decoder = byte_level_decoder();
  spec.window_rules = rules;
  const RoleNames names = read_role_names(folder, roberta ? roberta_roles() : gpt2_roles(spec));
  add_tokens_of_folder(folder, names, {}, spec);
  if (roberta) {
    const auto id_of = [&](SpecialToken role) { return find_token(spec, names.at(role)).value(); };
    spec.post_processor = roberta_post_processor(id_of(SpecialToken::cls), id_of(SpecialToken::sep));
    if (trim_offsets) spec.post_processor.trim = {.add_prefix_space = rules.add_prefix_space};
  }
  return spec;
}

}  // namespace shardline
