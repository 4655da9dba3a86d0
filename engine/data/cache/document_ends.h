// Where the documents of a token cache end, in a file next to it.
#pragma once
#include <cstdint>
#include <span>

#include "engine/data/cache/token_cache.h"

namespace shardline {

// A document ends at the end of a file or of a row of a table, at the ends in a Megatron index, and after each
// end-of-text token of the tokenizer. Documents without tokens are left out. With TokenDataOptions::end_documents, all
// documents end with that token.
class DocumentEnds {
 public:
  // Throws DataError if the file is missing or is not the one that was written with the cache.
  explicit DocumentEnds(const TokenCache& tokens);

  int64_t documents() const { return std::ssize(ends_); }
  int64_t begin(int64_t document) const { return document == 0 ? 0 : ends_[document - 1]; }
  int64_t end(int64_t document) const { return ends_[document]; }
  // The document that has this token.
  int64_t document_of(int64_t token) const;

  static std::filesystem::path path_of(std::filesystem::path tokens) { return tokens.replace_extension(".ends"); }

 private:
  MappedFile file_;
  std::span<const int64_t> ends_;  // number of tokens before the end of each document, ascending
};

}  // namespace shardline
