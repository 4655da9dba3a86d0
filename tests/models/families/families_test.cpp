// Compares every family and head with transformers, whose numbers golden/make_families.py recorded, and split models
// with whole ones.
#include "models/families/families.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "models/files/hf_directory.h"
#include "models/files/hf_layout.h"
#include "models/files/hf_writer.h"
#include "models/files/safetensors.h"
#include "tests/models/families/run_layers.h"
#include "tests/models/files/files.h"
#include "tests/models/golden.h"

#include "tests/catch.h"

namespace shardline::families_test {
namespace {

using nlohmann::json;
using Kind = HeadChoice::Kind;

const std::vector<std::string> kFamilies = {"bert", "roberta", "xlm-roberta", "distilbert", "gpt2", "gpt_neo", "gptj"};

std::string directory_of(const std::string& family) {
  return golden("families/" + family);
}

json recorded(const std::string& family) {
  std::ifstream file(directory_of(family) + "/runs.json");
  return json::parse(file);
}

HeadChoice head_of(const json& run) {
  HeadChoice head{.labels = 3};
  for (const Kind kind :
       {Kind::masked_lm, Kind::sequence_classification, Kind::token_classification, Kind::question_answering})
    if (run["task"] == task_name(kind)) head.kind = kind;
  using Problem = HeadChoice::Problem;
  if (run["problem"] == "regression") head.problem = Problem::regression;
  if (run["problem"] == "multi_label_classification") head.problem = Problem::multi_label;
  if (run["problem"] == "single_label_classification") head.problem = Problem::single_label;
  return head;
}

std::string name_of(const json& run) {
  std::string name = run["task"];
  if (run["problem"].is_string()) name += ", " + run["problem"].get<std::string>();
  if (run["smoothing"] > 0) name += ", smoothed";
  return name;
}

// The config of a recorded model with this head; with dropout wherever the family has it if asked for.
json config_of(const HfDirectory& directory, const HeadChoice& head, bool dropout = false) {
  json config = directory.config();
  if (head.kind == Kind::causal_lm) config["is_decoder"] = true;
  if (dropout)
    for (auto& [key, value] : config.items())
      if (key.find("drop") != std::string::npos && value.is_number()) value = 0.2;
  return config;
}

at::Tensor as_tensor(const json& values, at::ScalarType type) {
  if (!values.is_array()) return at::scalar_tensor(values.get<double>(), type);
  std::vector<at::Tensor> parts;
  for (const json& value : values) parts.push_back(as_tensor(value, type));
  return at::stack(parts);
}

// [rows], of lists of each sample.
at::Tensor of_rows(const json& samples) {
  std::vector<at::Tensor> parts;
  for (const json& sample : samples) parts.push_back(as_tensor(sample, at::kLong));
  return at::cat(parts);
}

Microbatch microbatch_of(const json& batch, const json& labels, const HeadChoice& head) {
  Microbatch made{.ids = of_rows(batch["ids"]), .types = of_rows(batch["types"])};
  std::vector<at::Tensor> positions, samples;
  int64_t sample = 4;  // samples in the global batch
  std::vector<int64_t> first_places, numbers;
  for (const json& ids : batch["ids"]) {
    const int64_t length = ids.size();
    positions.push_back(at::arange(length, at::kLong));
    samples.push_back(at::arange(length, at::kLong) * 0 + sample);
    numbers.push_back(sample++);
    first_places.push_back(0);
    made.ends.push_back((made.ends.empty() ? 0 : made.ends.back()) + length);
    made.position_count = std::max(made.position_count, length);
  }
  made.positions = made.places = at::cat(positions);
  made.samples = at::cat(samples);
  made.segment_samples = at::tensor(numbers, at::kLong);
  made.segment_places = at::tensor(first_places, at::kLong);
  if (head.kind == Kind::causal_lm || head.kind == Kind::masked_lm || head.kind == Kind::token_classification)
    made.labels = of_rows(labels);
  else
    made.targets =
        as_tensor(labels, head.kind == Kind::question_answering || head.problem == HeadChoice::Problem::single_label
                              ? at::kLong
                              : at::kDouble);
  return made;
}

double weight_of(const Microbatch& batch, const HeadChoice& head) {
  if (batch.labels.defined()) return (batch.labels != kNoLabel).sum().item<double>();
  if (head.kind == Kind::question_answering) return (batch.targets.select(1, 0) != kNoLabel).sum().item<double>();
  return batch.segments();
}

// Requests the head's logits; if it predicts next words, only those of each sample's last row.
MicrobatchContext asking(MicrobatchContext context, const HeadChoice& head) {
  context.mode = head.kind == Kind::causal_lm ? Mode::generate : Mode::evaluate;
  context.predicts = true;
  return context;
}

// What the head predicts, in the form of the recorded logits: for masked words, which it sorts, the logarithms of the
// probabilities of all words in rows with labels.
at::Tensor predicted_logits(const ModelSpec& spec, const std::vector<at::Tensor>& values, Microbatch batch,
                            MicrobatchContext context, const HeadChoice& head, at::ScalarType type) {
  context.batch = &batch;
  const bool is_masked = head.kind == Kind::masked_lm;
  if (is_masked)
    batch.targets = at::full({batch.segments(), 1}, spec.vocab_size, at::kLong);  // how many words it finds
  const at::Tensor found = run_layers(spec, values, asking(context, head), {.type = type}).logits;
  if (!is_masked) return found;
  const auto words = found.narrow(1, 0, spec.vocab_size), scores = found.narrow(1, spec.vocab_size, spec.vocab_size);
  return at::zeros_like(scores).scatter(1, words.to(at::kLong), scores);
}

// The values of all parameters; tied ones share a tensor.
std::vector<at::Tensor> values_of(const ModelSpec& spec, const HfDirectory& directory) {
  std::vector<at::Tensor> values;
  std::map<std::string, at::Tensor> by_name;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params) {
      if (!param.tied_to.empty()) {
        values.push_back(by_name.at(param.tied_to));
        continue;
      }
      values.push_back(at::empty(param.shape, at::kDouble));
      directory.read(param, param.name, 0, 1, values.back());
      by_name[layer.full_name(param)] = values.back();
    }
  return values;
}

// Gradients by the names and in the shapes of the tensors in files; uses of a tied parameter are added.
std::map<std::string, at::Tensor> gradients_of(const ModelSpec& spec, const std::vector<at::Tensor>& gradients) {
  std::map<std::string, at::Tensor> whole, in_files;
  size_t next = 0;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params) {
      const auto [sum, is_new] =
          whole.emplace(param.tied_to.empty() ? layer.full_name(param) : param.tied_to, gradients[next]);
      if (!is_new) sum->second = sum->second + gradients[next];
      ++next;
    }
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty())
        for (const auto& source : param.sources)
          in_files[source.tensor] =
              shared_part(param, source, 0, 1, whole.at(layer.full_name(param))).local.contiguous().view(-1);
  return in_files;
}

