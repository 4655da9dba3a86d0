#include "models/program/program.h"

#include <algorithm>

#include "core/error.h"
#include "models/program/layers/program_layers.h"
#include "models/program/layers/program_positions.h"
#include "tests/models/program/pairs_program.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::program_test {
namespace {

using nlohmann::json;
using namespace words_program;
using Catch::Matchers::Contains;

// The program after a change to its graph.
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
  REQUIRE(program->loss.terms.size() == 1);
  CHECK(program->loss.terms[0].kind == ProgramLossTerm::Kind::cross_entropy);
  CHECK(program->loss.terms[0].ignored == -100);
  CHECK(program->vocab_size == kWords);
}

TEST_CASE("values that depend only on arguments are computed in each layer that needs them", "[program]") {
  const auto program = cut_program(read_pt2(path()));
  const auto in_block = calls(*program, program->layers[2].part);
  CHECK(std::ranges::count(in_block, "aten::arange") == 1);  // for the mask
  CHECK(std::ranges::count(in_block, "aten::linear") == 2);
  CHECK(std::ranges::count(in_block, "aten::embedding") == 0);
  const auto in_head = calls(*program, program->layers[3].part);
  CHECK(std::ranges::count(in_head, "aten::pad") == 1);  // for the labels
  CHECK(std::ranges::count(in_head, "aten::arange") == 0);
  CHECK(std::ranges::count(in_head, "aten::cross_entropy_loss") == 0);
  CHECK(std::ranges::count(calls(*program, program->logits), "aten::pad") == 0);
}

TEST_CASE("the longest samples are those whose positions are in the table", "[program]") {
  CHECK(most_positions(*cut_program(read_pt2(path()))) == kPositions);
}

TEST_CASE("ids may pass through slices of all tokens before they are looked up", "[program]") {
  const auto program = changed([](json& graph) {
    const auto argument = [](const char* name, const json& value) {
      return json{{"name", name}, {"arg", value}, {"kind", 1}};
    };
    json slice = first_node(graph, "torch.ops.aten.embedding.default");
    slice["target"] = "torch.ops.aten.slice.Tensor";
    slice["inputs"] = {argument("self", {{"as_tensor", {{"name", "input_ids"}}}}), argument("dim", {{"as_int", 1}}),
                       argument("start", {{"as_int", 0}})};
    slice["outputs"] = {{{"as_tensor", {{"name", "all_ids"}}}}};
    graph["tensor_values"]["all_ids"] = graph["tensor_values"]["input_ids"];
    for (auto& node : graph["nodes"])
      if (node["target"] == "torch.ops.aten.embedding.default")
        for (auto& input : node["inputs"])
          if (input["arg"].contains("as_tensor") && input["arg"]["as_tensor"]["name"] == "input_ids")
            input["arg"]["as_tensor"]["name"] = "all_ids";
    graph["nodes"].insert(graph["nodes"].begin(), slice);
  });
  CHECK(program->vocab_size == kWords);
  CHECK(program->lookups.size() == 1);  // of positions
}

TEST_CASE("the length of a hidden state is that of the ids in later layers", "[program]") {
  const auto program = changed([](json& graph) {
    const auto argument = [](const char* name, const json& value) {
      return json{{"name", name}, {"arg", value}, {"kind", 1}};
    };
    auto& nodes = graph["nodes"];
    json size = first_node(graph, "torch.ops.aten.sym_size.int");
    graph["sym_int_values"]["hidden_length"] =
        graph["sym_int_values"][size["outputs"][0]["as_sym_int"]["as_name"].get<std::string>()];
    size["inputs"][0]["arg"] = first_node(graph, "torch.ops.aten.add.Tensor")["outputs"][0];  // words and places
    size["outputs"][0]["as_sym_int"]["as_name"] = "hidden_length";
    json& last = *std::find_if(nodes.rbegin(), nodes.rend(),
                               [](const json& node) { return node["target"] == "torch.ops.aten.matmul.default"; });
    json reshape = last;
    const std::string hidden = last["inputs"][1]["arg"]["as_tensor"]["name"];
    reshape["target"] = "torch.ops.aten.reshape.default";
    reshape["inputs"] = {
        argument("self", last["inputs"][1]["arg"]),
        argument("shape", {{"as_sym_ints", {{{"as_int", -1}}, {{"as_name", "hidden_length"}}, {{"as_int", 4}}}}})};
    reshape["outputs"] = {{{"as_tensor", {{"name", "reshaped"}}}}};
    graph["tensor_values"]["reshaped"] = graph["tensor_values"][hidden];
    last["inputs"][1]["arg"]["as_tensor"]["name"] = "reshaped";
    const auto place = [&](const json& node) { return std::ranges::find(nodes, node); };
    nodes.insert(place(json(last)), reshape);
    nodes.insert(place(json(first_node(graph, "torch.ops.aten.add.Tensor"))) + 1, size);
  });
  for (size_t i = 1; i < program->layers.size(); ++i) CHECK(program->layers[i].border.size() == 1);
  CHECK(std::ranges::count(calls(*program, program->layers[2].part), "aten::reshape") == 1);
}

