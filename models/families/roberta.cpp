#include "models/families/roberta.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/files/hf_config_reader.h"

namespace shardline {
namespace {

using Kind = HeadChoice::Kind;

// In the table of positions, the entries up to pad_token_id are reserved for padding.
void read_positions(HfConfigReader& read, RobertaConfig& c) {
  constexpr int64_t kMostWords = 1 << 24;
  nlohmann::json pad = 1;
  read.any("pad_token_id", json_integer(0, kMostWords), pad);
  c.first_position = pad.get<int64_t>() + 1;
  if (c.n_positions <= c.first_position) {
    read.complain({"max_position_embeddings", "pad_token_id"},
                  cat("max_position_embeddings (", c.n_positions, ") must be larger than pad_token_id + 1 (",
                      c.first_position, "), from where positions are counted"));
    return;
  }
  c.n_positions -= c.first_position;
}

template <class Config>
Config config_of(HfConfigReader& read, Kind head) {
  Config c;
  read_bert_config(read, head, c);
  read_positions(read, c);
  c.head_activation = Activation::gelu;  // regardless of hidden_act
  return c;
}

LabelHead roberta_label_head(const RobertaConfig& c, Kind kind) {
  LabelHead head{.rows = rows_of_head(kind, LabelHead::Rows::first), .dropout = c.classifier_dropout};
  if (kind == Kind::sequence_classification) {
    head.first_dropout = c.classifier_dropout;
    head.dense = "classifier.dense";
    head.classifier = "classifier.out_proj";
  } else if (kind == Kind::question_answering) {
    head.dropout = 0;
    head.classifier = "qa_outputs";
  }
  return head;
}

ModelSpec spec_of(const std::string& family, const RobertaConfig& c, const HeadChoice& head, bool sequence_parallel,
                  const SplitChoices& choices) {
  const SpecMaker make{c.n_embd, c.initializer_range, sequence_parallel, choices};
  EncoderNames names = bert_names("roberta.");
  names.word_dense = "lm_head.dense";
  names.word_norm = "lm_head.layer_norm";
  names.decoder = "lm_head.decoder";
  names.decoder_bias = "lm_head.bias";
  ModelSpec spec = encoder_spec(family, c, names, make, head, roberta_label_head(c, head.kind));
  spec.surplus = {"roberta.pooler.", "pooler.", "lm_head.", "classifier.", "qa_outputs."};
  return spec;
}

}  // namespace

HeadClasses roberta_heads() {
  return {{Kind::causal_lm, "RobertaForCausalLM"},
          {Kind::masked_lm, "RobertaForMaskedLM"},
          {Kind::sequence_classification, "RobertaForSequenceClassification"},
          {Kind::token_classification, "RobertaForTokenClassification"},
          {Kind::question_answering, "RobertaForQuestionAnswering"}};
}
HeadClasses xlm_roberta_heads() {
  return {{Kind::causal_lm, "XLMRobertaForCausalLM"},
          {Kind::masked_lm, "XLMRobertaForMaskedLM"},
          {Kind::sequence_classification, "XLMRobertaForSequenceClassification"},
          {Kind::token_classification, "XLMRobertaForTokenClassification"},
          {Kind::question_answering, "XLMRobertaForQuestionAnswering"}};
}

RobertaConfig roberta_config(HfConfigReader& read, Kind head) {
  return config_of<RobertaConfig>(read, head);
}
XlmRobertaConfig xlm_roberta_config(HfConfigReader& read, Kind head) {
  return config_of<XlmRobertaConfig>(read, head);
}

ModelSpec roberta_spec(const RobertaConfig& config, const HeadChoice& head, bool sequence_parallel,
                       const SplitChoices& choices) {
  return spec_of("roberta", config, head, sequence_parallel, choices);
}
ModelSpec xlm_roberta_spec(const XlmRobertaConfig& config, const HeadChoice& head, bool sequence_parallel,
                           const SplitChoices& choices) {
  return spec_of("xlm-roberta", config, head, sequence_parallel, choices);
}

}  // namespace shardline