std::vector<double> probes(const at::Tensor& flat) {
  std::vector<double> all = {flat.norm().item<double>()};
  const auto i = at::arange(flat.numel(), at::kDouble);
  for (int k = 0; k < 4; ++k) all.push_back((flat * (i * (0.37 * (k + 1)) + k).cos()).sum().item<double>());
  return all;
}

// torch.optim.AdamW with lr 1e-3 and weight decay 0.1, after clipping to 1.
class AdamW {
 public:
  AdamW(const ModelSpec& spec, std::vector<at::Tensor>& values) : spec_(spec), values_(values) {
    for (const auto& value : values) {
      first_.push_back(at::zeros_like(value));
      second_.push_back(at::zeros_like(value));
    }
  }

  void step(std::vector<at::Tensor> gradients) {
    std::map<std::string, size_t> places;
    std::vector<const ParamSpec*> params;
    for (const auto& layer : spec_.layers)
      for (const auto& param : layer.params) {
        if (!param.tied_to.empty())
          gradients[places.at(param.tied_to)] = gradients[places.at(param.tied_to)] + gradients[params.size()];
        places[layer.full_name(param)] = params.size();
        params.push_back(&param);
      }
    double squares = 0;
    for (size_t i = 0; i < params.size(); ++i)
      if (params[i]->tied_to.empty()) squares += (gradients[i] * gradients[i]).sum().item<double>();
    const double clip = std::min(1.0, 1.0 / (std::sqrt(squares) + 1e-6));
    ++steps_;
    for (size_t i = 0; i < params.size(); ++i) {
      if (!params[i]->tied_to.empty()) continue;
      const auto g = gradients[i].to(values_[i].scalar_type()) * clip;
      first_[i].mul_(0.9).add_(g, 0.1);
      second_[i].mul_(0.999).addcmul_(g, g, 0.001);
      if (params[i]->decays) values_[i].mul_(1 - 1e-3 * 0.1);
      const auto scale = (second_[i] / (1 - std::pow(0.999, steps_))).sqrt() + 1e-8;
      values_[i].addcdiv_(first_[i], scale, -1e-3 / (1 - std::pow(0.9, steps_)));
    }
  }