TEST_CASE("a size of a hidden state that is fixed is a number in later layers", "[program]") {
  const auto program = changed([](json& graph) {
    auto& nodes = graph["nodes"];
    const json hidden = first_node(graph, "torch.ops.aten.add.Tensor")["outputs"][0];  // words and places
    json size = first_node(graph, "torch.ops.aten.sym_size.int");
    size["inputs"][0]["arg"] = hidden;
    size["inputs"][1]["arg"] = {{"as_int", -1}};
    graph["sym_int_values"]["features"] =
        graph["sym_int_values"][size["outputs"][0]["as_sym_int"]["as_name"].get<std::string>()];
    size["outputs"][0]["as_sym_int"]["as_name"] = "features";
    json& last = *std::find_if(nodes.rbegin(), nodes.rend(),
                               [](const json& node) { return node["target"] == "torch.ops.aten.matmul.default"; });
    json sum = last;
    const std::string given = last["inputs"][1]["arg"]["as_tensor"]["name"];
    sum["target"] = "torch.ops.aten.unflatten.int";
    sum["inputs"] = {{{"name", "self"}, {"arg", last["inputs"][1]["arg"]}, {"kind", 1}},
                     {{"name", "dim"}, {"arg", {{"as_int", -1}}}, {"kind", 1}},
                     {{"name", "sizes"}, {"arg", {{"as_sym_ints", {{{"as_name", "features"}}}}}}, {"kind", 1}}};
    sum["outputs"] = {{{"as_tensor", {{"name", "same"}}}}};
    graph["tensor_values"]["same"] = graph["tensor_values"][given];
    last["inputs"][1]["arg"]["as_tensor"]["name"] = "same";
    nodes.insert(std::ranges::find(nodes, json(last)), sum);
    nodes.insert(std::ranges::find(nodes, json(first_node(graph, "torch.ops.aten.add.Tensor"))) + 1, size);
  });
  for (size_t i = 1; i < program->layers.size(); ++i) CHECK(program->layers[i].border.size() == 1);
  CHECK(std::ranges::count(calls(*program, program->layers[2].part), "aten::unflatten") == 1);
  const auto sizes_read = [](const Program& of) {
    return std::ranges::count(calls(of, of.layers[2].part), "aten::sym_size");
  };
  CHECK(sizes_read(*program) == sizes_read(*cut_program(read_pt2(path()))));
}

TEST_CASE("programs that cannot be cut or trained are refused", "[program]") {
  CHECK_THROWS_WITH(changed([](json& graph) {  // hidden states of sizes that cannot pass
                      for (auto& node : graph["nodes"]) node["metadata"].erase("nn_module_stack");
                      const json length = graph["tensor_values"]["input_ids"]["sizes"][1];
                      for (auto& [name, value] : graph["tensor_values"].items())
                        if (value["sizes"].size() == 3) value["sizes"].push_back(length);
                    }),
                    Contains("has neither modules NAME.0, NAME.1, ... of one class"));
  CHECK_THROWS_WITH(changed([](json& graph) {
                      graph["tensor_values"]["input_ids"]["sizes"] = {{{"as_int", 3}}};
                    }),
                    Contains("its input_ids must be [batch, length], with two different sizes"));
  CHECK_THROWS_WITH(changed([](json& graph) {  // the last block adds the word embeddings again
                      std::string words, last;
                      for (auto& node : graph["nodes"]) {
                        const std::string target = node["target"],
                                          stack = node["metadata"].value("nn_module_stack", "");
                        if (target == "torch.ops.aten.embedding.default" && words.empty())
                          words = node["outputs"][0]["as_tensor"]["name"];
                        if (target == "torch.ops.aten.add.Tensor" && stack.find("blocks.1") != std::string::npos)
                          node["inputs"][0]["arg"]["as_tensor"]["name"] = words;
                      }
                      auto& sizes = graph["tensor_values"][words]["sizes"];
                      sizes.push_back(sizes[1]);
                    }),
                    Contains("in which only hidden states, [batch, length, features] or other sizes"));
}

TEST_CASE("a scalar that is not a known loss counts as a mean over samples", "[program]") {
  const auto program = changed([](json& graph) {
    auto& loss = first_node(graph, "torch.ops.aten.cross_entropy_loss.default");
    loss["inputs"].push_back({{"name", "reduction"}, {"arg", {{"as_int", 2}}}, {"kind", 1}});
  });
  REQUIRE(program->loss.terms.size() == 1);
  CHECK(program->loss.terms[0].kind == ProgramLossTerm::Kind::whole);
  const auto in_head = calls(*program, program->layers[3].part);
  CHECK(std::ranges::count(in_head, "aten::cross_entropy_loss") == 1);
  CHECK(spec_of_program(program, 4).loss_of_samples);
}

