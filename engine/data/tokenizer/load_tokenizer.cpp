#include <xxhash.h>

#include "core/error.h"
#include "core/files/mapped_file.h"
#include "core/hex.h"
#include "engine/data/tokenizer/bpe_tokenizer.h"
#include "engine/data/tokenizer/byte_tokenizer.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/tokenizer_json.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// All files that may affect the ids; a missing file is hashed as such.
std::string digest_of(const fs::path& folder, const fs::path& json) {
  XXH64_hash_t digest = 0;
  for (const fs::path& path : {json, folder / "vocab.json", folder / "merges.txt", folder / "added_tokens.json",
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

TokenizerPtr build(BpeTokenizerSpec spec, const fs::path& folder, const fs::path& json) {
  spec.eos = find_eos_token(folder, spec);
  spec.digest = digest_of(folder, json);
  try {
    return std::make_shared<BpeTokenizer>(spec);
  } catch (const DataError& error) {
    throw DataError(cat((json.empty() ? folder : json).string(), ": ", error.what()));
  }
}

TokenizerPtr load_folder(const fs::path& folder) {
  const fs::path json = folder / "tokenizer.json";
  if (fs::exists(json)) return build(read_tokenizer_json(json), folder, json);
  if (fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt")) {
    return build(read_vocab_and_merges(folder), folder, {});
  }
  for (const char* other : {"tokenizer.model", "vocab.txt", "spiece.model"}) {
    if (!fs::exists(folder / other)) continue;
    throw DataError(cat(folder.string(), ": has only ", other,
                        ", and SentencePiece and WordPiece vocabularies are not supported; byte-level BPE is"));
  }
  throw DataError(cat(folder.string(), ": has no tokenizer.json and no vocab.json with merges.txt"));
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
  return build(read_tokenizer_json(path), path.parent_path(), path);
}

}  // namespace shardline