 private:
  const ModelSpec& spec_;
  std::vector<at::Tensor>& values_;
  std::vector<at::Tensor> first_, second_;
  int steps_ = 0;
};

// The gradients of step 1 in the order of the spec.
std::vector<at::Tensor> compare_run(const std::string& family, const json& batches, const json& run,
                                    at::ScalarType type) {
  const bool exact = type == at::kDouble;
  const HfDirectory directory(directory_of(family));
  const HeadChoice head = head_of(run);
  const ModelSpec spec = model_spec(config_of(directory, head), family, false, {}, nullptr, head);
  CHECK(directory.check_names(spec).missing.empty());
  auto values = values_of(spec, directory);
  if (!exact)  // tied parameters stay one tensor
    for (auto& value : values) value.set_data(value.to(type));
  const json& expected = run[exact ? "float64" : "float32"];
  AdamW optimizer(spec, values);
  std::vector<at::Tensor> first;
  for (size_t step = 0; step < batches.size(); ++step) {
    const Microbatch batch = microbatch_of(batches[step], run["steps"][step], head);
    const double weight = weight_of(batch, head);
    MicrobatchContext context{.batch = &batch, .loss_scale = 1 / weight, .label_smoothing = run["smoothing"]};
    const LayersOutcome outcome = run_layers(spec, values, context, {.type = type});
    CHECK(outcome.loss.weight == weight);
    const double loss = expected["losses"][step];
    CHECK(std::abs(outcome.loss.sum / weight - loss) <= (exact ? 1e-10 : 5e-6) * std::abs(loss));
    if (step == 0) {
      first = outcome.gradients;
      context.mode = Mode::evaluate;
      CHECK(run_layers(spec, values, context, {.type = type}).loss.sum == Approx(outcome.loss.sum).epsilon(1e-12));
      const bool is_recorded = expected.contains("logits");
      CHECK(is_recorded == (head.kind != Kind::masked_lm || run["smoothing"] == 0.0));
      if (is_recorded) {
        const at::Tensor logits = predicted_logits(spec, values, batch, context, head, type);
        CHECK(difference(logits, as_tensor(expected["logits"], at::kDouble)) <= (exact ? 1e-9 : 1e-4));
      }
    }
    optimizer.step(outcome.gradients);
  }
  if (!exact) return first;
  const auto gradients = gradients_of(spec, first);
  std::set<std::string> names, expected_names;
  double longest = 0;
  for (const auto& [name, expected_probes] : expected["gradients"].items()) {
    expected_names.insert(name);
    longest = std::max(longest, expected_probes[0].get<double>());
  }
  for (const auto& [name, gradient] : gradients) {
    names.insert(name);
    if (!expected["gradients"].contains(name)) continue;
    const auto got = probes(gradient);
    const json& wanted = expected["gradients"][name];
    const double scale = std::max(wanted[0].get<double>(), 1e-3 * longest);
    for (size_t i = 0; i < got.size(); ++i) {
      INFO(name << ", probe " << i);
      CHECK(std::abs(got[i] - wanted[i].get<double>()) <= 1e-9 * scale);
    }
  }
  CHECK(names == expected_names);
  return first;
}

