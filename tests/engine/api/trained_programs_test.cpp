// Exported programs that a Trainer trains on its caller's memory, compared with what PyTorch computes with them.
#include <ATen/TensorOperators.h>

#include <nlohmann/json.hpp>

#include "include/shardline/shardline.h"
#include "tests/engine/tiny_run.h"
#include "tests/models/program/pairs_program.h"
#include "tests/models/program/tensors_program.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::trained_programs_test {
namespace {

using at::Tensor;
using Catch::Contains;
using nlohmann::json;
using tensors_program::expected;
using tensors_program::values_of;

std::string config_of(const std::string& program, const json& changes) {
  json config = {
      {"model", {{"path", golden("program/" + program + ".pt2")}}},
      {"training",
       {{"global_batch_size", 4}, {"max_steps", 30}, {"learning_rate", 0.01}, {"lr_scheduler_type", "constant"}}},
      {"runtime", {{"device", "cpu"}, {"threads_per_rank", 1}}}};
  config.merge_patch(changes);
  return config.dump();
}

const json kPictures = {{"task", "sequence-classification"},
                        {"model", {{"inputs", {{"pixel_values", "image"}, {"labels", "labels"}}}}}};
const json kSounds = {{"task", "seq2seq-lm"},
                      {"model", {{"inputs", {{"input_features", "sound"}}}}},
                      {"data", {{"max_target_length", 6}}}};

// Targets as one tensor, padded with -100.
Tensor padded(const std::vector<std::vector<int64_t>>& targets) {
  size_t longest = 0;
  for (const auto& target : targets) longest = std::max(longest, target.size());
  std::vector<int64_t> flat;
  for (const auto& target : targets) {
    flat.insert(flat.end(), target.begin(), target.end());
    flat.insert(flat.end(), longest - target.size(), kNoLabel);
  }
  return at::tensor(flat, at::kLong).view({std::ssize(targets), -1});
}

// Trains on these samples, whose first loss is that of PyTorch, and continues after a checkpoint.
template <class Inputs>
void check_training(Trainer& trainer, const Inputs& inputs, const Tensor& labels, double loss) {
  const RunFolder folder("trained-program");
  CHECK(trainer.evaluate(inputs, labels) == Approx(loss).epsilon(1e-5));
  CHECK(trainer.step(inputs, labels).loss == Approx(loss).epsilon(1e-5));
  const std::string saved = trainer.save(folder / "saved");
  for (int i = 0; i < 10; ++i) trainer.step(inputs, labels);
  const double after = trainer.evaluate(inputs, labels);
  CHECK(after < 0.95 * loss);
  trainer.resume(saved);
  for (int i = 0; i < 10; ++i) trainer.step(inputs, labels);
  CHECK(trainer.evaluate(inputs, labels) == after);
}

}  // namespace

TEST_CASE("a trainer trains a language model that was exported") {
  const Tensor ids = words_program::ids();
  Trainer trainer(config_of("words", {{"data", {{"sequence_length", ids.size(1)}}}}));
  check_training(trainer, ids, ids, words_program::expected()["loss"]);
}

TEST_CASE("a trainer accepts columns of tensors by name, as the only input, or as an array") {
  const auto wanted = expected("pictures");
  const Tensor images = values_of(wanted["values"], {4, 2, 4, 4});
  const Tensor labels = at::tensor(wanted["labels"].get<std::vector<int64_t>>());
  const double loss = wanted["loss"];
  Trainer trainer(config_of("pictures", kPictures));
  check_training(trainer, Trainer::Columns{{"image", images}}, labels, loss);

  Trainer other(config_of("pictures", kPictures));
  CHECK(other.evaluate(images, labels) == Approx(loss).epsilon(1e-5));
  const Tensor doubles = images.to(at::kDouble).contiguous();
  const Samples samples{.count = 4,
                        .features = doubles.const_data_ptr<double>(),
                        .width = 32,
                        .classes = labels.const_data_ptr<int64_t>()};
  CHECK(other.evaluate(samples) == other.evaluate(images, labels));
  const Tensor logits = values_of(wanted["logits"], {4, 3});
  CHECK((other.predict(images) - logits).abs().max().item<double>() < 1e-5);
  CHECK((other.predict(Trainer::Columns{{"image", images}}) - logits).abs().max().item<double>() < 1e-5);

  CHECK_THROWS_WITH(other.step(images.narrow(1, 0, 1), labels), Contains("the column image of the model is Float"));
  CHECK_THROWS_WITH(other.step(Trainer::Columns{{"picture", images}}, labels), Contains("image is missing"));
  CHECK_THROWS_WITH(other.step(Trainer::Columns{{"image", images}, {"more", images}}, labels),
                    Contains("more is not one of them"));
  CHECK_THROWS_WITH(other.step(images, labels + 1), Contains("the class 3"));
  CHECK_THROWS_WITH(other.step(images), Contains("needs the class"));
}

TEST_CASE("a trainer trains an encoder and a decoder") {
  const auto wanted = pairs_program::expected();
  const auto sources = wanted["sources"].get<std::vector<std::vector<int64_t>>>();
  const auto targets = wanted["targets"].get<std::vector<std::vector<int64_t>>>();
  Trainer trainer(
      config_of("pairs", {{"task", "seq2seq-lm"}, {"data", {{"sequence_length", 16}, {"max_target_length", 8}}}}));
  double sum = 0, count = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    sum += trainer.evaluate(padded({sources[i]}), padded({targets[i]})) * targets[i].size();
    count += targets[i].size();
  }
  CHECK(sum / count == Approx(wanted["loss"].get<double>()).epsilon(1e-5));
  const Tensor source = padded({sources[0], sources[0]}), labels = padded({targets[0], targets[1]});
  const double loss = trainer.evaluate(source, labels);
  check_training(trainer, source, labels, loss);
  CHECK_THROWS_WITH(trainer.predict(source), Contains("token by token"));
  CHECK_THROWS_WITH(trainer.step(source), Contains("needs a label for each token"));
  CHECK_THROWS_WITH(trainer.step(source, labels * 0 - 100), Contains("each sample needs a target"));
}

TEST_CASE("a trainer trains a program whose sources are columns of tensors") {
  const auto wanted = expected("sounds");
  const Tensor sounds = values_of(wanted["values"], {3, 3, 9});
  const Tensor labels = padded(wanted["labels"].get<std::vector<std::vector<int64_t>>>());
  Trainer trainer(config_of("sounds", kSounds));
  check_training(trainer, sounds, labels, wanted["loss"]);
}

TEST_CASE("a trainer refuses a task whose labels are positions in texts") {
  CHECK_THROWS_WITH(Trainer(config_of("words", {{"task", "question-answering"}})), Contains("/task: "));
}

}  // namespace shardline::trained_programs_test
