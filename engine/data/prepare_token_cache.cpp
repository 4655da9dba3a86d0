#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "engine/data/data_source.h"
#include "engine/data/file_lock.h"
#include "engine/data/new_file.h"
#include "engine/data/ordered_work.h"
#include "engine/data/token_cache.h"
#include "engine/data/token_cache_header.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// Streams xxh3; strings are added with their length, so that neighbours cannot flow into each other.
class Digest {
 public:
  Digest() : state_(XXH3_createState(), XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
  void add(std::string_view bytes) {
    const uint64_t size = bytes.size();
    XXH3_128bits_update(state_.get(), &size, sizeof size);
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  XXH128_hash_t value() const { return XXH3_128bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

XXH128_hash_t digest_of(const std::vector<DataFile>& files, const TokenDataOptions& options) {
  Digest digest;
  digest.add(cat("shardline tokens ", TokenCacheHeader::kVersion, " ", options.vocab_size));
  digest.add(options.text_column);
  digest.add(options.tokenizer ? options.tokenizer->digest() : "none");
  for (const DataFile& file : files) {
    digest.add(file.path.string());
    digest.add(cat(static_cast<int>(file.format)));
    digest.add(MappedFile(file.path).bytes());
    const fs::path index = fs::path(file.path).replace_extension(".idx");
    if (file.format == DataFormat::tokens && fs::exists(index)) digest.add(MappedFile(index).bytes());
  }
  return digest.value();
}

// Puts ids into the new file, narrowed, and keeps their checksum.
class IdWriter {
 public:
  IdWriter(NewFile& file, uint32_t width) : file_(file), width_(width), state_(XXH3_createState(), XXH3_freeState) {
    XXH3_64bits_reset(state_.get());
  }

  void append(const TokenIds& ids) {
    bytes_.resize(ids.size() * width_);
    for (size_t i = 0; i < ids.size(); ++i) std::memcpy(bytes_.data() + i * width_, &ids[i], width_);  // little-endian
    XXH3_64bits_update(state_.get(), bytes_.data(), bytes_.size());
    file_.append(bytes_);
    tokens_ += ids.size();
  }

  uint64_t tokens() const { return tokens_; }
  uint64_t checksum() const { return XXH3_64bits_digest(state_.get()); }

 private:
  NewFile& file_;
  uint32_t width_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
  std::string bytes_;
  uint64_t tokens_ = 0;
};

void check_ids(const TokenIds& ids, int64_t vocab_size, const DataFile& file) {
  const auto largest = std::max_element(ids.begin(), ids.end());
  if (largest == ids.end() || *largest < vocab_size) return;
  throw DataError(cat(file.path.string(), ": the tokenizer gives id ", *largest, ", but the model's vocabulary has ",
                      vocab_size, " entries; use the model's own tokenizer or a larger vocab_size"));
}

struct Work {
  const DataFile* file;
  const DataSource* source;
  int64_t piece;
};

void make_cache(const std::vector<DataFile>& files, const TokenDataOptions& options, XXH128_hash_t digest,
                const fs::path& path) {
  const DataSourceOptions source_options{options.tokenizer, options.vocab_size, options.text_column};
  std::vector<std::unique_ptr<DataSource>> sources;
  std::vector<Work> work;
  TokenCacheHeader header;
  int64_t total_bytes = 0;
  for (const DataFile& file : files) {
    const auto& source = sources.emplace_back(open_data_source(file, source_options));
    header.documents += source->documents();
    for (int64_t piece = 0; piece < source->pieces(); ++piece) {
      work.push_back({&file, source.get(), piece});
      total_bytes += source->piece_bytes(piece);
    }
  }

  NewFile file(path);
  header.width = options.vocab_size <= 65536 ? 2 : 4;
  file.append({reinterpret_cast<const char*>(&header), sizeof header});
  IdWriter writer(file, header.width);
  int64_t done_bytes = 0;
  const auto make = [&](int64_t i) { return work[i].source->encode(work[i].piece); };
  Seam border;
  const auto use = [&](int64_t i, EncodedPart part) {
    if (work[i].piece == 0) border = {};
    const TokenIds ids = work[i].source->join(work[i].piece, std::move(part), border);
    check_ids(ids, options.vocab_size, *work[i].file);
    writer.append(ids);
    done_bytes += work[i].source->piece_bytes(work[i].piece);
    if (options.progress) options.progress(done_bytes, total_bytes);
  };
  ordered_work(static_cast<int64_t>(work.size()), options.threads, make, use);
  if (writer.tokens() == 0) throw DataError(cat(files[0].path.string(), ": the data has no tokens at all"));

  std::memcpy(header.magic, TokenCacheHeader::kMagic, sizeof header.magic);
  header.version = TokenCacheHeader::kVersion;
  header.tokens = writer.tokens();
  header.vocab_size = options.vocab_size;
  header.digest[0] = digest.high64;
  header.digest[1] = digest.low64;
  header.ids_checksum = writer.checksum();
  header.checksum = header.expected_checksum();
  file.overwrite(0, {reinterpret_cast<const char*>(&header), sizeof header});
  file.commit();
}

bool is_good_cache(const fs::path& path, XXH128_hash_t digest) {
  if (!fs::exists(path)) return false;
  try {
    char name[33];
    std::snprintf(name, sizeof name, "%016llx%016llx", static_cast<unsigned long long>(digest.high64),
                  static_cast<unsigned long long>(digest.low64));
    const TokenCache cache(path);
    return cache.digest() == name && cache.is_intact();
  } catch (const DataError&) {
    return false;  // cut short or damaged: made again
  }
}

// With the lock: what a killed process left of this cache.
void remove_partial_files(const fs::path& path) {
  const std::string prefix = path.filename().string() + ".partial.";
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(path.parent_path()))
    if (entry.path().filename().string().starts_with(prefix)) left.push_back(entry.path());
  std::error_code ignored;
  for (const auto& file : left) fs::remove(file, ignored);
}

}  // namespace

fs::path prepare_token_cache(const TokenDataOptions& options) {
  SL_ASSERT(options.vocab_size > 0, "vocab_size is ", options.vocab_size);
  const std::vector<DataFile> files = find_data_files(options.paths, options.format);
  const XXH128_hash_t digest = digest_of(files, options);
  char name[32];
  std::snprintf(name, sizeof name, "tokens-%016llx.bin", static_cast<unsigned long long>(digest.high64));
  std::error_code error;
  fs::create_directories(options.cache_folder, error);
  if (error) throw RunError(cat(options.cache_folder.string(), ": cannot be created: ", error.message()));

  const fs::path path = options.cache_folder / name;
  const FileLock lock(path.string() + ".lock", options.lock_limit);
  if (is_good_cache(path, digest)) return path;
  remove_partial_files(path);
  make_cache(files, options, digest, path);
  return path;
}

}  // namespace shardline
