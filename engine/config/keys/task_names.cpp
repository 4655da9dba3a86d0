#include "engine/config/keys/task_names.h"

#include "core/error.h"

namespace shardline {

std::map<std::string, TaskTraits>& task_traits() {
  using Kind = HeadChoice::Kind;
  static std::map<std::string, TaskTraits> all = {
      {kCausalLm, {Kind::causal_lm, {"perplexity"}}},
      {kMaskedLm, {Kind::masked_lm, {"perplexity", "accuracy"}}},
      {kSequenceClassification,
       {Kind::sequence_classification, {"accuracy", "f1", "matthews_correlation", "mse", "pearson", "spearmanr"}}},
      {kTokenClassification, {Kind::token_classification, {"precision", "recall", "f1", "accuracy"}}},
      {kQuestionAnswering,
       {Kind::question_answering,
        {"exact_match", "exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"}}},
      {kSeq2SeqLm, {Kind::seq2seq_lm, {"rouge1", "rouge2", "rougeL", "rougeLsum", "exact_match"}}}};
  return all;
}

const std::map<std::string, std::string>& tasks_by_hub_name() {
  static const std::map<std::string, std::string> all = {{"text-classification", kSequenceClassification},
                                                         {"sentiment-analysis", kSequenceClassification},
                                                         {"ner", kTokenClassification},
                                                         {"fill-mask", kMaskedLm},
                                                         {"text-generation", kCausalLm},
                                                         {"summarization", kSeq2SeqLm},
                                                         {"translation", kSeq2SeqLm},
                                                         {"text2text-generation", kSeq2SeqLm}};
  return all;
}

const TaskTraits& traits_of(const std::string& task) {
  const auto found = task_traits().find(task);
  SL_ASSERT(found != task_traits().end(), "no task ", task);
  return found->second;
}

}  // namespace shardline
