#include <xxhash.h>

#include <algorithm>

#include "core/error.h"
#include "core/files/mapped_file.h"
#include "core/hex.h"
#include "engine/data/tokenizer/byte_tokenizer.h"
#include "engine/data/tokenizer/files/added_token_files.h"
#include "engine/data/tokenizer/files/input_settings.h"
#include "engine/data/tokenizer/files/tokenizer_json.h"
#include "engine/data/tokenizer/files/vocabulary_files.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSentencePieceFiles[] = {"sentencepiece.bpe.model", "tokenizer.model", "spiece.model"};

bool has_vocab_and_merges(const fs::path& folder) {
  return fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt");
}

// All files that may affect the ids; a missing file is hashed as such.
std::string digest_of(const fs::path& folder, const fs::path& vocabulary) {
  XXH64_hash_t digest = 0;
  for (const fs::path& path : {vocabulary, folder / "vocab.json", folder / "merges.txt", folder / "added_tokens.json",
                               folder / "special_tokens_map.json", folder / "tokenizer_config.json"}) {
    if (path.empty() || !fs::is_regular_file(path)) {
      digest = XXH3_64bits_withSeed("-", 1, digest);
      continue;
    }
    const MappedFile file(path);
    digest = XXH3_64bits_withSeed(file.bytes().data(), file.size(), digest + 1);
  }
  return hex_digits(digest);
}

// tokenizer_class: empty if it determines nothing about the input besides what is in `spec`.
TokenizerPtr build(TokenizerSpec spec, const fs::path& folder, const fs::path& vocabulary, const std::string& digest,
                   const std::string& tokenizer_class = "") {
  const SpecialTokens special = find_special_tokens(folder, spec);
  const std::string settings = apply_settings(folder, tokenizer_class, spec);
  try {
    return make_tokenizer(std::move(spec), special, digest + settings);
  } catch (const DataError& error) {
    throw DataError(cat(vocabulary.string(), ": ", error.what()));
  }
}

TokenizerPtr load_file(const fs::path& file) {
  const fs::path folder = file.parent_path();
  const std::string name = tokenizer_class(folder);
  return build(read_tokenizer_json(file, name), folder, file, digest_of(folder, file) + name, name);
}

TokenizerPtr load_folder(const fs::path& folder) {
  const fs::path file = folder / "tokenizer.json";
  if (fs::exists(file)) return load_file(file);
  const std::string name = tokenizer_class(folder);
  if (has_vocab_and_merges(folder)) {
    return build(read_vocab_and_merges(folder, name), folder, folder, digest_of(folder, {}) + name);
  }
  if (const fs::path vocab = folder / "vocab.txt"; fs::exists(vocab)) {
    return build(read_vocab_txt(folder, name), folder, vocab, digest_of(folder, vocab) + name);
  }
  for (const char* other : kSentencePieceFiles) {
    const fs::path model = folder / other;
    if (fs::exists(model))
      return build(read_sentence_piece(model, name), folder, model, digest_of(folder, model) + name);
  }
  throw DataError(cat(folder.string(),
                      ": has no tokenizer.json, no vocab.json with merges.txt, no vocab.txt and no SentencePiece model "
                      "(sentencepiece.bpe.model, tokenizer.model)"));
}

}  // namespace

TokenizerPtr load_tokenizer(const std::string& source) {
  if (source == "bytes") return std::make_shared<ByteTokenizer>();
  const fs::path path(source);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return load_folder(path);
  if (!fs::exists(path, ignored)) {
    throw DataError(cat("the tokenizer '", source, "' is neither \"bytes\" nor an existing file or folder"));
  }
  return load_file(path);
}

bool has_tokenizer(const std::string& folder) {
  const fs::path path(folder);
  const auto exists = [&](const char* name) { return fs::exists(path / name); };
  return exists("tokenizer.json") || has_vocab_and_merges(path) || exists("vocab.txt") ||
         std::ranges::any_of(kSentencePieceFiles, exists);
}

}  // namespace shardline
