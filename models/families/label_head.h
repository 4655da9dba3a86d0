// The small heads: classes or numbers for segments, classes for rows, and the first and last rows of answers. Each rank
// has the whole head and, under sequence parallelism, computes its part of the rows that the head uses.
#pragma once
#include <string>

#include "models/families/head_choice.h"
#include "models/families/spec_maker.h"
#include "models/families/transformer_config.h"

namespace shardline {

// rows -> norm -> dropout -> activation(dense) -> dropout -> classifier; all but the classifier are optional. Strings
// are the names of modules in Hugging Face's files.
struct LabelHead {
  enum class Rows { first, last, all };  // which rows of each segment
  Rows rows = Rows::first;
  std::string norm;  // the norm of a decoder's hidden states
  double first_dropout = 0;
  std::string dense;
  Activation activation = Activation::tanh;
  double dropout = 0;
  std::string classifier = "classifier";
  bool classifier_bias = true;
};

// The rows for which a head of this kind computes logits; `of_segment` selects the row that represents a segment.
LabelHead::Rows rows_of_head(HeadChoice::Kind kind, LabelHead::Rows of_segment);

// The last layer of a model, for every choice.kind that does not predict words.
LayerSpec label_head(const TransformerConfig& config, const SpecMaker& make, const HeadChoice& choice,
                     const LabelHead& head);

}  // namespace shardline
