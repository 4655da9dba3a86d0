// Makes the examples of a task from its data files, once per host.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/data/examples/example_set.h"
#include "engine/data/source/row_file.h"

namespace shardline {

// The examples of one row of the data, in order. Several threads call EncodeRow at the same time.
struct RowExamples {
  std::vector<Example> examples;
  bool shortened = false;  // a part of the row is in none of them; without examples, the row is left out
};
using EncodeRow = std::function<RowExamples(const DataRow& row)>;

struct ExampleSetOptions {
  std::vector<DataFile> files;  // ordered by part
  ExampleShape shape;
  EncodeRow encode;
  // Above 0: the tokens of all rows, one after the other, are cut into examples of this many; the rest at the end of
  // each part is left out. Each of these examples counts as a row. Examples of such a set have no targets.
  int64_t chunk = 0;
  std::string settings;  // everything else that the examples depend on: task, columns, labels, tokenizer, lengths
  std::filesystem::path cache_folder;
  int threads = 1;
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;  // as in TokenDataOptions; may be empty
};

// Returns the path of the file; makes the file if it is missing or damaged. Several processes may call it at the same
// time. Throws DataError for bad data or if there is no example, and RunError if the cache's disk fails.
std::filesystem::path prepare_examples(const ExampleSetOptions& options);

// The rows of a file of any format, including files of tensors.
std::unique_ptr<RowFile> open_any_rows(const DataFile& file);

// The first row of a file; false if it has none.
bool first_row(const DataFile& file, DataRow& row);

// Calls use(row, bytes) for all rows of the files, in order, on this thread; bytes: how many have been read so far.
void for_each_row(const std::vector<DataFile>& files, const std::function<void(DataRow& row, int64_t bytes)>& use);

}  // namespace shardline
