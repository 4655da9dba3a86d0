// RoBERTa (Liu et al. 2019, arXiv 1907.11692) and XLM-RoBERTa (Conneau et al. 2020, arXiv 1911.02116): BERT with
// positions counted from pad_token_id + 1, and other heads. The two differ only in their class names.
#pragma once
#include "models/families/bert.h"

namespace shardline {

struct RobertaConfig : BertConfig {
  RobertaConfig() { vocab_size = 50265; }
};
struct XlmRobertaConfig : RobertaConfig {
  XlmRobertaConfig() { vocab_size = 30522; }
};

// See read_bert_config.
RobertaConfig roberta_config(HfConfigReader& read, HeadChoice::Kind head);
XlmRobertaConfig xlm_roberta_config(HfConfigReader& read, HeadChoice::Kind head);

HeadClasses roberta_heads();
HeadClasses xlm_roberta_heads();
// See bert_spec.
ModelSpec roberta_spec(const RobertaConfig& config, const HeadChoice& head, bool sequence_parallel,
                       const SplitChoices& choices = {});
ModelSpec xlm_roberta_spec(const XlmRobertaConfig& config, const HeadChoice& head, bool sequence_parallel,
                           const SplitChoices& choices = {});

}  // namespace shardline
