#include "models/program/program.h"

#include <algorithm>

#include "core/error.h"
#include "models/program/program_positions.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::program_test {
namespace {

using nlohmann::json;
using namespace words_program;
using Catch::Matchers::Contains;

// The program after a change of its graph.
std::shared_ptr<const Program> changed(const std::function<void(json&)>& change) {
  const ScratchDirectory scratch;
  write_changed_json(scratch / "changed.pt2", "models/model.json",
                     [&](json& model) { change(model["graph_module"]["graph"]); });
  return cut_program(read_pt2(scratch / "changed.pt2"));
}

json& first_node(json& graph, const std::string& target) {
  for (auto& node : graph["nodes"])
    if (node["target"] == target) return node;
  throw InvariantError("no node " + target);
}

std::vector<std::string> calls(const Program& program, const GraphPart& part) {
  std::vector<std::string> names;
  for (const int node : part.nodes) names.push_back(program.graph().nodes[node].name);
  return names;
}

}  // namespace

TEST_CASE("a program is cut between its repeated modules", "[program]") {
  const auto program = cut_program(read_pt2(path()));
  std::vector<std::string> names;
  for (const auto& layer : program->layers) names.push_back(layer.name);
  CHECK(names == std::vector<std::string>{"embedding", "blocks.0", "blocks.1", "head"});
  CHECK(!program->layers[0].is_block);
  CHECK(program->layers[1].is_block);
  CHECK(program->layers[0].border.empty());
  for (size_t i = 1; i < program->layers.size(); ++i) {
    CHECK(program->layers[i].border.size() == 1);
    CHECK(program->layers[i - 1].part.outputs == program->layers[i].border);
  }
  CHECK(program->layers[0].parameters == std::vector<std::string>{"places.weight", "words.weight"});
  CHECK(program->layers[2].parameters == std::vector<std::string>{"blocks.1.norm.weight", "blocks.1.up.weight",
                                                                  "blocks.1.up.bias", "blocks.1.down.weight"});
  CHECK(program->layers[3].parameters == std::vector<std::string>{"words.weight"});
  CHECK(program->loss.kind == ProgramLoss::Kind::cross_entropy);
  CHECK(program->loss.ignored == -100);
  CHECK(program->vocab_size == kWords);
}

TEST_CASE("what follows from arguments alone is computed in each layer that needs it", "[program]") {
  const auto program = cut_program(read_pt2(path()));
  const auto in_block = calls(*program, program->layers[2].part);
  CHECK(std::ranges::count(in_block, "aten::arange") == 1);  // of the mask
  CHECK(std::ranges::count(in_block, "aten::linear") == 2);
  CHECK(std::ranges::count(in_block, "aten::embedding") == 0);
  const auto in_head = calls(*program, program->layers[3].part);
  CHECK(std::ranges::count(in_head, "aten::pad") == 1);  // of the labels
  CHECK(std::ranges::count(in_head, "aten::arange") == 0);
  CHECK(std::ranges::count(in_head, "aten::cross_entropy_loss") == 0);
  CHECK(std::ranges::count(calls(*program, program->logits), "aten::pad") == 0);
}

TEST_CASE("the longest samples are those whose positions are in the table", "[program]") {
  CHECK(most_positions(*cut_program(read_pt2(path()))) == kPositions);
}

TEST_CASE("programs that cannot be cut or trained are refused", "[program]") {
  CHECK_THROWS_WITH(changed([](json& graph) {
                      for (auto& node : graph["nodes"]) node["metadata"].erase("nn_module_stack");
                    }),
                    Contains("the program has no modules NAME.0, NAME.1, ..."));
  CHECK_THROWS_WITH(changed([](json& graph) {
                      auto& loss = first_node(graph, "torch.ops.aten.cross_entropy_loss.default");
                      loss["inputs"].push_back({{"name", "reduction"}, {"arg", {{"as_int", 2}}}, {"kind", 1}});
                    }),
                    Contains("its loss is made by aten::cross_entropy_loss, but must be the mean of"));
  CHECK_THROWS_WITH(changed([](json& graph) {
                      graph["tensor_values"]["input_ids"]["sizes"][0] = {{"as_int", 3}};
                    }),
                    Contains("its input_ids must be [batch, length] of any size"));
  CHECK_THROWS_WITH(changed([](json& graph) {  // the last block adds the words again
                      std::string words, last;
                      for (auto& node : graph["nodes"]) {
                        const std::string target = node["target"],
                                          stack = node["metadata"].value("nn_module_stack", "");
                        if (target == "torch.ops.aten.embedding.default" && words.empty())
                          words = node["outputs"][0]["as_tensor"]["name"];
                        if (target == "torch.ops.aten.add.Tensor" && stack.find("blocks.1") != std::string::npos)
                          node["inputs"][0]["arg"]["as_tensor"]["name"] = words;
                      }
                      graph["tensor_values"][words]["sizes"].push_back({{"as_int", 1}});
                    }),
                    Contains("only hidden states [batch, length, features] can pass"));
}

}  // namespace shardline::program_test