// Writes the model of a recorded run as two ranks would.
void save(const std::string& path, const json& config, const HeadChoice& head, const HfDirectory& from) {
  const HfModel model = read_hf_model(config, json::object(), head);
  const ModelSpec spec = model_spec(model.config, path, false, {}, nullptr, head);
  HfWriter writer(path, spec, at::kFloat);
  writer.create(model.config, {});
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      for (int t = 0; param.tied_to.empty() && t < 2; ++t) {
        const at::Tensor mine = at::empty(param.local_shape(t, 2), at::kFloat);
        from.read(param, param.name, t, 2, mine);
        writer.write(param, layer.full_name(param), t, 2, mine);
      }
  writer.finish();
}

// The error of a gradient, relative to its largest element or to a hundredth of the largest of all.
double worst_difference(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& exact) {
  double largest = 0, worst = 0;
  for (const auto& gradient : exact) largest = std::max(largest, gradient.abs().max().item<double>());
  for (size_t i = 0; i < exact.size(); ++i)
    worst =
        std::max(worst, difference(got[i], exact[i]) / std::max(exact[i].abs().max().item<double>(), 0.01 * largest));
  return worst;
}

}  // namespace

TEST_CASE("every family and head has the logits, losses, gradients and steps of transformers") {
  const std::string family = GENERATE(from_range(kFamilies));
  const json all = recorded(family);
  for (const json& run : all["runs"]) {
    INFO(family << ", " << name_of(run));
    const auto exact = compare_run(family, all["batches"], run, at::kDouble);
    const auto single = compare_run(family, all["batches"], run, at::kFloat);
    CHECK(worst_difference(single, exact) <= 1e-5);
  }
}

TEST_CASE("a split model of any family and head computes the same as the whole one, with dropout") {
  const std::string family = GENERATE(from_range(kFamilies));
  const json all = recorded(family);
  const HfDirectory directory(directory_of(family));
  for (const json& run : all["runs"]) {
    const HeadChoice head = head_of(run);
    const json config = config_of(directory, head, true);
    const Microbatch batch = microbatch_of(all["batches"][0], run["steps"][0], head);
    MicrobatchContext context{
        .batch = &batch, .seed = 9, .step = 3, .loss_scale = 0.1, .label_smoothing = run["smoothing"]};
    const ModelSpec one = model_spec(config, family, false, {}, nullptr, head);
    const auto values = values_of(one, directory);
    const LayersOutcome exact = run_layers(one, values, context, {});
    MicrobatchContext evaluation = context;
    evaluation.mode = Mode::evaluate;
    CHECK(exact.loss.sum != run_layers(one, values, evaluation, {}).loss.sum);  // something was dropped
    const LayersOutcome predicted = run_layers(one, values, asking(context, head), {});
    for (const int ranks : {2, 3})
      for (const bool sequence_parallel : {false, true})
        for (const bool whole_words : {false, true}) {
          INFO(family << ", " << name_of(run) << ", T = " << ranks << (sequence_parallel ? ", memory" : ", speed")
                      << (whole_words ? ", words whole" : ""));
          SplitChoices choices;
          if (whole_words)
            for (const auto& layer : one.layers)
              for (const auto& unit : layer.units)
                if (unit.parts == "words" || layer.name == "h.1") choices[layer.full_name(unit)] = {.split = false};
          const ModelSpec spec = model_spec(config, family, sequence_parallel, choices, nullptr, head);
          const LayersRun on{.ranks = ranks, .sequence_parallel = sequence_parallel};
          const LayersOutcome got = run_layers(spec, values, context, on);
          CHECK(got.ranks_agree);
          CHECK(std::abs(got.loss.sum - exact.loss.sum) <= 1e-12 * std::abs(exact.loss.sum));
          CHECK(got.loss.weight == exact.loss.weight);
          CHECK(worst_difference(got.gradients, exact.gradients) <= 1e-10);
          const LayersOutcome logits = run_layers(spec, values, asking(context, head), on);
          CHECK(logits.ranks_agree);
          if (predicted.logits.defined()) CHECK(difference(logits.logits, predicted.logits) <= 1e-12);
        }
  }
}

