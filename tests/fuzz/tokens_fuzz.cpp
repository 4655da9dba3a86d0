// Files of token ids: data.bin as raw u16, in llm.c's format or, with data.idx, in Megatron's; and cache.tokens as our
// cache, whose checksum is repaired so that later checks are reached. Every id that is read is below the vocabulary's
// size, and all of them can be read.
#include <cstring>
#include <memory>
#include <optional>

#include "engine/data/cache/token_cache.h"
#include "engine/data/cache/token_cache_header.h"
#include "engine/data/source/data_source.h"
#include "engine/data/source/token_file.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::tokens_fuzz {
namespace {

constexpr int64_t kVocabulary = 50257;

bool read_token_file(const std::string& path, size_t size) {
  std::optional<TokenFile> file;
  if (!fuzz::accepts(size, [&] { file.emplace(path); })) return false;
  FUZZ_REQUIRE(file->size() >= 0 && file->documents() >= 0 && file->size() <= file->bytes(), file->size());
  std::vector<int32_t> ids;
  const bool accepted = fuzz::accepts(size, [&] { ids = file->read(0, file->size(), kVocabulary); });
  for (const int32_t id : ids) FUZZ_REQUIRE(id >= 0 && id < kVocabulary, id);

  std::vector<int32_t> in_pieces;
  const bool again = fuzz::accepts(size, [&] {
    const auto source = open_data_source({path, DataFormat::tokens}, {.vocab_size = kVocabulary, .piece_bytes = 5});
    Seam border;
    int64_t ends = 0;
    for (int64_t piece = 0; piece < source->pieces(); ++piece) {
      FUZZ_REQUIRE(source->piece_bytes(piece) >= 0, source->piece_bytes(piece));
      EncodedPiece encoded = source->encode(piece);
      int64_t last = 0;
      for (const int64_t end : encoded.document_ends) {
        FUZZ_REQUIRE(end >= last && end <= std::ssize(encoded.part.ids), end);
        last = end;
        ++ends;
      }
      const auto more = source->join(piece, std::move(encoded.part), border);
      in_pieces.insert(in_pieces.end(), more.begin(), more.end());
    }
    FUZZ_REQUIRE(ends <= file->documents(), ends, " documents");
  });
  FUZZ_REQUIRE(again == accepted && (!accepted || in_pieces == ids), "pieces differ from the whole");
  return accepted;
}

bool read_cache(std::string bytes) {
  if (bytes.size() >= sizeof(TokenCacheHeader)) {
    TokenCacheHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    header.checksum = header.expected_checksum();
    std::memcpy(bytes.data(), &header, sizeof header);
  }
  const std::string path = fuzz::file_with("cache.tokens", bytes);
  std::unique_ptr<const TokenCache> cache;
  if (!fuzz::accepts(bytes.size(), [&] { cache = std::make_unique<TokenCache>(path); })) return false;
  FUZZ_REQUIRE(cache->size() >= 0 && cache->documents() >= 0 && cache->vocab_size() >= 0, cache->size());
  FUZZ_REQUIRE(cache->size() <= std::ssize(bytes), cache->size());
  std::vector<int64_t> ids(cache->size());
  const bool accepted = fuzz::accepts(bytes.size(), [&] { cache->read(0, cache->size(), ids.data()); });
  if (accepted)
    for (const int64_t id : ids) FUZZ_REQUIRE(id >= 0 && id < cache->vocab_size(), id);
  cache->is_intact();
  return accepted;
}

}  // namespace

FUZZ_TARGET(tokens) {
  auto files = fuzz::files_of(data, size, {"data.bin", "data.idx", "cache.tokens"});
  bool accepted = !files.contains("cache.tokens") || read_cache(files["cache.tokens"]);
  files.erase("cache.tokens");
  if (files.contains("data.idx")) files["data.bin"];
  fuzz::fill_folder(files);
  if (!files.contains("data.bin")) return accepted;
  const std::string path = (fuzz::folder() / "data.bin").string();
  accepted &= read_token_file(path, size);
  fuzz::accepts(size, [&] { check_data_files({path}, DataFormat::automatic, "text"); });
  return accepted;
}

}  // namespace shardline::tokens_fuzz
