// Tokens that pass through the model together, as rows: one sample after another, without padding.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

// The label of a row without a prediction.
inline constexpr int64_t kNoLabel = -100;

// A column of the data whose values are tensors, such as images.
struct TensorColumn {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;  // for one sample
};

// Every rank of the replica has the same microbatch. It has no rows if a short last batch has no samples for it.
// Tensors are int64 and on the device of the activations, unless stated otherwise.
struct Microbatch {
  at::Tensor ids;        // [rows]
  at::Tensor labels;     // [rows] what each row predicts, or kNoLabel; undefined in generation
  at::Tensor positions;  // [rows] place in the sequence: selects rows of a position table and rotary angles
  // Keys of the dropout masks: the position of the row's sample in the global batch, and the row's place in this
  // sample, [rows]; the same for the first row of each segment, [segments]. May be undefined if nothing is dropped.
  at::Tensor samples, places;
  at::Tensor segment_samples, segment_places;
  at::Tensor types;     // [rows] token types, for models with a table of them; undefined: all 0
  at::Tensor features;  // [rows, n] numbers, for models that take these in place of ids
  // By the name of a TensorColumn: its values, [segments, ...], of the data's own type. The rows of such segments are
  // for the model's hidden states; their ids are 0.
  std::map<std::string, at::Tensor> columns;
  // What each segment predicts, in tasks where segments predict and rows do not: a class, int64 [segments]; the outputs
  // of a regression, or a 0 or 1 for each of several labels, float [segments] or [segments, labels]; the first and the
  // last row of an answer, int64 [segments, 2], counted within the segment. kNoLabel marks an unknown class and a row
  // of an answer that lies in another segment. Undefined if rows predict, and in predictions, unless the words to
  // search for are given (WordSearch).
  at::Tensor targets;
  // A segment is a run of rows that attend to each other: a sample, or one of the documents packed into it. Segment i
  // ends before row ends[i].
  std::vector<int64_t> ends;
  // If segments consist of a source and a target that follows it: the first row of each segment's target. Empty:
  // segments have no targets.
  std::vector<int64_t> target_begins;
  bool is_rectangular = false;  // whether segments are whole samples of one length
  int64_t position_count = 0;   // an upper bound: all positions are smaller

  int64_t tokens() const { return ids.numel(); }
  int64_t segments() const { return std::ssize(ends); }
  int64_t length() const;  // rows of each segment, the same number in all; 0 if there are no segments
};
// For a causal_microbatch with labels and samples: ids, labels, positions (which are also the places), and samples.
inline constexpr int64_t kInputBytesPerRow = 4 * sizeof(int64_t);

// Sequences of one length in which every row predicts the next one. ids: [batch, length]. labels: likewise, for the
// same positions, or undefined. samples: [batch], or undefined. first_position: the position of column 0.
Microbatch causal_microbatch(const at::Tensor& ids, const at::Tensor& labels = {}, const at::Tensor& samples = {},
                             int64_t first_position = 0);

// Copies the microbatch to the memory of `device`, most of its integer tensors in one copy; returns it unchanged if it
// is already there.
Microbatch on_device(const Microbatch& host, at::Device device);

// A range of segments, with their rows.
Microbatch part_of(const Microbatch& whole, const Range& segments);

}  // namespace shardline
