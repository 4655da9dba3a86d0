#include <ATen/TensorOperators.h>

#include "core/error.h"
#include "models/program/layers/program_layers.h"
#include "models/program/layers/program_positions.h"
#include "tests/models/program/program_run.h"
#include "tests/models/program/tensors_program.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::tensors_layers_test {
namespace {

using namespace tensors_program;
using Catch::Matchers::Contains;

void check_gradients(const ProgramRun& layers, const nlohmann::json& wanted) {
  for (const auto& [name, tensor] : layers.gradients()) {
    CAPTURE(name);
    const auto values = wanted["gradients"][name].get<std::vector<double>>();
    const auto flat = tensor.flatten();
    REQUIRE(flat.numel() == std::ssize(values));
    for (size_t i = 0; i < values.size(); ++i)
      CHECK(flat[i].item<double>() == Approx(values[i]).epsilon(1e-4).margin(1e-7));
  }
}

// The program with these inputs and this change to its graph.
std::shared_ptr<const Program> changed(const std::string& name, const ProgramUse& use,
                                       const std::function<void(nlohmann::json&)>& change) {
  const ScratchDirectory scratch;
  words_program::write_changed_copy(golden("program/" + name + ".pt2"), scratch / "changed.pt2",
                                    name + "/models/model.json", [&](const std::string& text) {
                                      auto model = nlohmann::json::parse(text);
                                      change(model["graph_module"]["graph"]);
                                      return model.dump();
                                    });
  return cut_program(read_pt2(scratch / "changed.pt2"), use);
}

}  // namespace

TEST_CASE("a program of images is cut between blocks that take rows of one fixed length", "[program]") {
  const auto program = pictures();
  CHECK(program->source_rows() == 5);
  CHECK(program->labels == 3);
  CHECK(program->vocab_size == 1);
  REQUIRE(program->columns.size() == 1);
  CHECK(program->columns[0].name == "image");
  CHECK(program->columns[0].dtype == at::kFloat);
  CHECK(program->columns[0].sizes == std::vector<int64_t>{2, 4, 4});
  CHECK(program->layers.size() == 4);
  CHECK(most_positions(*program) == 5);
  CHECK(most_positions(*sounds()) > 100);  // no table bounds its targets
  CHECK(sounds()->source_rows() == 5);
  CHECK(sounds()->vocab_size == words_program::kWords);
}

TEST_CASE("images have the loss and the gradients of PyTorch for any microbatch", "[program]") {
  const auto wanted = expected("pictures");
  const Microbatch whole = batch_of_pictures();
  ProgramRun layers(pictures(), at::kFloat, {}, 5);
  const auto parts = GENERATE(std::vector<Range>{{0, 4}}, std::vector<Range>{{0, 1}, {1, 3}});
  double sum = 0;
  for (const Range& part : parts) sum += layers.train(part_of(whole, part), 1.0 / 4).sum;
  CHECK(sum / 4 == Approx(wanted["loss"].get<double>()).epsilon(1e-6));
  check_gradients(layers, wanted);
}

TEST_CASE("sounds have the loss and the gradients of PyTorch for any microbatch", "[program]") {
  const auto wanted = expected("sounds");
  const Microbatch whole = batch_of_sounds();
  ProgramRun layers(sounds(), at::kFloat, {}, 9);
  const auto parts = GENERATE(std::vector<Range>{{0, 3}}, std::vector<Range>{{0, 2}, {2, 1}});
  double sum = 0, weight = 0;
  for (const Range& part : parts) {
    const LossTerm loss = layers.train(part_of(whole, part), 1.0 / 9);
    sum += loss.sum;
    weight += loss.weight;
  }
  CHECK(weight == 9);
  CHECK(sum / 9 == Approx(wanted["loss"].get<double>()).epsilon(1e-6));
  check_gradients(layers, wanted);
}

TEST_CASE("the next token of a target can be predicted from a sound", "[program]") {
  const auto wanted = expected("sounds");
  ProgramRun layers(sounds(), at::kFloat, {}, 9);
  Microbatch batch = part_of(batch_of_sounds(), {0, 1});
  batch.labels = at::Tensor();
  for (at::Tensor* rows : {&batch.ids, &batch.positions, &batch.places, &batch.samples})
    *rows = rows->narrow(0, 0, batch.target_begins[0] + 3);  // two tokens, and one that is not known
  batch.ends = {batch.ids.numel()};
  const auto logits = layers.run(batch, Mode::generate)[0];
  REQUIRE(logits.sizes() == std::vector<int64_t>{1, words_program::kWords});
  for (int64_t word = 0; word < words_program::kWords; ++word)
    CHECK(logits[0][word].item<double>() ==
          Approx(wanted["logits"][2 * words_program::kWords + word].get<double>()).epsilon(1e-4).margin(1e-6));
}

TEST_CASE("the numbers of columns may have other types than the program's", "[program]") {
  Microbatch batch = batch_of_pictures();
  batch.columns["image"] = batch.columns["image"].mul(10).round();
  ProgramRun floats(pictures(), at::kDouble, {}, 5), integers(pictures(), at::kDouble, {}, 5);
  const double loss = floats.train(batch).sum;
  batch.columns["image"] = batch.columns["image"].to(at::kLong);
  CHECK(integers.train(batch).sum == loss);
}

TEST_CASE("programs whose samples cannot be columns of tensors are refused", "[program]") {
  const ProgramUse use = pictures()->use;
  CHECK_THROWS_WITH(cut_program(read_pt2(golden("program/pictures.pt2")), {.predicts = use.predicts}),
                    Contains("which columns of the data have tensors"));
  CHECK_THROWS_WITH(changed("pictures", use,
                            [](auto& graph) {
                              auto& sizes = graph["tensor_values"]["pixel_values"]["sizes"];
                              sizes[1] = sizes[0];
                            }),
                    Contains("must be [batch, ...] with sizes that are numbers after the batch"));
  CHECK_THROWS_WITH(
      cut_program(read_pt2(words_program::path()), {.predicts = use.predicts, .inputs = {{"input_ids", "some"}}}),
      Contains("its input_ids, which is given the column \"some\" of the data, must be"));
}

}  // namespace shardline::tensors_layers_test
