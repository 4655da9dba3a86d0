// A model whose predictions a test chooses.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "engine/serve/answers/served_model.h"

namespace shardline {

class FakeModel final : public ServedModel {
 public:
  using Say = std::function<Logits(const Example& example)>;
  FakeModel(ModelFacts facts, Say say) : ServedModel(std::move(facts)), say_(std::move(say)) {}

  std::vector<Logits> logits(std::vector<Example> examples) const override {
    std::vector<Logits> said;
    for (const Example& example : examples) said.push_back(say_(example));
    return said;
  }
  // Each prompt continues with the ids that follow its last id.
  std::vector<std::vector<int32_t>> continued(std::vector<Continuation> prompts) const override {
    std::vector<std::vector<int32_t>> made;
    asked = prompts;
    for (const Continuation& prompt : prompts) {
      made.emplace_back();
      for (int64_t i = 1; i <= prompt.most_new; ++i) made.back().push_back(prompt.prompt.back() + i);
    }
    return made;
  }

  mutable std::vector<Continuation> asked;  // the latest prompts

 private:
  Say say_;
};

}  // namespace shardline
