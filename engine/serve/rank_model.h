// The model on the ranks. The first rank decides what is computed; the others do their parts of it.
#pragma once
#include <chrono>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/data/examples/example_set.h"
#include "engine/serve/answers/served_model.h"
#include "engine/train/trainer.h"
#include "tensor_parallel/ops/attention.h"

namespace shardline {

// The next tokens of a sequence: its prompt at first, later the token that was sampled last.
struct SequenceTokens {
  int64_t sequence = 0;  // a number of its own
  std::vector<int64_t> ids;
};

class RankModel {
 public:
  // All must outlive it.
  RankModel(RankTrainer& trainer, const ModelSpec& spec, HeadChoice::Kind head, Communicator& world)
      : trainer_(trainer), spec_(spec), head_(head), world_(world) {}

  // For the first rank. Returns what the head predicts for each example. The examples are not empty.
  std::vector<Logits> logits(const std::vector<Example>& examples);
  // Returns the logits of the next token of each sequence, whose earlier tokens the ranks know: [sequences,
  // vocabulary], in host memory. `ended`: sequences that will not continue; they are forgotten first.
  at::Tensor next_logits(const std::vector<SequenceTokens>& tokens, const std::vector<int64_t>& ended);
  // Call it every second while there is nothing to compute, because the other ranks wait for the next message for a
  // limited time only.
  void keep_waiting();
  void end();  // ends follow() on the other ranks

  // For the other ranks: does what the first rank asks for until that calls end().
  void follow();

 private:
  struct Sequence {
    int64_t length = 0;  // tokens that the caches hold
    std::deque<KvCache> caches;
  };
  void tell(const char* what, const nlohmann::json& details);
  at::Tensor run(const std::vector<Example>& examples);
  at::Tensor run(const std::vector<SequenceTokens>& tokens, const std::vector<int64_t>& ended);

  RankTrainer& trainer_;
  const ModelSpec& spec_;
  HeadChoice::Kind head_;
  Communicator& world_;
  std::map<int64_t, Sequence> sequences_;
  std::optional<std::chrono::steady_clock::time_point> last_told_;
};

// The number of rows that a head has for an example.
int64_t logits_rows(const Example& example, HeadChoice::Kind head);

}  // namespace shardline
