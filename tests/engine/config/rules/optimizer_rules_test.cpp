#include "engine/config/rules/optimizer_rules.h"

#include "tests/engine/config/training_config.h"

#include "tests/catch.h"

namespace shardline::optimizer_rules_test {
namespace {

using nlohmann::json;

OptimizerOptions options_of(const json& training) {
  return optimizer_options(config_with(training).training);
}

}  // namespace

TEST_CASE("optimizers are known by transformers' names, and Adam by ours") {
  using Kind = OptimizerOptions::Kind;
  CHECK(options_of(json::object()).kind == Kind::adamw);
  CHECK(options_of({{"optim", "adamw_torch"}}).kind == Kind::adamw);
  CHECK(options_of({{"optim", "adam"}, {"adam_beta2", 0.95}}).kind == Kind::adam);
  CHECK(options_of({{"optim", "adam"}, {"adam_beta2", 0.95}}).beta2 == 0.95);
  CHECK(options_of({{"optim", "sgd"}, {"weight_decay", 0.1}}).weight_decay == 0.1);
  CHECK(options_of({{"optim", "adafactor"}, {"optim_args", nullptr}}).kind == Kind::adafactor);
  CHECK(options_of({{"adafactor", true}}).kind == Kind::adafactor);  // version 4
  CHECK(options_of({{"adafactor", false}, {"optim", "sgd"}}).kind == Kind::sgd);
  CHECK(options_of({{"max_grad_value", 0.5}}).max_gradient_value == 0.5);
  CHECK_THAT(mistake_in({{"adafactor", true}, {"optim", "sgd"}}),
             Catch::Contains("contradicts training.optim \"sgd\""));
  CHECK_THAT(mistake_in({{"optim", "adamw_8bit"}}), Catch::Contains("not implemented yet"));
}

TEST_CASE("optim_args are read as transformers reads them, and nothing in them is ignored") {
  using Catch::Contains;
  const auto args = [](const std::string& text) { return json{{"optim", "sgd"}, {"optim_args", text}}; };
  const auto options = options_of(args("momentum=0.9, nesterov = True"));
  CHECK(options.momentum == 0.9);
  CHECK(options.nesterov);
  CHECK(options_of(args("momentum=.5,dampening=1e-1,nesterov=no")).dampening == 0.1);
  CHECK(options_of(args("")).momentum == 0);
  CHECK_THAT(mistake_in(args("momentum")), Contains("is not an argument"));
  CHECK_THAT(mistake_in(args("momentum=0.9=1")), Contains("is not an argument"));
  CHECK_THAT(mistake_in(args("=0.9")), Contains("is not an argument"));
  CHECK_THAT(mistake_in(args("momentum=0.9,,nesterov=true")), Contains("\"\" is not an argument"));
  CHECK_THAT(mistake_in(args("momentum=much")), Contains("must be a number"));
  CHECK_THAT(mistake_in(args("momentum=nan")), Contains("must be a number"));
  CHECK_THAT(mistake_in(args("momentum=0.9x")), Contains("must be a number"));
  CHECK_THAT(mistake_in(args("momentum=-1")), Contains("must be a number >= 0"));
  CHECK_THAT(mistake_in(args("momentum=0.9,momentum=0.8")), Contains("twice"));
  CHECK_THAT(mistake_in(args("nesterov=maybe")), Contains("must be true or false"));
  CHECK_THAT(mistake_in(args("nesterov=true")), Contains("nesterov needs a momentum"));
  CHECK_THAT(mistake_in(args("momentum=0.9,nesterov=true,dampening=0.1")), Contains("no dampening"));
  CHECK_THAT(mistake_in(args("weight_decay=0.1")), Contains("use training.weight_decay"));
  CHECK_THAT(mistake_in(args("beta=1")), Contains("it takes momentum, dampening and nesterov"));
  CHECK_THAT(mistake_in({{"optim_args", "momentum=0.9"}}), Contains("takes no arguments"));
}

TEST_CASE("patterns of parameters are a string or a list") {
  using Patterns = std::vector<NamePattern>;
  CHECK(config_with({{"no_decay_patterns", "*wte*"}}).training.no_decay_patterns == Patterns{"*wte*"});
  CHECK(config_with({{"trainable", {"head.*", "*bias"}}}).training.trainable == Patterns{"head.*", "*bias"});
}

}  // namespace shardline::optimizer_rules_test
