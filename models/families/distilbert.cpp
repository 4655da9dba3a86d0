#include "models/families/distilbert.h"

#include "models/files/hf_config_reader.h"

namespace shardline {
namespace {

using Kind = HeadChoice::Kind;

LabelHead distilbert_label_head(const DistilBertConfig& c, Kind kind) {
  LabelHead head{.rows = rows_of_head(kind, LabelHead::Rows::first), .dropout = c.resid_pdrop};
  if (kind == Kind::sequence_classification) {
    head.dense = "pre_classifier";
    head.activation = Activation::relu;
    head.dropout = c.seq_classif_dropout;
  } else if (kind == Kind::question_answering) {
    head.dropout = c.qa_dropout;
    head.classifier = "qa_outputs";
  }
  return head;
}

}  // namespace

HeadClasses distilbert_heads() {
  return {{Kind::masked_lm, "DistilBertForMaskedLM"},
          {Kind::sequence_classification, "DistilBertForSequenceClassification"},
          {Kind::token_classification, "DistilBertForTokenClassification"},
          {Kind::question_answering, "DistilBertForQuestionAnswering"}};
}

DistilBertConfig distilbert_config(HfConfigReader& read) {
  DistilBertConfig c;
  read_transformer_config(read, c,
                          {.positions = {"max_position_embeddings", nullptr},
                           .hidden = {"dim", "hidden_size"},
                           .layers = {"n_layers", "num_hidden_layers"},
                           .heads = {"n_heads", "num_attention_heads"},
                           .inner = "hidden_dim",
                           .activation = "activation",
                           .residual_dropout = "dropout",
                           .attention_dropout = "attention_dropout",
                           .embedding_dropout = nullptr,
                           .epsilon = nullptr});
  c.head_activation = c.activation_function;
  read.number("qa_dropout", 0, 0.999, c.qa_dropout);
  read.number("seq_classif_dropout", 0, 0.999, c.seq_classif_dropout);
  // The initial values of the table of positions, which files contain anyway.
  read.accept_only("sinusoidal_pos_embds", {false}, "leave it out: position embeddings start with random values");
  read.accept_only("tie_weights_", {true}, "set tie_word_embeddings; tie_weights_ is its old name");
  return c;
}

ModelSpec distilbert_spec(const DistilBertConfig& c, const HeadChoice& head, bool sequence_parallel,
                          const SplitChoices& choices) {
  const SpecMaker make{c.n_embd, c.initializer_range, sequence_parallel, choices};
  const EncoderNames names = {.base = "distilbert.",
                              .words = "embeddings.word_embeddings",
                              .positions = "embeddings.position_embeddings",
                              .norm = "embeddings.LayerNorm",
                              .block = "transformer.layer.",
                              .query = "attention.q_lin",
                              .key = "attention.k_lin",
                              .value = "attention.v_lin",
                              .out = "attention.out_lin",
                              .norm1 = "sa_layer_norm",
                              .fc = "ffn.lin1",
                              .proj = "ffn.lin2",
                              .norm2 = "output_layer_norm",
                              .word_dense = "vocab_transform",
                              .word_norm = "vocab_layer_norm",
                              .decoder = "vocab_projector",
                              .decoder_bias = "vocab_projector.bias"};
  ModelSpec spec = encoder_spec("distilbert", c, names, make, head, distilbert_label_head(c, head.kind));
  spec.surplus = {"vocab_transform.", "vocab_layer_norm.", "vocab_projector.",
                  "pre_classifier.",  "classifier.",       "qa_outputs."};
  return spec;
}

}  // namespace shardline
