// The first 128 bytes of a token cache; the ids (little-endian u16 or u32) follow.
#pragma once
#include <xxhash.h>

#include <cstddef>
#include <cstdint>

namespace shardline {

struct TokenCacheHeader {
  static constexpr char kMagic[8] = {'S', 'L', 'T', 'O', 'K', 'E', 'N', 'S'};
  static constexpr uint32_t kVersion = 4;  // must also increase when tokenizing changes: it is part of the digest

  char magic[8] = {};
  uint32_t version = 0;
  uint32_t width = 0;  // bytes of an id
  uint64_t tokens = 0;
  uint64_t documents = 0;
  uint64_t vocab_size = 0;
  uint64_t digest[2] = {};
  uint64_t ids_checksum = 0;
  uint64_t ends_checksum = 0;  // covers the file of DocumentEnds
  uint64_t unused[6] = {};
  uint64_t checksum = 0;  // covers everything above

  uint64_t expected_checksum() const { return XXH3_64bits(this, offsetof(TokenCacheHeader, checksum)); }
};
static_assert(sizeof(TokenCacheHeader) == 128);

}  // namespace shardline
