#include "engine/data/examples/prepare_examples.h"

#include <algorithm>
#include <future>

#include "core/error.h"
#include "engine/data/cache/file_digest.h"
#include "engine/data/cache/make_once.h"
#include "engine/data/tensors/tensor_rows.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVersion = 6;         // changes when the rule by which rows become examples changes
constexpr int64_t kRowsOfThread = 256;  // rows that a thread encodes at a time

int64_t total_bytes(const std::vector<DataFile>& files) {
  int64_t bytes = 0;
  for (const DataFile& file : files) bytes += fs::file_size(file.path);
  return bytes;
}

// Cuts the tokens of the examples that it receives into examples of one length.
class Chunks {
 public:
  explicit Chunks(int64_t length) : length_(length) {}

  void add(const Example& more, const std::function<void(Example&)>& use) {
    append(rest_.ids, more.ids);
    append(rest_.types, more.types);
    append(rest_.labels, more.labels);
    append(rest_.continues, more.continues);
    int64_t begin = 0;
    for (; begin + length_ <= left_over(); begin += length_) {
      Example chunk{.ids = part(rest_.ids, begin),
                    .types = part(rest_.types, begin),
                    .labels = part(rest_.labels, begin),
                    .continues = part(rest_.continues, begin)};
      use(chunk);
    }
    if (begin == 0) return;
    for (auto* bytes : {&rest_.types, &rest_.continues}) erase(*bytes, begin);
    for (auto* integers : {&rest_.ids, &rest_.labels}) erase(*integers, begin);
  }
  int64_t left_over() const { return std::ssize(rest_.ids); }
  void clear() { rest_ = {}; }

 private:
  template <class T>
  static void append(std::vector<T>& all, const std::vector<T>& more) {
    all.insert(all.end(), more.begin(), more.end());
  }
  template <class T>
  std::vector<T> part(const std::vector<T>& all, int64_t begin) const {
    return all.empty() ? all : std::vector<T>(all.begin() + begin, all.begin() + begin + length_);
  }
  template <class T>
  static void erase(std::vector<T>& all, int64_t count) {
    if (!all.empty()) all.erase(all.begin(), all.begin() + count);
  }

  int64_t length_;
  Example rest_;  // shorter than a chunk
};

// Collects rows, encodes them on several threads, and adds their examples in order.
class RowEncoder {
 public:
  RowEncoder(const ExampleSetOptions& options, ExampleWriter& writer)
      : options_(options), writer_(writer), chunks_(options.chunk) {}

  // Adds a row; returns whether all rows so far have been encoded.
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
        for (Example& example : row.examples)
          if (options_.chunk > 0)
            chunks_.add(example, [&](Example& chunk) { add(chunk, examples_); });
          else
            add(example, rows_);
        if (row.shortened) ++(row.examples.empty() ? left_out_ : shortened_);
        ++rows_;
      }
    waiting_.clear();
  }

  // Encodes the rows so far, which are those of a part.
  void end_part() {
    encode();
    left_over_ += chunks_.left_over();
    chunks_.clear();
    part_ends_.push_back(options_.chunk > 0 ? examples_ : rows_);
  }

  int64_t examples() const { return examples_; }
  // Call it after the last part.
  ExampleCounts counts() const {
    ExampleCounts counts{
        .rows = part_ends_.back(), .shortened = shortened_, .left_out = left_out_, .left_over = left_over_};
    if (part_ends_.size() > 1) counts.part_ends = part_ends_;
    return counts;
  }

 private:
  void add(Example& example, int64_t row) {
    example.row = row;
    writer_.add(example);
    ++examples_;
  }

  const ExampleSetOptions& options_;
  ExampleWriter& writer_;
  Chunks chunks_;
  std::vector<DataRow> waiting_;
  std::vector<int64_t> part_ends_;
  int64_t rows_ = 0, examples_ = 0, shortened_ = 0, left_out_ = 0, left_over_ = 0;
};

void make_examples(const ExampleSetOptions& options, const std::string& digest, const fs::path& path,
                   const std::function<void(int64_t bytes)>& progress) {
  const auto& files = options.files;
  ExampleWriter writer(options.shape);
  RowEncoder encoder(options, writer);
  int64_t before = 0;
  for (auto part = files.begin(); part != files.end();) {
    const auto end = std::find_if(part, files.end(), [&](const DataFile& file) { return file.part != part->part; });
    for_each_row({part, end}, [&](DataRow& row, int64_t bytes) {
      if (encoder.take(std::move(row))) progress(before + bytes);
    });
    encoder.end_part();
    before += total_bytes({part, end});
    part = end;
  }
  const ExampleCounts counts = encoder.counts();
  if (encoder.examples() == 0)
    throw DataError(cat(files.front().path.string(),
                        counts.left_over == 0
                            ? ": the data has no examples"
                            : cat(": the data has ", counts.left_over, " tokens, less than one sample of ",
                                  options.chunk, "; use more data or a smaller data.sequence_length")));
  writer.write(path, digest, counts);
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

std::unique_ptr<RowFile> open_any_rows(const DataFile& file) {
  return file.format == DataFormat::safetensors ? open_tensor_rows(file) : open_rows(file);
}

bool first_row(const DataFile& file, DataRow& row) {
  if (!open_any_rows(file)->next(row)) return false;
  row.file = file.path;
  return true;
}

void for_each_row(const std::vector<DataFile>& files, const std::function<void(DataRow& row, int64_t bytes)>& use) {
  int64_t before = 0;
  for (const DataFile& file : files) {
    DataRow row;
    for (const auto rows = open_any_rows(file); rows->next(row);) {
      row.file = file.path;
      use(row, before + rows->done());
    }
    before += fs::file_size(file.path);
  }
}

fs::path prepare_examples(const ExampleSetOptions& options) {
  const std::vector<DataFile>& files = options.files;
  FileDigest digest;
  digest.add(cat("shardline examples ", kVersion));
  digest.add(options.settings);
  if (options.chunk > 0) digest.add(cat("chunks of ", options.chunk));
  const int64_t bytes = total_bytes(files);
  int64_t hashed = 0;
  const auto report = [&](int64_t done) {
    if (options.progress) options.progress(done, kCachePasses * bytes);
  };
  for (const DataFile& file : files) {
    digest.add(file.path.string());
    digest.add(cat(static_cast<int>(file.format), file.uneven, ' ', file.part));
    for (const auto& column : file.columns) digest.add(column);
    digest.add_file(file.path, [&](int64_t read) { report(hashed += read); });
  }
  const std::string text = digest_text(digest.value());
  const fs::path path = options.cache_folder / cat("examples-", text.substr(0, 16), ".bin");
  int64_t others = -1;
  make_once({.path = path,
             .is_good = [&] { return is_good(path, text); },
             .make =
                 [&](const fs::path& lock_file) {
                   make_examples(options, text, path, [&](int64_t read) {
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
