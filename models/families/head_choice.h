// Which head a model has. The task selects the head; a family lists the heads that it supports.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

class HfConfigReader;

struct HeadChoice {
  enum class Kind {
    causal_lm,
    masked_lm,
    sequence_classification,
    token_classification,
    question_answering,
    seq2seq_lm
  };
  // For sequence classification: one class out of several, each label independently, or numbers.
  enum class Problem { single_label, multi_label, regression };

  Kind kind = Kind::causal_lm;
  int64_t labels = 0;              // outputs of a classification; 0: taken from config.json
  std::optional<Problem> problem;  // unset: from config.json, else regression for one label and one class for more
  std::vector<std::string> names;  // the labels' names, in order; empty: taken from config.json
  // The average fraction of a masked_lm microbatch's rows that have a label, used to estimate the head's time, and the
  // number of rows that get their labels together: those of one word.
  double labelled_share = 0.15;
  int labelled_together = 1;
};

// The fraction of labelled rows for which memory is planned: a microbatch of this many rows and segments practically
// never exceeds it. Each segment has at least one labelled row; the others are random, and counts of more than six
// standard deviations above the mean are ignored (one microbatch in 10^9).
double most_labelled_share(const HeadChoice& head, int64_t rows, int64_t segments);

// The tasks that the kinds of heads are for, as spelled in a config's "task".
inline constexpr const char* kCausalLm = "causal-lm";
inline constexpr const char* kMaskedLm = "masked-lm";
inline constexpr const char* kSequenceClassification = "sequence-classification";
inline constexpr const char* kTokenClassification = "token-classification";
inline constexpr const char* kQuestionAnswering = "question-answering";
inline constexpr const char* kSeq2SeqLm = "seq2seq-lm";
const char* task_name(HeadChoice::Kind kind);
std::optional<HeadChoice::Kind> kind_of_task(const std::string& name);  // unset for other names

// The kind of a transformers class such as "BertForSequenceClassification"; unset for others.
std::optional<HeadChoice::Kind> kind_of_class(const std::string& name);

// The heads of a family, with the names of their classes in transformers.
using HeadClasses = std::map<HeadChoice::Kind, std::string>;

// Fills in what the choice leaves open, from the config's num_labels, id2label and problem_type. `read` records
// contradictions as mistakes.
void complete_head(HfConfigReader& read, HeadChoice& head);

// Fills in the labels of an exported program, whose number and problem are known, from the config's keys for their
// names. Throws a ConfigError that names the key under /model/config.
void name_labels(const nlohmann::json& keys, HeadChoice& head);

// Sets the keys that transformers needs to open a saved model as this class with these labels.
void put_head(nlohmann::json& config, const HeadChoice& head, const std::string& head_class);

}  // namespace shardline
