#include "models/families/transformer_config.h"

#include <nlohmann/json.hpp>

#include "core/enum_array.h"
#include "core/error.h"
#include "models/files/hf_config_reader.h"

namespace shardline {
namespace {
constexpr int64_t kMostLayers = 1 << 16;  // each has a description of several kilobytes
constexpr double kMostParameters = 1e15;  // the size in bytes, including optimizer states, must fit in 64 bits
}  // namespace

void read_transformer_config(HfConfigReader& read, TransformerConfig& c, const TransformerKeys& keys) {
  const auto size = [&](const TransformerKeys::Key& key, int64_t& value) { read.size(key.name, key.alias, value); };
  read.size("vocab_size", nullptr, c.vocab_size);
  size(keys.positions, c.n_positions);
  size(keys.hidden, c.n_embd);
  size(keys.layers, c.n_layer);
  size(keys.heads, c.n_head);
  read.size(keys.inner, nullptr, c.n_inner, /*null=*/0);
  read.activation(keys.activation, c.activation_function);
  read.number(keys.residual_dropout, 0, 0.999, c.resid_pdrop);
  if (keys.embedding_dropout)
    read.number(keys.embedding_dropout, 0, 0.999, c.embd_pdrop);
  else
    c.embd_pdrop = c.resid_pdrop;
  read.number(keys.attention_dropout, 0, 0.999, c.attn_pdrop);
  if (keys.epsilon) read.number(keys.epsilon, 0, 1, c.layer_norm_epsilon);
  read.number("initializer_range", 0, 10, c.initializer_range);
  read.flag("tie_word_embeddings", c.tie_word_embeddings);
  const char *hidden = keys.hidden.name, *heads = keys.heads.name, *layers = keys.layers.name;
  if (c.n_embd % c.n_head != 0)
    read.complain({hidden, heads}, cat(hidden, " (", c.n_embd, ") must be a multiple of ", heads, " (", c.n_head, ")"));
  if (c.n_layer > kMostLayers) read.complain({layers}, cat("must be at most ", kMostLayers));
  const double parameters = 1.0 * c.n_layer * c.n_embd * (4.0 * c.n_embd + 2.0 * c.inner());
  if (parameters > kMostParameters)
    read.complain({hidden, layers},
                  cat("the blocks would have ", parameters, " parameters, more than ", kMostParameters));
}

std::string variant_of(const TransformerConfig& c) {
  static constexpr EnumArray<Activation, const char*, 5> activations = {"gelu", "gelu_tanh", "relu", "silu", "tanh"};
  std::string text = activations[c.activation_function];
  if (c.embd_pdrop > 0) text += ", embedding dropout";
  if (c.attn_pdrop > 0) text += ", attention dropout";
  if (c.resid_pdrop > 0) text += ", residual dropout";
  if (c.rotary_dim > 0) text += cat(", ", c.rotary_dim, " rotary features");
  if (c.tie_word_embeddings) text += ", tied head";
  if (!c.causal) text += ", bidirectional attention";
  return text;
}

}  // namespace shardline
