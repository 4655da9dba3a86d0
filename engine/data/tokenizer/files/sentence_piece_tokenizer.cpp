#include <memory>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/data/text/charsmap.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/files/added_token_files.h"
#include "engine/data/tokenizer/files/sentence_piece_model.h"
#include "engine/data/tokenizer/files/vocabulary_files.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr char32_t kSpaceMark = 0x2581;
constexpr size_t kReservedPieces = 3;   // <unk>, <s>, </s>
constexpr size_t kLongestMerged = 256;  // bytes of a token that merges make; SentencePiece's own limit is 16 characters

struct Flags {
  bool add_prefix_space = true;
  bool legacy = false;
  bool add_bos = false, add_eos = false;
};

Flags read_flags(const fs::path& folder) {
  Flags flags;
  with_json_file(folder, "tokenizer_config.json", [&](const JsonValue& file) {
    flags.add_prefix_space = file.flag("add_prefix_space", true);
    flags.legacy = file.flag("legacy", false);
    flags.add_bos = file.flag("add_bos_token", false);
    flags.add_eos = file.flag("add_eos_token", false);
  });
  return flags;
}

// Pieces that are searched for in the text.
std::vector<AddedToken> pieces_in_text(const SentencePieceModel& model) {
  std::vector<AddedToken> tokens;
  for (const auto& piece : model.pieces) {
    if (piece.type == SentencePieceModel::kControl || piece.type == SentencePieceModel::kUserDefined)
      tokens.push_back({.content = piece.text, .special = piece.type == SentencePieceModel::kControl});
  }
  return tokens;
}

// XLM-R has tokens of its own before and after the pieces; they replace the first pieces of the file, whose ids differ.
TokenizerSpec xlm_roberta(const fs::path& folder, const SentencePieceModel& model) {
  const RoleNames names = read_role_names(folder, {{SpecialToken::bos, "<s>"},
                                                   {SpecialToken::eos, "</s>"},
                                                   {SpecialToken::sep, "</s>"},
                                                   {SpecialToken::cls, "<s>"},
                                                   {SpecialToken::unk, "<unk>"},
                                                   {SpecialToken::pad, "<pad>"},
                                                   {SpecialToken::mask, "<mask>"}});
  const Flags flags = read_flags(folder);
  UnigramVocabulary vocabulary;
  for (const SpecialToken role : {SpecialToken::bos, SpecialToken::pad, SpecialToken::eos, SpecialToken::unk})
    vocabulary.tokens.emplace_back(names.at(role), 0);
  vocabulary.unknown = 3;
  for (size_t i = kReservedPieces; i < model.pieces.size(); ++i)
    vocabulary.tokens.emplace_back(model.pieces[i].text, model.pieces[i].score);
  vocabulary.tokens.emplace_back(names.at(SpecialToken::mask), 0);

  TokenizerSpec spec;
  for (int32_t id = 0; id < std::ssize(vocabulary.tokens); ++id) spec.ids[vocabulary.tokens[id].first] = id;
  spec.model = std::move(vocabulary);
  if (!model.charsmap.empty()) {
    spec.normalizer = [map = std::make_shared<CharsMap>(model.charsmap)](AlignedText& text) { map->apply(text); };
  }
  const PrependScheme scheme = flags.add_prefix_space ? PrependScheme::always : PrependScheme::never;
  spec.pre_tokenizer = {.steps = {white_space_split(), metaspace(kSpaceMark, scheme, true)},
                        .removes_white_space = true};
  spec.decoder = metaspace_decoder(kSpaceMark, flags.add_prefix_space);
  add_tokens_of_folder(folder, names, pieces_in_text(model), spec);
  const auto id_of = [&](SpecialToken role) { return find_token(spec, names.at(role)).value(); };
  spec.post_processor = roberta_post_processor(id_of(SpecialToken::bos), id_of(SpecialToken::eos));
  return spec;
}

