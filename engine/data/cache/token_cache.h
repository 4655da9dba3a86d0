// The token ids of a data set in one memory-mapped file, with another one for the ends of documents. They are made
// once per host and found again by a digest of everything that they depend on: paths, sizes and contents of the data
// files, the tokenizer, the options and the version of this format.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/files/mapped_file.h"
#include "engine/data/text/data_format.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {

struct TokenDataOptions {
  std::vector<std::string> paths;
  DataFormat format = DataFormat::automatic;
  std::string text_column = "text";  // in files with columns
  TokenizerPtr tokenizer;            // may be null when all files hold tokens
  int64_t vocab_size = 0;            // the model's; every id is below it
  // Add the tokenizer's end-of-text token, if it has one, to each document that does not end with it.
  bool end_documents = false;
  std::filesystem::path cache_folder;
  int threads = 1;
  // Called on this thread from time to time with the bytes that are done and the total bytes, in both passes over the
  // files, or, while another process makes the same cache, with the bytes that it has written and 0. May be empty.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
  // How long to wait for another process that makes the same cache if it makes no progress; 0: three quarters of the
  // time limit of a collective.
  std::chrono::milliseconds lock_limit{0};
  // Bytes of text between two places from which the work of an interrupted process can be continued.
  int64_t save_every_bytes = int64_t{64} << 20;
};

class TokenCache {
 public:
  // Throws DataError if the file is not a complete token cache: wrong magic, version, checksum of the header, or size.
  explicit TokenCache(const std::filesystem::path& path);

  int64_t size() const { return size_; }  // tokens
  int64_t documents() const { return documents_; }
  int64_t vocab_size() const { return vocab_size_; }
  uint64_t ids_checksum() const { return ids_checksum_; }    // covers the tokens alone
  uint64_t ends_checksum() const { return ends_checksum_; }  // covers the ends of documents, see DocumentEnds
  const std::string& digest() const { return digest_; }      // for ranks to compare: same digest, same tokens
  const std::filesystem::path& path() const { return file_.path(); }

  // Copies tokens [first, first + count) to `out`. Throws DataError if the file is damaged and an id is not below
  // vocab_size.
  void read(int64_t first, int64_t count, int64_t* out) const;
  // Whether the ids are those that were written. Reads all of them, and reports the bytes.
  bool is_intact(const std::function<void(int64_t done_bytes, int64_t total_bytes)>& progress = {}) const;

 private:
  MappedFile file_;
  int64_t width_ = 0;  // bytes of an id: 2 or 4
  int64_t size_ = 0;
  int64_t documents_ = 0;
  int64_t vocab_size_ = 0;
  uint64_t ids_checksum_ = 0, ends_checksum_ = 0;
  std::string digest_;
};
using TokenCachePtr = std::shared_ptr<const TokenCache>;

// Returns the path of the cache for these options; makes the cache if it is missing or damaged. Several processes may
// call it at the same time: one makes the cache, and the others wait. The work that a killed process has saved is not
// repeated. Throws DataError for bad data, and RunError if the cache's disk fails. A file under the cache's name is
// always complete, and the file of its DocumentEnds is next to it.
std::filesystem::path prepare_token_cache(const TokenDataOptions& options);
TokenCachePtr open_token_cache(const std::filesystem::path& path);

}  // namespace shardline
