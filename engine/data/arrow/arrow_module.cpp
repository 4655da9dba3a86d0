#include "engine/data/arrow/arrow_module.h"

#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "engine/data/arrow/features.h"
#include "engine/data/arrow/json_values.h"

namespace shardline {
namespace {

constexpr int64_t kRowsOfBatch = 256;        // decoded at a time
constexpr int64_t kBufferBytes = 256 << 10;  // how much of a column is read at a time
constexpr std::string_view kFileMagic = "ARROW1";

void check(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message().substr(0, status.message().find('\n')));
}

template <class Value>
Value good(arrow::Result<Value> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

// Batches of rows, in order.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual std::shared_ptr<arrow::Schema> schema() const = 0;
  virtual std::shared_ptr<arrow::RecordBatch> next() = 0;  // null at the end
  virtual double share_read() const = 0;
};

class ParquetBatches final : public Batches {
 public:
  explicit ParquetBatches(const char* path) {
    parquet::ReaderProperties reading;
    reading.enable_buffered_stream();  // else whole columns of a row group are read at once
    reading.set_buffer_size(kBufferBytes);
    parquet::ArrowReaderProperties decoding;
    decoding.set_batch_size(kRowsOfBatch);
    decoding.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.OpenFile(path, /*memory_map=*/false, reading));
    reader_ = good(builder.properties(decoding)->Build());
    rows_ = reader_->parquet_reader()->metadata()->num_rows();
    batches_ = good(reader_->GetRecordBatchReader());
  }

  std::shared_ptr<arrow::Schema> schema() const override { return batches_->schema(); }
  std::shared_ptr<arrow::RecordBatch> next() override {
    auto batch = good(batches_->Next());
    if (batch) read_ += batch->num_rows();
    return batch;
  }
  double share_read() const override { return rows_ > 0 ? std::min(1.0, 1.0 * read_ / rows_) : 1; }

 private:
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  int64_t rows_ = 0, read_ = 0;
};

class StreamBatches final : public Batches {
 public:
  explicit StreamBatches(std::shared_ptr<arrow::io::MemoryMappedFile> file)
      : file_(std::move(file)),
        size_(good(file_->GetSize())),
        reader_(good(arrow::ipc::RecordBatchStreamReader::Open(file_))) {}

  std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  std::shared_ptr<arrow::RecordBatch> next() override { return good(reader_->Next()); }
  double share_read() const override { return std::min(1.0, 1.0 * good(file_->Tell()) / size_); }

 private:
  std::shared_ptr<arrow::io::MemoryMappedFile> file_;
  int64_t size_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
};

class FileBatches final : public Batches {
 public:
  explicit FileBatches(const std::shared_ptr<arrow::io::MemoryMappedFile>& file)
      : reader_(good(arrow::ipc::RecordBatchFileReader::Open(file))) {}

  std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  std::shared_ptr<arrow::RecordBatch> next() override {
    return next_ == reader_->num_record_batches() ? nullptr : good(reader_->ReadRecordBatch(next_++));
  }
  double share_read() const override { return 1.0 * next_ / std::max(1, reader_->num_record_batches()); }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int next_ = 0;
};

// `datasets` writes streams, other programs mostly files with an index at the end.
std::unique_ptr<Batches> open_batches(const char* path, bool is_parquet) {
  if (is_parquet) return std::make_unique<ParquetBatches>(path);
  auto file = good(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
  const auto first = good(file->ReadAt(0, kFileMagic.size()));
  if (std::string_view(*first) == kFileMagic) return std::make_unique<FileBatches>(file);
  return std::make_unique<StreamBatches>(std::move(file));
}

class Table final : public ArrowTable {
 public:
  explicit Table(std::unique_ptr<Batches> batches) : batches_(std::move(batches)), schema_(batches_->schema()) {
    if (const auto& metadata = schema_->metadata(); metadata && metadata->Contains("huggingface"))
      features_ = read_features(good(metadata->Get("huggingface")));
    for (const auto& field : schema_->fields())
      if (const auto& names = features_.of_field(field->name()).label_names(); !names.empty())
        label_names_.emplace(field->name(), names);
  }

  bool next(nlohmann::json& columns) override {
    while (!batch_ || row_ == batch_->num_rows()) {
      batch_ = batches_->next();
      row_ = 0;
      if (!batch_) return false;
      check(batch_->ValidateFull());  // the readers do not check all sizes, and check no texts
    }
    columns = nlohmann::json::object();
    for (int column = 0; column < batch_->num_columns(); ++column) {
      const std::string& name = schema_->field(column)->name();
      columns[name] = json_value(*batch_->column(column), row_, features_.of_field(name));
    }
    ++row_;
    return true;
  }
  double share_read() const override { return batches_->share_read(); }
  const std::map<std::string, std::vector<std::string>>& label_names() const override { return label_names_; }

 private:
  std::unique_ptr<Batches> batches_;
  std::shared_ptr<arrow::Schema> schema_;
  Feature features_;
  std::map<std::string, std::vector<std::string>> label_names_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  int64_t row_ = 0;  // the next row of the batch
};

}  // namespace

ArrowTable* shardline_open_arrow_table(const char* path, bool is_parquet) {
  return std::make_unique<Table>(open_batches(path, is_parquet)).release();
}

}  // namespace shardline