TEST_CASE("microbatches without rows, or without labels of rows, have no loss and no gradients") {
  for (const std::string& family : kFamilies) {
    const json all = recorded(family);
    const HfDirectory directory(directory_of(family));
    for (const json& run : all["runs"]) {
      const HeadChoice head = head_of(run);
      const json config = config_of(directory, head, true);
      const Microbatch batch = microbatch_of(all["batches"][0], run["steps"][0], head);
      std::vector<Microbatch> nothing = {part_of(batch, {0, 0})};
      if (batch.labels.defined()) {
        nothing.push_back(batch);
        nothing.back().labels = at::full_like(batch.labels, kNoLabel);
      }
      for (const Microbatch& none : nothing)
        for (const bool sequence_parallel : {false, true})
          for (const int ranks : {1, 2}) {
            INFO(family << ", " << name_of(run) << ", " << none.tokens() << " rows, T = " << ranks << ", "
                        << sequence_parallel);
            const ModelSpec spec = model_spec(config, family, sequence_parallel, {}, nullptr, head);
            const MicrobatchContext context{.batch = &none, .label_smoothing = run["smoothing"]};
            const LayersOutcome outcome = run_layers(spec, values_of(spec, directory), context,
                                                     {.ranks = ranks, .sequence_parallel = sequence_parallel});
            CHECK(outcome.loss.sum == 0);
            CHECK(outcome.loss.weight == 0);
            for (const auto& gradient : outcome.gradients) CHECK(gradient.abs().max().item<double>() == 0);
          }
    }
  }
}

TEST_CASE("a saved model has the tensors of transformers' class and every key of its config") {
  for (const std::string& family : kFamilies) {
    const json all = recorded(family);
    for (const json& run : all["runs"]) {
      INFO(family << ", " << name_of(run));
      const HfDirectory from(directory_of(family));
      const HeadChoice head = head_of(run);
      json config = config_of(from, head);
      config["of_a_user"] = {1, {{"kept", true}}};
      const ScratchDirectory scratch;
      save(scratch.path(), config, head, from);
      std::set<std::string> names, expected;
      for (const auto& [name, probes_] : run["float64"]["gradients"].items()) expected.insert(name);
      const SafetensorsFile file(scratch / "model.safetensors");
      for (const auto& [name, entry] : file.tensors()) names.insert(name);
      CHECK(names == expected);
      const HfDirectory saved(scratch.path());
      for (const auto& [key, value] : config.items())
        if (head.kind != Kind::question_answering ||
            key.find("label") == std::string::npos)  // which always has two labels
          CHECK(saved.config().at(key) == value);
      CHECK(saved.config()["architectures"].size() == 1);
      const ModelSpec spec = model_spec(saved.config(), family, false, {}, nullptr, head);
      const NameReport report = saved.check_names(spec);
      CHECK(report.missing.empty());
      CHECK(report.left_out.empty());
      const auto written = values_of(spec, saved), read = values_of(spec, from);
      for (size_t i = 0; i < read.size(); ++i) CHECK(difference(written[i], read[i]) == 0);
    }
  }
}

// tests/transformers/open_saved.py opens them: writes into the directory SHARDLINE_SAVED.
TEST_CASE("every family and head is saved", "[.saved]") {
  const char* into = std::getenv("SHARDLINE_SAVED");
  REQUIRE(into != nullptr);
  for (const std::string& family : kFamilies) {
    const json all = recorded(family);
    for (const json& run : all["runs"]) {
      if (run["smoothing"] > 0) continue;
      const HfDirectory from(directory_of(family));
      const std::string name = family + "." + run["task"].get<std::string>() + "." + run["problem"].dump();
      save(std::string(into) + "/" + name, config_of(from, head_of(run)), head_of(run), from);
    }
  }
}

TEST_CASE("a head that a family does not have is a mistake of the task") {
  for (const auto& [family, kind] :
       {std::pair{"distilbert", Kind::causal_lm}, {"gptj", Kind::token_classification}, {"gpt2", Kind::masked_lm}}) {
    const HfModel model = read_hf_model({{"model_type", family}}, json::object(), {.kind = kind});
    REQUIRE(model.mistakes.size() == 1);
    CHECK(model.mistakes[0].of_task);
    const std::string text = mistakes_text(model.mistakes, "config.json: ", "/model/config");
    CHECK_THAT(text, Catch::Contains("/task: must be a task for which " + std::string(family) + " has a head: ") &&
                         Catch::Contains("sequence-classification") &&
                         Catch::Contains(std::string("got \"") + task_name(kind)) && !Catch::Contains("config.json"));
  }
}

