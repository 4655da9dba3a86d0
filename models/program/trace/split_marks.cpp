#include "models/program/trace/split_marks.h"

#include <torch/nn/module.h>

#include "core/error.h"
#include "include/shardline/nn.h"

namespace shardline {

std::vector<SplitMark> split_marks(const torch::nn::Module& module) {
  std::vector<SplitMark> marks;
  for (const auto& item : module.named_modules()) {
    const std::string& path = item.key();
    const std::string parameter = path.empty() ? "weight" : path + ".weight";
    const torch::nn::Module* one = item.value().get();
    if (const auto* linear = dynamic_cast<const nn::ColumnLinearImpl*>(one))
      marks.push_back({path, "ColumnLinear", "columns", parameter, 0, linear->options.gather_output()});
    else if (dynamic_cast<const nn::RowLinearImpl*>(one))
      marks.push_back({path, "RowLinear", "inputs", parameter, 1});
    else if (dynamic_cast<const nn::VocabEmbeddingImpl*>(one))
      marks.push_back({path, "VocabEmbedding", "words", parameter, 0});
    else if (dynamic_cast<const nn::AttentionImpl*>(one))
      marks.push_back({path, "Attention", "heads", cat(path, path.empty() ? "" : ".", "q.weight"), 0});
    else if (dynamic_cast<const nn::CrossEntropyImpl*>(one))
      marks.push_back({path, "CrossEntropy", "classes", "", 0});
  }
  return marks;
}

}  // namespace shardline
