// What BERT and the families derived from it share (Devlin et al. 2019, arXiv 1810.04805): the sum of word, position
// and type embeddings is normalised, blocks normalise after each residual addition, and attention sees a whole segment
// or, in a decoder, only what comes before. The head for words, masked or next ones, transforms rows and multiplies
// them by the word embedding.
#pragma once
#include "models/families/head_choice.h"
#include "models/families/label_head.h"
#include "models/families/spec_maker.h"
#include "models/families/transformer_config.h"

namespace shardline {

struct EncoderConfig : TransformerConfig {
  EncoderConfig() : TransformerConfig{.causal = false, .position_table = true} {}

  int64_t type_vocab_size = 0;  // 0: there is no table of token types
  int64_t first_position = 0;   // index in the table of positions of position 0; n_positions entries follow
  Activation head_activation = Activation::gelu;  // in the head for words
};

// The names of modules in the family's files; those of an encoder without a head come after `base`.
struct EncoderNames {
  std::string base;                           // "bert."
  std::string words, positions, types, norm;  // names in the embedding
  std::string block;                          // "encoder.layer."; the names below are within a block
  std::string query, key, value, out, norm1, fc, proj, norm2;
  std::string word_dense, word_norm, decoder;  // modules of the head for words
  std::string decoder_bias;                    // the name of the tensor if the decoder is tied
};

LayerSpec encoder_embedding(const EncoderConfig& config, const EncoderNames& names, const SpecMaker& make);
LayerSpec encoder_block(const EncoderConfig& config, const EncoderNames& names, const SpecMaker& make, int64_t i);
// choice: masked_lm, whose head computes only the labelled rows, or causal_lm.
LayerSpec word_head(const EncoderConfig& config, const EncoderNames& names, const SpecMaker& make,
                    const HeadChoice& choice);

// Describes a whole model; `label` describes its small head and is ignored if the model predicts words.
ModelSpec encoder_spec(const std::string& family, const EncoderConfig& config, const EncoderNames& names,
                       const SpecMaker& make, const HeadChoice& choice, const LabelHead& label);

}  // namespace shardline
