// The data sets that data.task_name names: GLUE (Wang et al. 2018, arXiv 1804.07461) and amazon_polarity (Zhang et al.
// 2015, arXiv 1509.01626), with the labels of the Hugging Face hub and the metrics of transformers' run_glue.py.
#pragma once
#include <string>
#include <vector>

#include "engine/config/keys/options.h"

namespace shardline {

struct KnownData {
  // The names that a column has in different files. If a row has several of them, the first one counts.
  std::vector<std::string> text, pair, label;  // no pair: samples have one text
  std::vector<std::string> labels;             // names, by id; empty: labels are numbers
  std::vector<std::string> metrics;
  // The columns of CSV and TSV files whose first row does not name them. The first row names them if it contains the
  // last of these names.
  std::vector<std::string> columns = {};
  std::vector<std::string> labels_in_csv = {};  // by id, in such files, if these have neither names nor ids
};

const KnownData& known_data(DataName name);

// The paths of mnli's second validation set: data.validation_mismatched or, if it is empty, the paths in
// data.validation that are not files: folders, and paths that do not exist on this machine.
std::vector<std::string> mismatched_paths(const DataOptions& data);

}  // namespace shardline
