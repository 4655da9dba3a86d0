// Which head a model has. The task chooses the head; a family lists the heads that it has.
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
  // For sequence classification: one class of several, each label for itself, or numbers.
  enum class Problem { single_label, multi_label, regression };

  Kind kind = Kind::causal_lm;
  int64_t labels = 0;              // outputs of a classification; 0: as config.json says
  std::optional<Problem> problem;  // unset: as config.json says, else regression for one label and one class for more
  std::vector<std::string> names;  // of the labels, in order; empty: those of config.json
  // The share of a masked_lm microbatch's rows that have a label on average, from which the time of the head is
  // counted, and how many rows get their labels together: those of a word.
  double labelled_share = 0.15;
  int labelled_together = 1;
};

// The share of labelled rows for which memory is counted: a microbatch of this many rows and segments practically never
// exceeds it. Each segment has at least one labelled row; the others are random, and counts of more than six standard
// deviations above the mean are ignored (one microbatch in 10^9).
double most_labelled_share(const HeadChoice& head, int64_t rows, int64_t segments);

// The tasks that the kinds of heads are for, as a config's "task" spells them.
inline constexpr const char* kCausalLm = "causal-lm";
inline constexpr const char* kMaskedLm = "masked-lm";
inline constexpr const char* kSequenceClassification = "sequence-classification";
inline constexpr const char* kTokenClassification = "token-classification";
inline constexpr const char* kQuestionAnswering = "question-answering";
inline constexpr const char* kSeq2SeqLm = "seq2seq-lm";
const char* task_name(HeadChoice::Kind kind);
std::optional<HeadChoice::Kind> kind_of_task(const std::string& name);  // unset for others

// The kind of a class of transformers, "BertForSequenceClassification"; unset for others.
std::optional<HeadChoice::Kind> kind_of_class(const std::string& name);

// The heads of a family, with the classes that transformers has for them.
using HeadClasses = std::map<HeadChoice::Kind, std::string>;

// Fills in what the choice leaves open, from the config's num_labels, id2label and problem_type. Contradictions are
// mistakes that `read` keeps.
void complete_head(HfConfigReader& read, HeadChoice& head);

// Fills in the labels of an exported program, whose number and problem are known, from the keys of a config that name
// them. Throws a ConfigError that names the key under /model/config.
void name_labels(const nlohmann::json& keys, HeadChoice& head);

// The keys that transformers needs to open a saved model as this class with these labels.
void put_head(nlohmann::json& config, const HeadChoice& head, const std::string& head_class);

}  // namespace shardline
