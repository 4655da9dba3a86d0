#include "engine/data/cache/document_ends.h"

#include <xxhash.h>

#include <algorithm>

#include "core/error.h"

namespace shardline {

DocumentEnds::DocumentEnds(const TokenCache& tokens) : file_(path_of(tokens.path())) {
  const auto* ends = reinterpret_cast<const int64_t*>(file_.bytes().data());
  ends_ = {ends, file_.size() / sizeof(int64_t)};
  // Readers rely on the order of the ends, which the checksum ensures.
  if (file_.size() != tokens.documents() * sizeof(int64_t) ||
      XXH3_64bits(file_.bytes().data(), file_.size()) != tokens.ends_checksum())
    throw DataError(
        cat(file_.path().string(), ": does not belong to ", tokens.path().filename().string(), "; remove both"));
}

int64_t DocumentEnds::document_of(int64_t token) const {
  SL_ASSERT(token >= 0 && !ends_.empty() && token < ends_.back(), "token ", token);
  return std::ranges::upper_bound(ends_, token) - ends_.begin();
}

}  // namespace shardline
