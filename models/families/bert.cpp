#include "models/families/bert.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/files/hf_config_reader.h"

namespace shardline {
namespace {

using nlohmann::json;

LabelHead bert_label_head(const BertConfig& c, HeadChoice::Kind kind) {
  LabelHead head{.rows = rows_of_head(kind, LabelHead::Rows::first)};
  if (kind == HeadChoice::Kind::sequence_classification) head.dense = "bert.pooler.dense";
  if (kind == HeadChoice::Kind::question_answering)
    head.classifier = "qa_outputs";
  else
    head.dropout = c.classifier_dropout;
  return head;
}

// transformers makes a decoder of the encoder if is_decoder is true, for any head, and only warns if the two do not go
// together.
void read_is_decoder(HfConfigReader& read, HeadChoice::Kind head, BertConfig& c) {
  const char* key = "is_decoder";
  read.flag(key, c.causal);
  const bool predicts_next = head == HeadChoice::Kind::causal_lm;
  if (predicts_next && !c.causal)
    read.complain({key}, "must be true for causal-lm: otherwise tokens attend to the tokens that they predict",
                  cat("set \"", key, "\": true in model.config, or use the task ", kMaskedLm));
  if (!predicts_next && c.causal)
    read.complain({key},
                  cat("must be false for ", task_name(head), ", in which tokens attend to the tokens on both sides"),
                  cat("set \"", key, "\": false in model.config, or use the task ", kCausalLm));
}

}  // namespace

HeadClasses bert_heads() {
  return {{HeadChoice::Kind::causal_lm, "BertLMHeadModel"},
          {HeadChoice::Kind::masked_lm, "BertForMaskedLM"},
          {HeadChoice::Kind::sequence_classification, "BertForSequenceClassification"},
          {HeadChoice::Kind::token_classification, "BertForTokenClassification"},
          {HeadChoice::Kind::question_answering, "BertForQuestionAnswering"}};
}

void read_bert_config(HfConfigReader& read, HeadChoice::Kind head, BertConfig& c) {
  read_transformer_config(read, c,
                          {.positions = {"max_position_embeddings", nullptr},
                           .hidden = {"hidden_size", nullptr},
                           .layers = {"num_hidden_layers", nullptr},
                           .heads = {"num_attention_heads", nullptr},
                           .inner = "intermediate_size",
                           .activation = "hidden_act",
                           .residual_dropout = "hidden_dropout_prob",
                           .attention_dropout = "attention_probs_dropout_prob",
                           .embedding_dropout = nullptr,
                           .epsilon = "layer_norm_eps"});
  read.size("type_vocab_size", nullptr, c.type_vocab_size);
  json classifier_dropout = nullptr;
  read.any("classifier_dropout", or_null(json_number(0, 0.999)), classifier_dropout);
  c.classifier_dropout = classifier_dropout.is_null() ? c.resid_pdrop : classifier_dropout.get<double>();
  read_is_decoder(read, head, c);
  bool cross_attention = false;
  read.flag("add_cross_attention", cross_attention);
  if (cross_attention) read.complain({"add_cross_attention"}, "must be false: there is no second model to attend to");
  std::string positions = "absolute";
  read.text("position_embedding_type", positions);
  if (positions != "absolute") read.complain({"position_embedding_type"}, "must be \"absolute\"");
}

BertConfig bert_config(HfConfigReader& read, HeadChoice::Kind head) {
  BertConfig c;
  read_bert_config(read, head, c);
  c.head_activation = c.activation_function;
  return c;
}

EncoderNames bert_names(const std::string& base) {
  return {.base = base,
          .words = "embeddings.word_embeddings",
          .positions = "embeddings.position_embeddings",
          .types = "embeddings.token_type_embeddings",
          .norm = "embeddings.LayerNorm",
          .block = "encoder.layer.",
          .query = "attention.self.query",
          .key = "attention.self.key",
          .value = "attention.self.value",
          .out = "attention.output.dense",
          .norm1 = "attention.output.LayerNorm",
          .fc = "intermediate.dense",
          .proj = "output.dense",
          .norm2 = "output.LayerNorm"};
}

ModelSpec bert_spec(const BertConfig& c, const HeadChoice& head, bool sequence_parallel, const SplitChoices& choices) {
  const SpecMaker make{c.n_embd, c.initializer_range, sequence_parallel, choices};
  EncoderNames names = bert_names("bert.");
  names.word_dense = "cls.predictions.transform.dense";
  names.word_norm = "cls.predictions.transform.LayerNorm";
  names.decoder = "cls.predictions.decoder";
  names.decoder_bias = "cls.predictions.bias";
  ModelSpec spec = encoder_spec("bert", c, names, make, head, bert_label_head(c, head.kind));
  spec.surplus = {"bert.pooler.", "pooler.", "cls.", "classifier.", "qa_outputs."};
  return spec;
}

}  // namespace shardline
