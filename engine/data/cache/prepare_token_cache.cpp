#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/error.h"
#include "engine/data/cache/document_ends.h"
#include "engine/data/cache/file_digest.h"
#include "engine/data/cache/make_once.h"
#include "engine/data/cache/ordered_work.h"
#include "engine/data/cache/partial_file.h"
#include "engine/data/cache/token_cache.h"
#include "engine/data/cache/token_cache_header.h"
#include "engine/data/cache/unpacked_file.h"
#include "engine/data/source/data_source.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHashedBytes = size_t{64} << 20;  // read at a time
constexpr int kEndsVersion = 1;                    // changes when the rule for the ends of documents changes
constexpr int kRowsVersion = 2;                    // changes when the rule for the tokens of a row changes

std::string_view bytes_of(const TokenCacheHeader& header) {
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

// Reports the progress of both passes: hashing the files, then checking or making the cache.
class Meter {
 public:
  Meter(const TokenDataOptions& options, int64_t file_bytes) : progress_(options.progress), bytes_(file_bytes) {}

  void hashed(int64_t bytes) { report(hashed_ += bytes); }
  void second_half(int64_t done, int64_t total) {
    const double part = total > 0 ? 1.0 * done / total : 1;
    const int64_t done_bytes = part * bytes_;
    report(bytes_ + done_bytes);
  }
  // Reading bytes again does not count as progress, but waiting processes must see that this one is alive.
  void read_again() { show(last_); }
  void finish() { report(kCachePasses * bytes_); }
  // From here on, each report sets the time of `file` to the current time, for processes that wait for this one.
  void mark(fs::path file) { marked_ = std::move(file); }
  // Reports that another process makes the cache and has written `bytes`; `progress` changes while it advances.
  void others(int64_t bytes, int64_t progress) {
    if (progress == others_) return;
    others_ = progress;
    if (progress_) progress_(bytes, 0);
  }

 private:
  void report(int64_t done) {
    if (done == last_) return;
    last_ = done;
    show(done);
  }
  void show(int64_t done) const {
    std::error_code ignored;
    if (!marked_.empty()) fs::last_write_time(marked_, fs::file_time_type::clock::now(), ignored);
    if (progress_) progress_(done, kCachePasses * bytes_);
  }

  const std::function<void(int64_t, int64_t)>& progress_;
  const int64_t bytes_;
  int64_t hashed_ = 0;
  int64_t last_ = 0;
  int64_t others_ = -1;
  fs::path marked_;
};

fs::path index_of(const DataFile& file) {
  const fs::path index = fs::path(file.path).replace_extension(".idx");
  return file.format == DataFormat::tokens && fs::exists(index) ? index : fs::path();
}

int64_t bytes_of(const std::vector<DataFile>& files) {
  int64_t bytes = 0;
  for (const DataFile& file : files) {
    std::error_code error;
    for (const fs::path& path : {file.path, index_of(file)}) {
      const auto size = path.empty() ? 0 : fs::file_size(path, error);
      if (error) throw DataError(cat(path.string(), ": cannot be read: ", error.message()));
      bytes += size;
    }
  }
  return bytes;
}

std::optional<int32_t> end_of_text(const TokenDataOptions& options) {
  return options.tokenizer ? options.tokenizer->eos() : std::nullopt;
}

XXH128_hash_t digest_of(const std::vector<DataFile>& files, const TokenDataOptions& options, Meter& meter) {
  FileDigest digest;
  const auto read = [&](int64_t bytes) { meter.hashed(bytes); };
  digest.add(cat("shardline tokens ", TokenCacheHeader::kVersion, " ", options.vocab_size, ", ends ", kEndsVersion,
                 ", rows ", kRowsVersion));
  digest.add(options.text_column);
  digest.add(options.tokenizer ? options.tokenizer->digest() : "none");
  if (const auto eos = end_of_text(options))
    digest.add(cat(options.end_documents ? "added " : "", "end of text ", *eos));
  for (const DataFile& file : files) {
    digest.add(file.path.string());
    digest.add(cat(static_cast<int>(file.format)));
    digest.add_file(file.path, read);
    if (const fs::path index = index_of(file); !index.empty()) digest.add_file(index, read);
  }
  return digest.value();
}

void check_ids(const TokenIds& ids, int64_t vocab_size, const DataFile& file) {
  const auto largest = std::max_element(ids.begin(), ids.end());
  if (largest == ids.end() || *largest < vocab_size) return;
  throw DataError(cat(file.shown_name(), ": the tokenizer returns the id ", *largest,
                      ", but the model's vocabulary has ", vocab_size,
                      " entries; use the model's own tokenizer or a larger vocab_size"));
}

// The pieces of all files, in order.
struct Work {
  struct Item {
    const DataFile* file;
    const DataSource* source;
    int64_t piece;
  };
  std::vector<std::unique_ptr<DataSource>> sources;
  std::vector<Item> items;
  int64_t bytes = 0;

  Work(const std::vector<DataFile>& files, const TokenDataOptions& options, Meter& meter) {
    const DataSourceOptions source_options{.tokenizer = options.tokenizer,
                                           .vocab_size = options.vocab_size,
                                           .text_column = options.text_column,
                                           .threads = options.threads,
                                           .scanned = [&meter] { meter.read_again(); }};
    for (const DataFile& file : files) {
      const auto& source = sources.emplace_back(open_data_source(file, source_options));
      for (int64_t piece = 0; piece < source->pieces(); ++piece) {
        items.push_back({&file, source.get(), piece});
        bytes += bytes_of_item(items.size() - 1);
      }
    }
    if (items.empty()) throw DataError(cat(files.front().shown_name(), ": the data has no tokens"));
  }
  int64_t bytes_of_item(size_t item) const { return items[item].source->piece_bytes(items[item].piece); }
  bool ends_file(size_t item) const { return item + 1 == items.size() || items[item + 1].piece == 0; }
};

// A file that is only appended to, with a checksum of what follows its first bytes.
class CheckedFile {
 public:
  explicit CheckedFile(const fs::path& path) : file_(path), state_(XXH3_createState(), XXH3_freeState) {}

  void append(std::string_view bytes) {
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
    file_.append(bytes);
  }
  void begin(std::string_view first_bytes) {
    XXH3_64bits_reset(state_.get());
    file_.clear();
    file_.append(first_bytes);
  }
  // Whether a killed process has left this many bytes with this checksum; if so, they are kept.
  bool goes_on(size_t first_bytes, size_t bytes, uint64_t expected, Meter& meter) {
    XXH3_64bits_reset(state_.get());
    if (file_.size() != first_bytes + bytes) return false;
    for (size_t offset = first_bytes; offset < file_.size(); offset += kHashedBytes) {
      const std::string part = file_.read(offset, std::min(kHashedBytes, file_.size() - offset));
      XXH3_64bits_update(state_.get(), part.data(), part.size());
      meter.read_again();
    }
    return checksum() == expected;
  }
  uint64_t checksum() const { return XXH3_64bits_digest(state_.get()); }
  PartialFile& file() { return file_; }

 private:
  PartialFile file_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// Makes the cache, continuing the work of a killed process.
class CacheWriter {
 public:
  CacheWriter(const fs::path& path, const Work& work, const TokenDataOptions& options, Meter& meter)
      : ids_(path),
        ends_(DocumentEnds::path_of(path)),
        work_(work),
        options_(options),
        eos_(end_of_text(options)),
        width_(options.vocab_size <= 65536 ? 2 : 4) {
    if (goes_on(meter)) return;
    items_ = tokens_ = documents_ = last_end_ = 0;
    done_bytes_ = 0;
    border_ = {};
    const TokenCacheHeader header;  // a placeholder until the cache is complete
    ids_.begin(bytes_of(header));
    ends_.begin({});
  }

  void write(const std::function<void(int64_t done, int64_t total)>& progress) {
    const int64_t first = items_;
    const auto make = [&](int64_t i) {
      const auto& item = work_.items[first + i];
      return item.source->encode(item.piece);
    };
    const auto use = [&](int64_t, EncodedPiece piece) {
      take(std::move(piece));
      if (done_bytes_ - saved_bytes_ >= options_.save_every_bytes) save();
      progress(done_bytes_, work_.bytes);
    };
    progress(done_bytes_, work_.bytes);
    ordered_work(std::ssize(work_.items) - first, options_.threads, make, use);
    if (tokens_ == 0) throw DataError(cat(work_.items[0].file->shown_name(), ": the data has no tokens"));
  }

  void commit(XXH128_hash_t digest) {
    TokenCacheHeader header;
    std::memcpy(header.magic, TokenCacheHeader::kMagic, sizeof header.magic);
    header.version = TokenCacheHeader::kVersion;
    header.width = width_;
    header.tokens = tokens_;
    header.documents = documents_;
    header.vocab_size = options_.vocab_size;
    header.digest[0] = digest.high64;
    header.digest[1] = digest.low64;
    header.ids_checksum = ids_.checksum();
    header.ends_checksum = ends_.checksum();
    header.checksum = header.expected_checksum();
    ids_.file().overwrite(0, bytes_of(header));
    ends_.file().commit();
    ids_.file().commit();  // last, so that this file never exists without the other one
  }

  void discard() {
    ids_.file().discard();
    ends_.file().discard();
  }

 private:
  void take(EncodedPiece piece) {
    const auto& item = work_.items[items_];
    if (item.piece == 0) border_ = {};
    const TokenIds ids = with_ends(item.source->join(item.piece, std::move(piece.part), border_), piece.document_ends);
    check_ids(ids, options_.vocab_size, *item.file);
    bytes_.resize(ids.size() * width_);
    for (size_t i = 0; i < ids.size(); ++i) std::memcpy(bytes_.data() + i * width_, &ids[i], width_);  // little-endian
    ids_.append(bytes_);
    tokens_ += ids.size();
    done_bytes_ += work_.bytes_of_item(items_);
    ++items_;
  }

  // Records where documents end in these ids, which follow the tokens so far, and returns them with the tokens that end
  // documents.
  TokenIds with_ends(const TokenIds& ids, const std::vector<int64_t>& document_ends) {
    TokenIds made;
    made.reserve(ids.size() + document_ends.size() + 1);
    std::vector<uint64_t> ends;
    const auto note_end = [&] { ends.push_back(last_end_ = tokens_ + made.size()); };
    const auto end_document = [&] {
      if (tokens_ + made.size() == last_end_) return;  // a document without tokens, or one that ends for two reasons
      if (options_.end_documents && eos_) made.push_back(*eos_);
      note_end();
    };
    size_t next = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      for (; next < document_ends.size() && std::cmp_less_equal(document_ends[next], i); ++next) end_document();
      made.push_back(ids[i]);
      if (ids[i] == eos_) note_end();
    }
    if (next < document_ends.size() || work_.ends_file(items_)) end_document();
    documents_ += ends.size();
    ends_.append({reinterpret_cast<const char*>(ends.data()), ends.size() * sizeof(uint64_t)});
    return made;
  }

  void save() {
    const std::vector<uint8_t> state(border_.state.begin(), border_.state.end());
    ends_.file().save("ends");
    ids_.file().save(nlohmann::json{{"items", items_},
                                    {"of_items", work_.items.size()},
                                    {"tokens", tokens_},
                                    {"checksum", ids_.checksum()},
                                    {"documents", documents_},
                                    {"last_end", last_end_},
                                    {"ends_checksum", ends_.checksum()},
                                    {"border", {{"at", border_.offset}, {"state", state}}}}
                         .dump());
    saved_bytes_ = done_bytes_;
  }

  // False unless the files match the note of the first one. The process may have died between the two saves.
  bool goes_on(Meter& meter) {
    const auto note = nlohmann::json::parse(ids_.file().note(), nullptr, /*allow_exceptions=*/false);
    if (!note.is_object()) return false;
    uint64_t checksum = 0, ends_checksum = 0;
    try {
      if (note.at("of_items") != work_.items.size()) return false;
      items_ = note.at("items").get<size_t>();
      tokens_ = note.at("tokens").get<uint64_t>();
      checksum = note.at("checksum").get<uint64_t>();
      documents_ = note.at("documents").get<uint64_t>();
      last_end_ = note.at("last_end").get<uint64_t>();
      ends_checksum = note.at("ends_checksum").get<uint64_t>();
      border_.offset = note.at("border").at("at").get<size_t>();
      const auto state = note.at("border").at("state").get<std::vector<uint8_t>>();
      border_.state.assign(state.begin(), state.end());
    } catch (const nlohmann::json::exception&) {
      return false;
    }
    if (items_ > work_.items.size() || !ids_.goes_on(sizeof(TokenCacheHeader), tokens_ * width_, checksum, meter) ||
        !ends_.goes_on(0, documents_ * sizeof(uint64_t), ends_checksum, meter))
      return false;
    for (size_t item = 0; item < items_; ++item) done_bytes_ += work_.bytes_of_item(item);
    saved_bytes_ = done_bytes_;
    return true;
  }

  CheckedFile ids_, ends_;
  const Work& work_;
  const TokenDataOptions& options_;
  const std::optional<int32_t> eos_;
  const uint32_t width_;  // bytes of an id
  std::string bytes_;

  size_t items_ = 0;  // done
  uint64_t tokens_ = 0, documents_ = 0;
  uint64_t last_end_ = 0;  // where the last document ended
  int64_t done_bytes_ = 0;
  int64_t saved_bytes_ = 0;
  Seam border_;
};

// The files of a token cache, with copies in place of files that cannot be read from an arbitrary position. The copies
// stay if the process ends before the cache is complete, and are used by the process that continues it.
class ReadableFiles {
 public:
  ReadableFiles(const std::vector<DataFile>& files, const TokenDataOptions& options, const fs::path& cache,
                Meter& meter) {
    for (const DataFile& file : files) {
      if (!needs_unpacking(file)) {
        files_.push_back(file);
        continue;
      }
      const fs::path copy = cache.string() + cat(".unpacked-", files_.size());
      files_.push_back(unpacked(file, {.path = copy,
                                       .text_column = options.text_column,
                                       .vocab_size = options.vocab_size,
                                       .working = [&meter] { meter.read_again(); }}));
      copies_.push_back(copy);
    }
  }
  const std::vector<DataFile>& files() const { return files_; }
  void remove_copies() const {
    std::error_code ignored;
    for (const fs::path& copy : copies_) fs::remove(copy, ignored);
  }

 private:
  std::vector<DataFile> files_;
  std::vector<fs::path> copies_;
};

void make_cache(const std::vector<DataFile>& files, const TokenDataOptions& options, XXH128_hash_t digest,
                const fs::path& path, Meter& meter) {
  const ReadableFiles readable(files, options, path, meter);
  const Work work(readable.files(), options, meter);
  CacheWriter writer(path, work, options, meter);
  try {
    writer.write([&](int64_t done, int64_t total) { meter.second_half(done, total); });
    writer.commit(digest);
    readable.remove_copies();
  } catch (const DataError&) {
    writer.discard();
    readable.remove_copies();
    throw;
  } catch (const DistributedError&) {  // another rank failed: what is written here stays for the next attempt
    throw;
  } catch (const Interrupted&) {
    throw;
  } catch (const RunError&) {  // in particular a full disk, which must not be left full
    writer.discard();
    readable.remove_copies();
    throw;
  }
}

bool is_good_cache(const fs::path& path, XXH128_hash_t digest, Meter& meter) {
  if (!fs::exists(path)) return false;
  try {
    const TokenCache cache(path);
    const DocumentEnds ends(cache);
    return cache.digest() == digest_text(digest) &&
           cache.is_intact([&](int64_t done, int64_t total) { meter.second_half(done, total); });
  } catch (const DataError&) {
    return false;  // truncated or damaged: it is made again
  }
}

}  // namespace

fs::path prepare_token_cache(const TokenDataOptions& options) {
  SL_ASSERT(options.vocab_size > 0, "vocab_size is ", options.vocab_size);
  const std::vector<DataFile> files = find_data_files(options.paths, options.format);
  Meter meter(options, bytes_of(files));
  const XXH128_hash_t digest = digest_of(files, options, meter);
  const fs::path path = options.cache_folder / cat("tokens-", digest_text(digest).substr(0, 16), ".bin");
  make_once({.path = path,
             .limit = options.lock_limit,
             .is_good = [&] { return is_good_cache(path, digest, meter); },
             .make =
                 [&](const fs::path& lock_file) {
                   meter.mark(lock_file);
                   make_cache(files, options, digest, path, meter);
                 },
             .waiting = [&](int64_t bytes, int64_t progress) { meter.others(bytes, progress); }});
  meter.finish();
  return path;
}

}  // namespace shardline
