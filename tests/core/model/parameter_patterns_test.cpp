#include "core/model/parameter_patterns.h"

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::parameter_patterns_test {
namespace {

// Like GPT-2: two layers, of which the second uses the first one's table.
ModelSpec named_model() {
  ModelSpec spec;
  spec.layers.push_back(
      {.name = "embedding",
       .params = {{.name = "wte.weight", .shape = {4}, .sources = {{.tensor = "transformer.wte.weight"}}},
                  {.name = "wpe.weight", .shape = {4}, .sources = {{.tensor = "transformer.wpe.weight"}}}}});
  spec.layers.push_back({.name = "head",
                         .params = {{.name = "ln_f.weight", .shape = {4}, .decays = false},
                                    {.name = "lm_head.weight",
                                     .shape = {4},
                                     .tied_to = "embedding.wte.weight",
                                     .sources = {{.tensor = "lm_head.weight"}}}}});
  return spec;
}

std::vector<std::string> decaying(const std::vector<NamePattern>& patterns) {
  ModelSpec spec = named_model();
  exclude_from_decay(patterns, spec, "/training/no_decay_patterns");
  std::vector<std::string> names;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      if (param.decays) names.push_back(param.name);
  return names;
}

// The model's trained parameters by the names of their uses, then the first layer with a backward pass.
std::vector<std::string> trained(const std::vector<NamePattern>& patterns, ModelSpec spec = named_model()) {
  freeze_others(patterns, spec, "/training/trainable");
  std::vector<std::string> names;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      if (param.trainable) names.push_back(param.name);
  names.push_back(spec.layers[spec.first_with_backward()].name);
  return names;
}

}  // namespace

TEST_CASE("patterns select parameters without weight decay by our names and by those in the files") {
  using Names = std::vector<std::string>;
  CHECK(decaying({}) == Names{"wte.weight", "wpe.weight", "lm_head.weight"});
  CHECK(decaying({"*wpe*"}) == Names{"wte.weight", "lm_head.weight"});
  CHECK(decaying({"transformer.wpe.*"}) == Names{"wte.weight", "lm_head.weight"});
  CHECK(decaying({"embedding.w?e.weight"}) == Names{});
  CHECK(decaying({"*lm_head*"}) == Names{"wpe.weight"});  // tied parameters count as one
  CHECK(decaying({"*ln_f*", "*wte*"}) == Names{"wpe.weight"});
}

TEST_CASE("if a pattern selects no parameter with weight decay, the error suggests one that does") {
  using Catch::Contains;
  CHECK_THROWS_WITH(decaying({"*wte*", "wpe"}),
                    "/training/no_decay_patterns: \"wpe\" matches no parameter; patterns match whole names: write "
                    "\"*wpe*\"");
  CHECK_THROWS_WITH(decaying({"w.*weight"}),
                    Contains("write \"*w*weight*\""));  // a regular expression, as earlier versions took
  CHECK_THROWS_WITH(decaying({"embedding.wqe.weight"}), Contains("did you mean \"embedding.wte.weight\"?"));
}

TEST_CASE("patterns must select either all tensors of a parameter or none") {
  ModelSpec spec = named_model();
  spec.layers[0].params[0].sources = {{.tensor = "q.weight"}, {.tensor = "k.weight"}, {.tensor = "v.weight"}};
  CHECK_THROWS_WITH(trained({"q.*"}, spec),
                    "/training/trainable: selects 1 of the 3 tensors of embedding.wte.weight, which is one parameter "
                    "here; select all of them: q.weight, k.weight, v.weight");
  const auto all = trained({"embedding.wte.*"}, spec);
  CHECK(trained({"?.weight"}, spec) == all);
  CHECK(trained({"q.*", "k.*", "v.weight"}, spec) == all);
}

TEST_CASE("without patterns, all parameters are trained; with patterns, only those that they select") {
  using Names = std::vector<std::string>;
  CHECK(trained({}) == Names{"wte.weight", "wpe.weight", "ln_f.weight", "lm_head.weight", "embedding"});
  CHECK(trained({"head.ln_f.*"}) == Names{"ln_f.weight", "head"});
  CHECK(trained({"transformer.wpe.weight"}) == Names{"wpe.weight", "embedding"});
  // All uses of a tied parameter count as one, whichever of them is named.
  for (const char* use : {"lm_head.weight", "embedding.wte.*", "transformer.wte.weight"})
    CHECK(trained({use}) == Names{"wte.weight", "lm_head.weight", "embedding"});
}

TEST_CASE("parameters that a model never trains stay frozen") {
  ModelSpec spec = named_model();
  spec.layers[0].params[1].trainable = false;
  CHECK(trained({}, spec) == std::vector<std::string>{"wte.weight", "ln_f.weight", "lm_head.weight", "embedding"});
  CHECK_THROWS_WITH(trained({"*wpe*"}, spec), Catch::Contains("selects only parameters that the model never trains"));
  for (auto& layer : spec.layers)
    for (auto& param : layer.params) param.trainable = false;
  CHECK_THROWS_WITH(trained({}, spec), Catch::Contains("has no trainable parameter"));
}

TEST_CASE("a pattern of trained parameters that matches nothing is refused with the nearest name") {
  CHECK_THROWS_WITH(trained({"head.ln_f.weights"}),
                    Catch::Contains("/training/trainable") && Catch::Contains("head.ln_f.weight"));
}

}  // namespace shardline::parameter_patterns_test
