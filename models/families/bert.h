// BERT (Devlin et al. 2019, arXiv 1810.04805) with the names of Hugging Face's BertForMaskedLM and its siblings.
#pragma once
#include "core/model/model_spec.h"
#include "models/families/encoder.h"

namespace shardline {

class HfConfigReader;

// The defaults are HF's.
struct BertConfig : EncoderConfig {
  BertConfig() {
    vocab_size = 30522;
    n_positions = 512;
    n_embd = 768;
    n_layer = n_head = 12;
    n_inner = 3072;
    activation_function = Activation::gelu;
    resid_pdrop = attn_pdrop = 0.1;
    layer_norm_epsilon = 1e-12;
    tie_word_embeddings = true;
    type_vocab_size = 2;
  }
  double classifier_dropout = 0;
};

// Reads the keys of BERT, which RoBERTa shares, into `config`, which holds their defaults. `read` records
// contradictions and unsupported features (cross attention, relative positions) as mistakes, including an is_decoder
// that does not suit the head.
void read_bert_config(HfConfigReader& read, HeadChoice::Kind head, BertConfig& config);
BertConfig bert_config(HfConfigReader& read, HeadChoice::Kind head);

// The names that BERT and RoBERTa share; `base` is the prefix of the encoder's.
EncoderNames bert_names(const std::string& base);

HeadClasses bert_heads();
// sequence_parallel: see gpt2_spec. Units: "embedding.words", "h.N.attn", "h.N.mlp", "head.decoder"; tied ones must
// have equal choices.
ModelSpec bert_spec(const BertConfig& config, const HeadChoice& head, bool sequence_parallel,
                    const SplitChoices& choices = {});

}  // namespace shardline
