// The work of a layer for one microbatch on one tensor-parallel rank, in device-independent numbers: matrix products,
// sweeps over memory, collectives. Ops record it (core/model/work_notes.h), or a layer states it; the planner converts
// it to seconds.
#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace shardline {

// One microbatch on one rank. Units that cannot be divided equally (heads, vocabulary) are counted for the rank that
// has the most.
struct WorkShape {
  int64_t sequences = 1;  // in the microbatch
  int64_t length = 1;     // tokens of a sequence
  int tensor = 1;         // T
  bool sequence_parallel = false;
  bool fused = true;         // attention and loss run in blocks: scores and logits are never in memory as a whole
  int64_t value_bytes = 4;   // per number inside layers
  int64_t border_bytes = 4;  // per number between layers

  int64_t tokens() const { return sequences * length; }
  int64_t rows() const { return sequence_parallel ? (tokens() + tensor - 1) / tensor : tokens(); }  // at layer borders
  auto operator<=>(const WorkShape&) const = default;
};

// The pass to which work belongs: forward, input gradient or weight gradient.
enum class Phase { forward, backward_input, backward_weight };

// `count` independent products [m, k] x [k, n]. count may be fractional: a causal mask skips half of the scores.
struct Product {
  Phase phase = Phase::forward;
  int64_t m = 0, n = 0, k = 0;
  double count = 1;
  bool stored = true;  // factors and results are in memory; false inside a fused op
  bool core = false;   // part of the attention core, which selective recomputation recomputes

  double flops() const { return 2.0 * m * n * k * count; }
};

// Elementwise ops, norms, softmax: reading and writing `bytes` takes most of their time.
struct Sweep {
  Phase phase = Phase::forward;
  double bytes = 0;
  int kernels = 1;
  bool core = false;
};

// A collective of the T ranks. bytes: size of the whole tensor that each rank has before a reduction or after a gather.
struct Collective {
  enum class Kind { all_reduce, all_gather, reduce_scatter };
  Kind kind = Kind::all_reduce;
  Phase phase = Phase::forward;
  double bytes = 0;
};

struct LayerWork {
  std::vector<Product> products;
  std::vector<Sweep> sweeps;
  std::vector<Collective> collectives;
  int64_t hidden = 0, heads = 0;  // if it is a transformer block; 0: none
  bool recomputable = false;      // recomputation may run its forward again

  double flops(Phase phase) const {
    double sum = 0;
    for (const auto& product : products)
      if (product.phase == phase) sum += product.flops();
    return sum;
  }
};

}  // namespace shardline
