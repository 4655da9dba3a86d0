// DistilBERT (Sanh et al. 2019, arXiv 1910.01108) with the names of Hugging Face's DistilBertForMaskedLM and its
// siblings: BERT's blocks without token types and pooler.
#pragma once
#include "core/model/model_spec.h"
#include "models/families/encoder.h"

namespace shardline {

class HfConfigReader;

// The defaults are HF's.
struct DistilBertConfig : EncoderConfig {
  DistilBertConfig() {
    vocab_size = 30522;
    n_positions = 512;
    n_embd = 768;
    n_layer = 6;
    n_head = 12;
    n_inner = 3072;
    activation_function = Activation::gelu;
    resid_pdrop = attn_pdrop = 0.1;
    layer_norm_epsilon = 1e-12;
    tie_word_embeddings = true;
  }
  double qa_dropout = 0.1, seq_classif_dropout = 0.2;
};

// `read` records contradictions as mistakes.
DistilBertConfig distilbert_config(HfConfigReader& read);

HeadClasses distilbert_heads();
// See bert_spec.
ModelSpec distilbert_spec(const DistilBertConfig& config, const HeadChoice& head, bool sequence_parallel,
                          const SplitChoices& choices = {});

}  // namespace shardline
