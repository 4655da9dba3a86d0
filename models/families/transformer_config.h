// The common part of the families' configs: an embedding, blocks of attention and an MLP, and a head. Keys have the
// names that GPT-2 uses.
#pragma once
#include <cstdint>
#include <string>

#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

class HfConfigReader;

struct TransformerConfig {
  // The keys of config.json that affect the computation; each family has its own defaults.
  int64_t vocab_size = 0, n_positions = 0, n_embd = 0, n_layer = 0, n_head = 0;
  int64_t n_inner = 0;  // 0 (null in the file) means 4 * n_embd
  Activation activation_function = Activation::gelu_tanh;
  double resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0;
  double layer_norm_epsilon = 1e-5, initializer_range = 0.02;
  bool tie_word_embeddings = false;

  // Properties of the family, independent of its files.
  bool causal = true;           // tokens see only themselves and earlier ones
  bool position_table = false;  // learned positions are added to the words
  int64_t rotary_dim = 0;       // features of each head that are rotated by position
  bool head_bias = false;       // the logits of words have a bias

  int64_t inner() const { return n_inner ? n_inner : 4 * n_embd; }
  int64_t head_dim() const { return n_embd / n_head; }
};

// The names of the common keys in a family's files. A null alias means that the key has no other name; a null optional
// key means that the family does not have it.
struct TransformerKeys {
  struct Key {
    const char *name, *alias;
  };
  Key positions{"n_positions", "max_position_embeddings"};
  Key hidden{"n_embd", "hidden_size"};
  Key layers{"n_layer", "num_hidden_layers"};
  Key heads{"n_head", "num_attention_heads"};
  const char *inner = "n_inner", *activation = "activation_function";
  const char *residual_dropout = "resid_pdrop", *attention_dropout = "attn_pdrop";
  const char* embedding_dropout = "embd_pdrop";  // optional: if null, residual_dropout is used
  const char* epsilon = "layer_norm_epsilon";    // optional
};

// Which units of a block are split over the T ranks; each rank holds the others whole.
struct BlockSplit {
  bool attention = true, mlp = true;
};

// ModelSpec::variant for these layers.
std::string variant_of(const TransformerConfig& config);

// Reads the common keys; reports contradictions.
void read_transformer_config(HfConfigReader& read, TransformerConfig& config, const TransformerKeys& keys = {});

}  // namespace shardline