TEST_CASE("an encoder needs is_decoder for causal-lm, and no other task accepts it") {
  for (const char* family : {"bert", "roberta", "xlm-roberta"}) {
    const auto mistakes = [&](Kind kind, json keys) {
      const json file = {{"model_type", family}};
      return mistakes_text(read_hf_model(file, keys, {.kind = kind}).mistakes, "config.json: ", "/model/config");
    };
    CAPTURE(family);
    CHECK(mistakes(Kind::causal_lm, {{"is_decoder", true}}) == "");
    CHECK(mistakes(Kind::masked_lm, {{"is_decoder", false}}) == "");
    CHECK_THAT(mistakes(Kind::causal_lm, json::object()),
               Catch::Contains("config.json: /is_decoder: must be true for causal-lm: otherwise tokens attend to the "
                               "tokens that they predict") &&
                   Catch::Contains("set \"is_decoder\": true in model.config, or use the task masked-lm"));
    CHECK_THAT(mistakes(Kind::causal_lm, {{"is_decoder", false}}),
               Catch::Contains("/model/config/is_decoder: must be true for causal-lm") && Catch::Contains("got false"));
    CHECK_THAT(mistakes(Kind::token_classification, {{"is_decoder", true}}),
               Catch::Contains("/model/config/is_decoder: must be false for token-classification") &&
                   Catch::Contains("set \"is_decoder\": false in model.config, or use the task causal-lm"));
    CHECK_THAT(mistakes(Kind::causal_lm, {{"is_decoder", true}, {"add_cross_attention", true}}),
               Catch::Contains("/model/config/add_cross_attention: must be false"));
  }
}

TEST_CASE("labels are those of the data, or else of config.json, and are saved in the config") {
  const auto read = [](json file, HeadChoice head) {
    file["model_type"] = "bert";
    return read_hf_model(file, json::object(), head);
  };
  const json named = {{"id2label", {{"0", "no"}, {"1", "yes"}, {"2", "both"}}}, {"problem_type", nullptr}, {"mine", 7}};
  HfModel model = read(named, {.kind = Kind::sequence_classification});
  REQUIRE(model.mistakes.empty());
  CHECK(model.head.labels == 3);
  CHECK(model.head.problem == HeadChoice::Problem::single_label);
  CHECK(model.config["architectures"] == json{"BertForSequenceClassification"});
  CHECK(model.config["id2label"] == named["id2label"]);
  CHECK(model.config["label2id"] == json{{"no", 0}, {"yes", 1}, {"both", 2}});
  CHECK(model.config["problem_type"] == "single_label_classification");
  CHECK(model.config["mine"] == 7);
  CHECK(model.make_spec(false, {}).param("head.classifier.weight").shape == std::vector<int64_t>{3, 768});

  model = read(named, {.kind = Kind::token_classification, .names = {"O", "B-PER"}});
  CHECK(model.head.labels == 2);
  CHECK(model.config["id2label"] == json{{"0", "O"}, {"1", "B-PER"}});
  model = read(named, {.kind = Kind::question_answering});  // whatever the model classified before
  CHECK(model.config["id2label"] == json{{"0", "LABEL_0"}, {"1", "LABEL_1"}});
  model = read({{"num_labels", 1}}, {.kind = Kind::sequence_classification});
  CHECK(model.head.problem == HeadChoice::Problem::regression);
  CHECK(model.config["problem_type"] == "regression");
  CHECK_FALSE(model.config.contains("num_labels"));
  CHECK(read(json::object(), {.kind = Kind::sequence_classification}).head.labels == 2);
  model = read(named, {.kind = Kind::masked_lm});
  CHECK(model.config["architectures"] == json{"BertForMaskedLM"});
  CHECK(model.config["id2label"] == named["id2label"]);
  for (const char* wrong : {R"({"id2label": {"0": "a", "2": "b"}})", R"({"id2label": {"0": 3}})",
                            R"({"num_labels": 0})", R"({"problem_type": "guess"})"}) {
    INFO(wrong);
    CHECK(read(json::parse(wrong), {.kind = Kind::sequence_classification}).mistakes.size() == 1);
  }
}

}  // namespace shardline::families_test
