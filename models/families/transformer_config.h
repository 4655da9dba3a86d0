// The common part of the families' configs: an embedding, blocks of attention and an MLP, and a head. Keys have GPT-2's
// names.
#pragma once
#include <cstdint>
#include <string>

#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

class HfConfigReader;

struct TransformerConfig {
  // The keys of config.json that change the computation; each family has its own defaults.
  int64_t vocab_size = 0, n_positions = 0, n_embd = 0, n_layer = 0, n_head = 0;
  int64_t n_inner = 0;  // 0 (null in the file): 4 * n_embd
  Activation activation_function = Activation::gelu_tanh;
  double resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0;
  double layer_norm_epsilon = 1e-5, initializer_range = 0.02;
  bool tie_word_embeddings = false;

  // Properties of the family, whatever its files say.
  bool causal = true;           // a token sees no later one
  bool position_table = false;  // learned positions are added to the words
  int64_t rotary_dim = 0;       // features of each head that are rotated by position
  bool head_bias = false;       // on the logits of words

  int64_t inner() const { return n_inner ? n_inner : 4 * n_embd; }
  int64_t head_dim() const { return n_embd / n_head; }
};

// The names of the common keys in the files of a family. An alias that is null: the key has no other name. An optional
// key that is null: the family does not have it.
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
  const char* embedding_dropout = "embd_pdrop";  // optional: then it is the residual one
  const char* epsilon = "layer_norm_epsilon";    // optional
};

// Which units of a block are split over the T ranks; each rank has the whole of the others.
struct BlockSplit {
  bool attention = true, mlp = true;
};

// ModelSpec::variant of these layers.
std::string variant_of(const TransformerConfig& config);

// Reads the common keys; contradictions are complaints.
void read_transformer_config(HfConfigReader& read, TransformerConfig& config, const TransformerKeys& keys = {});

}  // namespace shardline
