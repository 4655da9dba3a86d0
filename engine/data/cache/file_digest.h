// A digest of files and of what is made from them, by which a cache is found again.
#pragma once
#include <xxhash.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace shardline {

// Streams XXH3. Texts and files are added with their length, so that adjacent ones cannot be confused.
class FileDigest {
 public:
  FileDigest();
  void add(std::string_view text);
  // read: called from time to time with the bytes that were read since the last call.
  void add_file(const std::filesystem::path& path, const std::function<void(int64_t bytes)>& read);
  XXH128_hash_t value() const;

 private:
  void add_size(uint64_t size);

  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// 32 hexadecimal digits.
std::string digest_text(XXH128_hash_t digest);

}  // namespace shardline