TEST_CASE("a config specifies the data of arguments and the output that is the loss", "[program]") {
  const auto cut = [](const ProgramUse& use) { return cut_program(read_pt2(path()), use); };
  CHECK(cut({.loss_output = "loss"})->loss.terms[0].kind == ProgramLossTerm::Kind::cross_entropy);
  CHECK_THROWS_WITH(cut({.loss_output = "lost"}),
                    Contains("the program returns no floating-point tensor \"lost\"; it returns loss, logits"));
  CHECK_THROWS_WITH(cut({.loss_output = "logits"}), Contains("its output \"logits\" is not a scalar"));
  CHECK_THROWS_WITH(
      cut({.inputs = {{"words", "input_ids"}}}),
      Contains("/model/inputs/words: the program has no such argument; it has input_ids, attention_mask"));
  CHECK_THROWS_WITH(cut({.inputs = {{"input_ids", "labels"}}}), Contains("the program has no argument input_ids"));
  CHECK_THROWS_WITH(cut({.predicts = ProgramUse::Predicts::segment}),
                    Contains("its labels are one for each token, but the task's labels are one for each sample"));
  CHECK_THROWS_WITH(cut({.loss_function = "cross_entropy", .loss_logits = "loss"}),
                    Contains("/model/loss/logits: the output \"loss\" has 0 dimensions, but logits are"));
  Pt2Archive without_loss = read_pt2(path());
  std::erase_if(without_loss.graph.outputs, [](const GraphOutput& output) { return output.name == "loss"; });
  CHECK_THROWS_WITH(cut_program(without_loss), Contains("let model.loss compute it from one of its outputs (logits)"));
  const auto computed = cut({.loss_function = "cross_entropy", .loss_logits = "logits"});
  CHECK(computed->loss.terms[0].target < 0);
}

TEST_CASE("an encoder and a decoder become blocks, and biases of small tables are computed in each", "[program]") {
  const auto program = pairs_program::pairs();
  std::vector<std::string> names;
  for (const auto& layer : program->layers) names.push_back(layer.name);
  CHECK(names == std::vector<std::string>{"embedding", "encoder.0", "encoder.1", "decoder.embedding", "decoder.0",
                                          "decoder.1", "decoder.2", "head"});
  CHECK(program->layers[2].border.size() == 1);
  CHECK(program->layers[5].border.size() == 2);  // the decoder's hidden states and the encoder's
  CHECK(program->layers[7].border.size() == 1);
  CHECK(std::ranges::count(program->layers[2].parameters, "near.weight") == 1);
  CHECK(std::ranges::count(program->layers[6].parameters, "near.weight") == 1);
  CHECK(std::ranges::count(program->layers[6].parameters, "words.weight") == 0);
}

TEST_CASE("calls that change memory belong to every part that reads it afterwards", "[program]") {
  const auto program = pairs_program::pairs();
  const auto of_embedding = calls(*program, program->layers[3].part);
  for (const char* call : {"aten::copy_", "aten::fill_", "aten::masked_fill_"})
    CHECK(std::ranges::count(of_embedding, call) == 1);
  CHECK(std::ranges::count(calls(*program, program->layers[0].part), "aten::copy_") == 0);
  const auto changing = [](const std::string& value, const std::string& added = "") {
    return changed([&](json& graph) {
      const auto tensor = [](const char* argument, const std::string& name) -> json {
        return {{"name", argument}, {"arg", {{"as_tensor", {{"name", name}}}}}};
      };
      auto& node = first_node(graph, "torch.ops.aten.gelu.default");
      json inputs = json::array({tensor("self", value)});
      if (!added.empty()) inputs.push_back(tensor("other", added));
      node = {{"target", added.empty() ? "torch.ops.aten.zero_.default" : "torch.ops.aten.add_.Tensor"},
              {"inputs", inputs},
              {"outputs", node["outputs"]},
              {"metadata", node["metadata"]}};
    });
  };
  CHECK_THROWS_WITH(changing("attention_mask"), Contains("the call to aten::zero_ changes attention_mask in place"));
  CHECK_THROWS_WITH(changing("b_scale", "attention_mask"),
                    Contains("the call to aten::add_.Tensor changes its buffer scale, whose new value depends on "
                             "attention_mask, and so on the samples that a microbatch"));
  CHECK_THROWS_WITH(changing("b_scale", "p_places_weight"),
                    Contains("whose new value depends on the parameter places.weight"));
  CHECK(changing("b_scale")->buffers);
  CHECK(!cut_program(read_pt2(path()))->buffers);
}

}  // namespace shardline::program_test