// All pairs of pieces that make another piece, in the order of the pieces that they make.
std::vector<std::pair<std::string, std::string>> merges_of(const SentencePieceModel& model,
                                                           const std::unordered_map<std::string, int32_t>& ids) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (int32_t id = 0; id < std::ssize(model.pieces); ++id) {
    const std::string& text = model.pieces[id].text;
    if (text.size() > kLongestMerged)
      throw DataError(cat("piece ", id, " has ", text.size(), " bytes; a piece may have at most ", kLongestMerged));
    if (ids.at(text) != id) continue;  // a later piece has the same text
    for (size_t cut = 0; cut < text.size();) {
      next_code_point(text, cut);
      std::string left = text.substr(0, cut);
      std::string right = text.substr(cut);
      if (ids.contains(left) && ids.contains(right)) merges.emplace_back(std::move(left), std::move(right));
    }
  }
  return merges;
}

TokenizerSpec llama(const fs::path& folder, const SentencePieceModel& model) {
  const RoleNames names =
      read_role_names(folder, {{SpecialToken::unk, "<unk>"}, {SpecialToken::bos, "<s>"}, {SpecialToken::eos, "</s>"}});
  const Flags flags = read_flags(folder);
  TokenizerSpec spec;
  for (int32_t id = 0; id < std::ssize(model.pieces); ++id) spec.ids[model.pieces[id].text] = id;
  BpeVocabulary vocabulary;
  vocabulary.byte_level = false;
  vocabulary.byte_fallback = true;
  vocabulary.fuse_unknown = true;
  vocabulary.merges = merges_of(model, spec.ids);
  spec.model = std::move(vocabulary);
  const PrependScheme scheme = !flags.add_prefix_space ? PrependScheme::never
                               : flags.legacy          ? PrependScheme::always
                                                       : PrependScheme::first;
  spec.pre_tokenizer = {.steps = {metaspace(kSpaceMark, scheme, false)}};
  spec.decoder = byte_fallback_decoder(flags.add_prefix_space);
  add_tokens_of_folder(folder, names, pieces_in_text(model), spec);
  const auto add_around = [&](bool adds, SpecialToken role, int32_t type, std::vector<TemplatePart>& parts) {
    if (adds) parts.push_back({.type = type, .ids = {find_token(spec, names.at(role)).value()}});
  };
  const auto add_text = [&](int32_t sequence, std::vector<TemplatePart>& parts) {
    add_around(flags.add_bos, SpecialToken::bos, sequence, parts);
    parts.push_back({.sequence = sequence, .type = sequence});
    add_around(flags.add_eos, SpecialToken::eos, sequence, parts);
  };
  spec.post_processor = {.single = {}, .pair = {}};
  add_text(0, spec.post_processor.single);
  add_text(0, spec.post_processor.pair);
  add_text(1, spec.post_processor.pair);
  return spec;
}

}  // namespace

TokenizerSpec read_sentence_piece(const fs::path& file, const std::string& tokenizer_class) {
  const bool is_llama = tokenizer_class == "LlamaTokenizer";
  if (!is_llama && tokenizer_class != "XLMRobertaTokenizer") {
    throw DataError(cat(file.string(),
                        ": a SentencePiece model without tokenizer.json is supported for XLMRobertaTokenizer "
                        "and LlamaTokenizer, not for ",
                        tokenizer_class.empty() ? "a folder that names no class" : tokenizer_class,
                        "; name the class in tokenizer_config.json as \"tokenizer_class\""));
  }
  const SentencePieceModel model = read_sentence_piece_model(file);
  const int algorithm = is_llama ? SentencePieceModel::kBpe : SentencePieceModel::kUnigram;
  if (model.algorithm != algorithm) {
    throw DataError(cat(file.string(), ": ", tokenizer_class, " uses SentencePiece's algorithm ", algorithm,
                        " (1: unigram, 2: BPE), but the model was trained with ", model.algorithm));
  }
  if (model.pieces.size() < kReservedPieces)
    throw DataError(cat(file.string(), ": a model has at least 3 pieces (<unk>, <s> and </s>), but this one has ",
                        model.pieces.size()));
  try {
    return is_llama ? llama(file.parent_path(), model) : xlm_roberta(file.parent_path(), model);
  } catch (const DataError& error) {
    throw DataError(cat(file.string(), ": ", error.what()));
  }
}

}  // namespace shardline
