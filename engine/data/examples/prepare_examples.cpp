#include "engine/data/examples/prepare_examples.h"

#include <algorithm>
#include <future>

#include "core/error.h"
#include "engine/data/cache/file_digest.h"
#include "engine/data/cache/make_once.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVersion = 1;         // of how rows become examples
constexpr int64_t kRowsOfThread = 256;  // that a thread encodes at a time

// Collects rows, encodes them on several threads, and adds their examples in order.
class RowEncoder {
 public:
  RowEncoder(const ExampleSetOptions& options, ExampleWriter& writer) : options_(options), writer_(writer) {}

  // Whether the rows so far have been encoded.
  bool take(DataRow row) {
    waiting_.push_back(std::move(row));
    if (std::ssize(waiting_) < options_.threads * kRowsOfThread) return false;
    encode();
    return true;
  }

  void encode() {
    std::vector<std::future<std::vector<RowExamples>>> parts;
    for (int64_t begin = 0; begin < std::ssize(waiting_); begin += kRowsOfThread)
      parts.push_back(std::async(std::launch::async, [this, begin] {
        std::vector<RowExamples> made;
        for (int64_t i = begin; i < std::min(begin + kRowsOfThread, std::ssize(waiting_)); ++i)
          made.push_back(options_.encode(waiting_[i]));
        return made;
      }));
    for (auto& part : parts)
      for (RowExamples& row : part.get()) {
        for (Example& example : row.examples) {
          example.row = rows_;
          writer_.add(example);
        }
        examples_ += std::ssize(row.examples);
        shortened_ += row.shortened;
        ++rows_;
      }
    waiting_.clear();
  }

  int64_t rows() const { return rows_; }
  int64_t examples() const { return examples_; }
  int64_t shortened() const { return shortened_; }

 private:
  const ExampleSetOptions& options_;
  ExampleWriter& writer_;
  std::vector<DataRow> waiting_;
  int64_t rows_ = 0, examples_ = 0, shortened_ = 0;
};

void make_examples(const std::vector<DataFile>& files, const ExampleSetOptions& options, const std::string& digest,
                   const fs::path& path, const std::function<void(int64_t bytes)>& progress) {
  ExampleWriter writer(options.shape);
  RowEncoder encoder(options, writer);
  for_each_row(files, [&](DataRow& row, int64_t bytes) {
    if (encoder.take(std::move(row))) progress(bytes);
  });
  encoder.encode();
  if (encoder.examples() == 0) throw DataError(cat(files.front().path.string(), ": the data has no examples"));
  writer.write(path, digest, encoder.rows(), encoder.shortened());
}

bool is_good(const fs::path& path, const std::string& digest) {
  if (!fs::exists(path)) return false;
  try {
    const ExampleSet set(path);
    return set.digest() == digest && set.is_intact();
  } catch (const DataError&) {
    return false;  // truncated or damaged: it is made again
  }
}

}  // namespace

void for_each_row(const std::vector<DataFile>& files, const std::function<void(DataRow& row, int64_t bytes)>& use) {
  int64_t before = 0;
  for (const DataFile& file : files) {
    DataRow row;
    for (const auto rows = open_rows(file); rows->next(row);) use(row, before + rows->done());
    before += fs::file_size(file.path);
  }
}

fs::path prepare_examples(const ExampleSetOptions& options) {
  const std::vector<DataFile> files = find_data_files(options.paths, options.format);
  FileDigest digest;
  digest.add(cat("shardline examples ", kVersion));
  digest.add(options.settings);
  int64_t bytes = 0, hashed = 0;
  for (const DataFile& file : files) bytes += fs::file_size(file.path);
  const auto report = [&](int64_t done) {
    if (options.progress) options.progress(done, 2 * bytes);
  };
  for (const DataFile& file : files) {
    digest.add(file.path.string());
    digest.add(cat(static_cast<int>(file.format)));
    digest.add_file(file.path, [&](int64_t read) { report(hashed += read); });
  }
  const std::string text = digest_text(digest.value());
  const fs::path path = options.cache_folder / cat("examples-", text.substr(0, 16), ".bin");
  int64_t others = -1;
  make_once({.path = path,
             .is_good = [&] { return is_good(path, text); },
             .make =
                 [&](const fs::path& lock_file) {
                   make_examples(files, options, text, path, [&](int64_t read) {
                     std::error_code ignored;
                     fs::last_write_time(lock_file, fs::file_time_type::clock::now(), ignored);
                     report(bytes + read);
                   });
                 },
             .waiting =
                 [&](int64_t written, int64_t progress) {
                   if (options.progress && progress != others) options.progress(written, 0);
                   others = progress;
                 }});
  report(2 * bytes);
  return path;
}

}  // namespace shardline
