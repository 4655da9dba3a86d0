// The loss of a program. Its means are not computed by nodes, because the mean of a step is not that of a microbatch.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/program/graph.h"
#include "models/program/graph_flow.h"

namespace shardline {

struct ProgramLossTerm {
  // added: a loss of rows that the user's program adds (models/graph/row_losses.h). whole: a scalar of another kind,
  // which is treated as a mean over samples.
  enum class Kind { cross_entropy, squared_error, binary, added, whole };
  Kind kind = Kind::whole;
  int input = -1;
  int target = -1;         // -1: the labels of the data
  int ignored_value = -1;  // for cross_entropy: a computed number; -1: use `ignored`
  int64_t ignored = 0;     // the target that is not counted
  double factor = 1;
  std::string function = "";  // the name of an added loss
};

// A sum of terms.
struct ProgramLoss {
  std::vector<ProgramLossTerm> terms;
  std::string text;  // "cross_entropy + cross_entropy", shown in the plan

  bool has(ProgramLossTerm::Kind kind) const;
  std::vector<int> values() const;  // the values that it is computed from, each once
};

// Expresses the scalar as sums, differences and multiples of means of cross_entropy_loss (without weights and
// smoothing), mse_loss and binary_cross_entropy_with_logits, or otherwise as a whole.
ProgramLoss loss_terms(const Graph& graph, const GraphFlow& flow, int scalar);

// "cross_entropy", "mse" or "bce_with_logits", as a config names them, or a loss of rows; nothing for other names.
std::optional<ProgramLossTerm::Kind> loss_function(const std::string& name);
const char* loss_functions();  // their names, for messages

}  // namespace shardline
