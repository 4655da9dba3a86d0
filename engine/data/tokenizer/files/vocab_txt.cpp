#include "core/error.h"
#include "core/files/json_data.h"
#include "core/files/mapped_file.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/files/added_token_files.h"
#include "engine/data/tokenizer/files/vocabulary_files.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kMostTokens = 1 << 24;

std::string_view without_space_at_end(std::string_view line) {
  for (size_t end = line.size(); end > 0;) {
    if (!is_white_space(previous_code_point(line, end))) break;
    line = line.substr(0, end);
  }
  return line;
}

std::unordered_map<std::string, int32_t> read_lines(const fs::path& path) {
  const MappedFile file(path);
  std::unordered_map<std::string, int32_t> ids;
  std::string_view rest = file.bytes();
  for (int32_t id = 0; !rest.empty(); ++id) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (id == kMostTokens)
      throw DataError(cat(path.string(), ": a vocabulary may have at most ", kMostTokens, " tokens"));
    if (!is_valid_utf8(line)) throw DataError(cat(path.string(), ":", id + 1, ": invalid UTF-8"));
    ids[std::string(without_space_at_end(line))] = id;
  }
  return ids;
}

}  // namespace

TokenizerSpec read_vocab_txt(const fs::path& folder, const std::string& tokenizer_class) {
  if (!tokenizer_class.empty() && tokenizer_class != "BertTokenizer" && tokenizer_class != "DistilBertTokenizer") {
    throw DataError(cat(folder.string(),
                        ": a vocab.txt without tokenizer.json is supported for BertTokenizer and "
                        "DistilBertTokenizer, not for ",
                        tokenizer_class));
  }
  const RoleNames names = read_role_names(folder, {{SpecialToken::unk, "[UNK]"},
                                                   {SpecialToken::sep, "[SEP]"},
                                                   {SpecialToken::pad, "[PAD]"},
                                                   {SpecialToken::cls, "[CLS]"},
                                                   {SpecialToken::mask, "[MASK]"}});
  BertNormalizerOptions normalizer;
  with_json_file(folder, "tokenizer_config.json", [&](const JsonValue& file) {
    normalizer.lowercase = file.flag("do_lower_case", true);
    normalizer.handle_chinese_chars = file.flag("tokenize_chinese_chars", true);
    if (file.has("strip_accents")) normalizer.strip_accents = file.flag("strip_accents", false);
  });
  const WordPieceOptions model{.unknown = names.at(SpecialToken::unk)};
  TokenizerSpec spec;
  spec.ids = read_lines(folder / "vocab.txt");
  spec.model = model;
  spec.normalizer = bert_normalizer(normalizer);
  spec.pre_tokenizer = bert_pre_tokenizer();
  spec.decoder = word_piece_decoder(model.prefix);
  add_tokens_of_folder(folder, names, {}, spec);
  const auto id_of = [&](SpecialToken role) { return find_token(spec, names.at(role)).value(); };
  spec.post_processor = bert_post_processor(id_of(SpecialToken::cls), id_of(SpecialToken::sep));
  return spec;
}

}  // namespace shardline
