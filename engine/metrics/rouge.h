// ROUGE (Lin 2004): how much of a reference text occurs in another text. Equivalent to the Python package rouge_score
// without stemming: words are runs of the letters a to z and digits, in lower case.
#pragma once
#include <string_view>

namespace shardline {

// F measures, 0 to 1.
struct RougeScores {
  double rouge1 = 0, rouge2 = 0;  // over single words, and over pairs of neighbours
  double rouge_l = 0;             // over the longest common subsequence
  double rouge_lsum = 0;          // the same for each line of the reference with all lines of the text
};

RougeScores rouge(std::string_view prediction, std::string_view reference);

}  // namespace shardline
