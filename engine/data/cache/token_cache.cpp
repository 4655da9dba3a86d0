#include "engine/data/cache/token_cache.h"

#include <cstring>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/hex.h"
#include "engine/data/cache/token_cache_header.h"

namespace shardline {
namespace {

template <class Id>
void widen(const char* from, int64_t count, int64_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    Id id;
    std::memcpy(&id, from + i * sizeof(Id), sizeof id);
    out[i] = id;
  }
}

std::string hex(const uint64_t (&digest)[2]) {
  return hex_digits(digest[0]) + hex_digits(digest[1]);
}

}  // namespace

TokenCache::TokenCache(const std::filesystem::path& path) : file_(path) {
  const auto check = [&](bool good, const auto&... message) {
    if (!good) throw DataError(cat(path.string(), ": is not a complete token cache: ", message..., "; remove it"));
  };
  check(file_.size() >= sizeof(TokenCacheHeader), "it has ", file_.size(), " bytes");
  TokenCacheHeader header;
  std::memcpy(&header, file_.bytes().data(), sizeof header);
  check(std::memcmp(header.magic, TokenCacheHeader::kMagic, sizeof header.magic) == 0,
        "it does not begin with the format's name");
  check(header.checksum == header.expected_checksum(), "the checksum of its header is wrong");
  check(header.version == TokenCacheHeader::kVersion, "it has version ", header.version);
  check(header.width == 2 || header.width == 4, "its ids have ", header.width, " bytes");
  check(header.tokens <= file_.size() && sizeof header + header.tokens * header.width == file_.size(), "it has ",
        file_.size(), " bytes for ", header.tokens, " tokens of ", header.width, " bytes");
  check(std::in_range<int64_t>(header.documents) && std::in_range<int64_t>(header.vocab_size), "it has ",
        header.documents, " documents and a vocabulary of ", header.vocab_size);
  width_ = header.width;
  size_ = header.tokens;
  documents_ = header.documents;
  vocab_size_ = header.vocab_size;
  ids_checksum_ = header.ids_checksum;
  ends_checksum_ = header.ends_checksum;
  digest_ = hex(header.digest);
}

void TokenCache::read(int64_t first, int64_t count, int64_t* out) const {
  SL_ASSERT(first >= 0 && count >= 0 && first + count <= size_, "tokens ", first, " + ", count, " of ", size_);
  const char* from = file_.bytes().data() + sizeof(TokenCacheHeader) + first * width_;
  if (width_ == 2) {
    widen<uint16_t>(from, count, out);
  } else {
    widen<uint32_t>(from, count, out);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (out[i] < vocab_size_) continue;
    throw DataError(cat(path().string(), ": token ", first + i, " is ", out[i], ", outside the vocabulary of ",
                        vocab_size_, "; the token cache is damaged; remove it"));
  }
}

bool TokenCache::is_intact(const std::function<void(int64_t, int64_t)>& progress) const {
  constexpr size_t kPart = size_t{64} << 20;
  const std::string_view ids = file_.bytes().substr(sizeof(TokenCacheHeader));
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (size_t offset = 0; offset < ids.size(); offset += kPart) {
    const std::string_view part = ids.substr(offset, kPart);
    XXH3_64bits_update(state.get(), part.data(), part.size());
    if (progress) progress(offset + part.size(), ids.size());
  }
  return XXH3_64bits_digest(state.get()) == ids_checksum_;
}

TokenCachePtr open_token_cache(const std::filesystem::path& path) {
  return std::make_shared<TokenCache>(path);
}

}  // namespace shardline
