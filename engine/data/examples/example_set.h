// The samples of a task with labels, in one memory-mapped file that the ranks of a host share.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/files/mapped_file.h"
#include "core/model/microbatch.h"
#include "engine/data/tensors/tensor_columns.h"
#include "tensor_parallel/ops/cross_entropy.h"

namespace shardline {

// What the targets of a microbatch are, see Microbatch::targets. numbers: one or several for each example.
enum class TargetKind : uint32_t { none, classes, numbers, answers };

// Which words a prediction wants for each masked token.
struct WantedWords {
  int64_t most = kBestWords;       // the most probable ones
  std::vector<int32_t> only = {};  // chosen among these; empty: among all words
};

// The input of the model for one sample, and what the model predicts.
struct Example {
  std::vector<int32_t> ids;               // not empty
  std::vector<uint8_t> types;             // one for each token; empty: all 0
  std::vector<int32_t> labels;            // what each token predicts, or kNoLabel; empty: tokens predict nothing
  std::vector<uint8_t> continues;         // 1: the token belongs to the same word as the previous one; empty: none does
  std::vector<float> targets;             // as many as the set's width; kNoLabel if a value is not known
  std::vector<TensorPlace> tensors = {};  // one for each of the set's columns
  int64_t row = 0;                        // of the data, counted from 0; several examples may come from one row
  WantedWords words = {};                 // for a served model whose tokens predict words
};

// What all examples of a set have in common.
struct ExampleShape {
  bool types = false, labels = false, words = false;  // words: whether `continues` is known
  bool sequences = false;  // types are 0 for the tokens of a source and 1 for those of the target that follows
  TargetKind targets = TargetKind::none;
  int64_t width = 0;    // targets of an example: 1 for classes, 2 for answers
  int64_t tensors = 0;  // columns of tensors
  bool operator==(const ExampleShape&) const = default;
};

// Counts about the data from which a set was made.
struct ExampleCounts {
  int64_t rows = 0;
  int64_t shortened = 0;  // rows of which only a part is in examples
  int64_t left_out = 0;   // rows that are in no example: cut off or without anything to learn
  int64_t left_over = 0;  // tokens at the end, or at the end of a part, that fill no example
  // Rows before the end of each part of the data; empty: there is a single part.
  std::vector<int64_t> part_ends = {};
};

// A TensorPlace in the file of a set, which has the name of each tensor's file once.
struct FiledTensor {
  int64_t file, row;
};

class ExampleSet {
 public:
  // Throws DataError if the file is not a whole set: wrong magic, version, sizes or checksum of the header. tensors:
  // reads the examples' tensors; null: they have none.
  explicit ExampleSet(const std::filesystem::path& path, std::shared_ptr<const TensorColumns> tensors = nullptr);

  const std::string& digest() const { return digest_; }  // identifies what it was made from
  uint64_t checksum() const { return checksum_; }        // covers the examples
  // Whether the examples are those that were written; reads all of them.
  bool is_intact() const;

  const ExampleShape& shape() const { return shape_; }
  int64_t size() const { return std::ssize(ends_); }
  int64_t rows() const { return counts_.rows; }
  int64_t shortened() const { return counts_.shortened; }
  int64_t left_out() const { return counts_.left_out; }
  int64_t left_over() const { return counts_.left_over; }
  const std::vector<int64_t>& part_ends() const { return counts_.part_ends; }
  int64_t tokens(int64_t example) const { return ends_[example] - begin_of(example); }
  int64_t source_tokens(int64_t example) const;                        // for sequences: tokens before the target
  int64_t weight(int64_t example) const { return weights_[example]; }  // labels or targets that count
  int64_t row(int64_t example) const { return row_of_[example]; }
  int64_t first_of_row(int64_t row) const;  // the first example of this row or of a later one
  std::span<const int32_t> ids(int64_t example) const;
  std::span<const int32_t> labels(int64_t example) const;     // empty without labels
  std::span<const uint8_t> continues(int64_t example) const;  // empty without words
  std::span<const float> targets(int64_t example) const;      // empty without targets
  std::string columns_text() const;                           // describes columns of tensors; empty: there are none
  // The tensors of examples, by column. Throws DataError if their files have changed.
  std::map<std::string, at::Tensor> columns(std::span<const int64_t> examples) const;

  // The examples as segments, in this order. first_sample, sample_ends: see rows_of_segments.
  Microbatch microbatch(std::span<const int64_t> examples, int64_t first_sample,
                        const std::vector<int64_t>& sample_ends = {}) const;

 private:
  int64_t begin_of(int64_t example) const { return example == 0 ? 0 : ends_[example - 1]; }

  MappedFile file_;
  std::string digest_;
  uint64_t checksum_ = 0;
  ExampleShape shape_;
  ExampleCounts counts_;
  // Views of the file.
  std::span<const int64_t> ends_, row_of_;
  std::span<const int32_t> weights_, ids_, labels_;
  std::span<const float> targets_;
  std::span<const uint8_t> types_, continues_;
  std::span<const FiledTensor> tensors_;
  std::vector<std::string> tensor_files_;
  std::shared_ptr<const TensorColumns> reader_;
};

// Collects the examples of a set and writes its file.
class ExampleWriter {
 public:
  explicit ExampleWriter(const ExampleShape& shape) : shape_(shape) {}
  void add(const Example& example);
  // Throws RunError if the disk fails. The file appears when it is complete.
  void write(const std::filesystem::path& path, const std::string& digest, const ExampleCounts& counts) const;

 private:
  ExampleShape shape_;
  std::vector<int64_t> ends_, row_of_;
  std::vector<int32_t> weights_, ids_, labels_;
  std::vector<float> targets_;
  std::vector<uint8_t> types_, continues_;
  std::vector<FiledTensor> tensors_;
  std::map<std::string, int64_t> tensor_files_;
};

}  // namespace shardline
