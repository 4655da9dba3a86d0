#include "models/program/pt2_archive.h"

#include <algorithm>

#include "core/error.h"
#include "tests/models/golden.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::pt2_archive_test {
namespace {

using nlohmann::json;
using namespace words_program;
using Catch::Matchers::Contains;

constexpr const char* kModel = "models/model.json";
constexpr const char* kWeights = "data/weights/model_weights_config.json";

// Returns the message that results from reading the archive with a changed JSON file.
std::string said(const std::string& entry, const std::function<void(json&)>& change) {
  const ScratchDirectory scratch;
  write_changed_json(scratch / "changed.pt2", entry, change);
  try {
    read_pt2(scratch / "changed.pt2");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}
std::string said_of_graph(const std::function<void(json&)>& change) {
  return said(kModel, [&](json& model) { change(model["graph_module"]["graph"]); });
}
std::string said_of_first(const std::string& target, const std::function<void(json&)>& change) {
  return said_of_graph([&](json& graph) {
    for (auto& node : graph["nodes"])
      if (node["target"] == target) return change(node);
  });
}

}  // namespace

TEST_CASE("an exported program is read with its weights", "[pt2]") {
  const Pt2Archive archive = read_pt2(path());
  CHECK(archive.weights->tensors().size() == 10);
  CHECK(archive.weights->tensor("words.weight").sizes().vec() == std::vector<int64_t>{kWords, kFeatures});
  CHECK(archive.names.at("words.weight") == std::vector<std::string>{"head.weight"});
  CHECK(archive.trainable.at("blocks.1.up.bias"));
  CHECK(archive.constants.at("scale").equal(at::tensor({1.0f, 2.0f, 0.5f, 1.0f})));

  const Graph& graph = archive.graph;
  CHECK(std::ranges::count(graph.inputs, GraphInput::Kind::user, &GraphInput::kind) == 3);
  CHECK(std::ranges::count(graph.inputs, "words.weight", &GraphInput::name) == 2);  // tied parameters have one name
  CHECK(std::ranges::count(graph.inputs, "head.weight", &GraphInput::name) == 0);
  CHECK(graph.outputs.size() == 2);
  CHECK(graph.values[graph.outputs[0].value].sizes.empty());
  const auto embedding = std::ranges::find(graph.nodes, "aten::embedding", &GraphNode::name);
  REQUIRE(embedding != graph.nodes.end());
  CHECK(embedding->arguments.size() == 5);  // with defaults
  CHECK(embedding->modules.back().path == "words");
  CHECK(embedding->modules.back().type == "torch.nn.modules.sparse.Embedding");
  CHECK(embedding->has_grad);
  const auto mask = std::ranges::find(graph.nodes, "aten::arange", &GraphNode::name);
  REQUIRE(mask != graph.nodes.end());
  CHECK(!mask->has_grad);
}

TEST_CASE("other files and older archives are refused by name", "[pt2]") {
  const ScratchDirectory scratch;
  const auto read_bytes = [&](const std::string& bytes) {
    put(scratch / "a.pt2", bytes);
    return read_pt2(scratch / "a.pt2");
  };
  CHECK_THROWS_WITH(read_bytes("weights"), Contains("a.pt2: is not an archive of torch.export.save"));
  CHECK_THROWS_WITH(read_bytes(torch_bytes::zip({{"serialized_exported_program.json", "{}"}, {"version", "7.4"}})),
                    Contains("export the program again with torch 2.9 or later"));
  CHECK_THROWS_WITH(read_bytes(torch_bytes::zip({{"m/archive_format", "pt2"}})), Contains("holds no program"));
  CHECK_THROWS_WITH(read_bytes(torch_bytes::zip({{"m/archive_format", "pt3"}})), Contains("must be \"pt2\""));
  CHECK_THAT(said(kModel, [](json& model) { model["schema_version"]["major"] = 9; }),
             Contains("/schema_version/major: must be 8; got 9"));
  const auto without = [&](const std::string& entry) {
    write_changed(scratch / "b.pt2", entry, [](const std::string&) { return ""; });
    return read_pt2(scratch / "b.pt2");
  };
  CHECK_THROWS_WITH(without(kWeights), Contains("is missing, as in archives before torch 2.9"));
  CHECK_THROWS_WITH(without("data/weights/weight_3"), Contains("has no entry words/data/weights/weight_3"));
  CHECK_THAT(said(kWeights, [](json& file) { file["config"]["words.weight"]["use_pickle"] = true; }),
             Contains("/config/words.weight: is a pickle, which is not read"));
}

TEST_CASE("tensors that exceed their file are refused", "[pt2]") {
  const auto with_meta = [&](const char* key, const json& value) {
    return said(kWeights, [&](json& file) { file["config"]["places.weight"]["tensor_meta"][key] = value; });
  };
  CHECK(with_meta("requires_grad", false).empty());
  CHECK_THAT(with_meta("sizes", {{{"as_int", 9}}, {{"as_int", 4}}}), Contains("must stay in the storage"));
  CHECK_THAT(with_meta("storage_offset", {{"as_int", 1}}), Contains("must stay in the storage"));
  CHECK_THAT(with_meta("storage_offset", {{"as_int", -1}}), Contains("must be an integer >= 0; got -1"));
  CHECK_THAT(with_meta("strides", {{{"as_int", 4}}}), Contains("must have as many strides as sizes"));
  CHECK_THAT(with_meta("sizes", {{{"as_int", 4}}, {{"as_int", 4}}}), Contains("with another dtype or other sizes"));
  CHECK_THAT(with_meta("dtype", 99), Contains("is not a dtype that can be used here; got 99"));
}

TEST_CASE("a graph that contradicts itself is refused", "[pt2]") {
  const char* linear = "torch.ops.aten.linear.default";
  CHECK_THAT(said_of_first(linear, [](json& node) { node["inputs"][0]["arg"]["as_tensor"]["name"] = "ghost"; }),
             Contains("must be a value that already exists; got \"ghost\""));
  CHECK_THAT(said_of_first(linear, [](json& node) { node["inputs"].erase(1); }),
             Contains("the operator needs an argument weight"));
  CHECK_THAT(said_of_first(linear, [](json& node) { node["inputs"][1]["name"] = "wait"; }),
             Contains("the operator needs an argument weight"));
  CHECK_THAT(said_of_first(linear, [](json& node) { node["inputs"][2]["name"] = "input"; }),
             Contains("is an argument that was already given"));
  CHECK_THAT(said_of_first(linear,
                           [](json& node) {
                             node["inputs"][1]["arg"] = {{"as_string", "w"}};
                           }),
             Contains("does not fit the argument weight of type Tensor"));
  CHECK_THAT(said_of_first(linear, [](json& node) { node["outputs"][0]["as_tensor"]["name"] = "input_ids"; }),
             Contains("makes input_ids, which already exists"));
  CHECK_THAT(said_of_first("torch.ops.aten.layer_norm.default",
                           [](json& node) {
                             node["inputs"][1]["arg"] = {{"as_floats", {4.5}}};
                           }),
             Contains("does not fit the argument normalized_shape of type"));
}

TEST_CASE("calls that cannot run here are refused by name", "[pt2]") {
  const auto with_target = [&](const std::string& target) {
    return said_of_first("torch.ops.aten.gelu.default", [&](json& node) { node["target"] = target; });
  };
  CHECK_THAT(with_target("torch.ops.aten.no_such.default"), Contains("this LibTorch has no such operator"));
  CHECK_THAT(with_target("torch.ops.mine.gelu.default"), Contains("it is not an operator of ATen"));
  CHECK_THAT(with_target("torch.ops.aten.resize_.default"), Contains("it changes the sizes of a tensor in place"));
  const auto said_of_view = said_of_first("torch.ops.aten.gelu.default", [&](json& node) {
    node["target"] = "torch.ops.aten.squeeze_.default";
    node["inputs"] = json::array({node["inputs"][0]});
  });
  CHECK(said_of_view.empty());
  CHECK_THAT(with_target("torch.ops.aten.bernoulli.default"), Contains("it draws from torch's random generator"));
  const auto with_slopes = [&](bool training) {
    return said_of_first("torch.ops.aten.gelu.default", [&](json& node) {
      node["target"] = "torch.ops.aten.rrelu.default";
      node["inputs"] = {node["inputs"][0], {{"name", "training"}, {"arg", {{"as_bool", training}}}, {"kind", 1}}};
    });
  };
  CHECK_THAT(with_slopes(true), Contains("it draws from torch's random generator"));
  CHECK(with_slopes(false).empty());
  CHECK_THAT(with_target("torch.ops.aten.from_file.default"), Contains("it reads files"));
  CHECK_THAT(with_target("torch.ops.higher_order.cond"), Contains("is a higher-order operator that cannot run here"));
  CHECK_THAT(with_target("os.system"), Contains("is not a function of numbers that can run here"));
}

TEST_CASE("new values of buffers must belong to a buffer and fit it", "[pt2]") {
  const auto with_change = [&](const char* buffer, const char* value, int times = 1) {
    return said(kModel, [&](json& model) {
      auto& specs = model["graph_module"]["signature"]["output_specs"];
      for (int i = 0; i < times; ++i)
        specs.insert(specs.begin(),
                     json::object({{"buffer_mutation", {{"arg", {{"name", value}}}, {"buffer_name", buffer}}}}));
    });
  };
  CHECK(with_change("scale", "b_scale").empty());
  CHECK_THAT(with_change("scale", "b_scale", 2), Contains("is a buffer that already has a new value"));
  CHECK_THAT(with_change("ghost", "b_scale"), Contains("must be a buffer of the program; got \"ghost\""));
  CHECK_THAT(with_change("scale", "ghost"), Contains("must be a value that already exists"));
  CHECK_THAT(with_change("scale", "input_ids"), Contains("must have the sizes and the dtype of the buffer scale"));
}

TEST_CASE("the persistent buffers of a program are listed once, in graph order", "[pt2]") {
  CHECK(read_pt2(path()).buffers == std::vector<std::string>{"scale"});
  for (const char* name : {"counted", "returned"}) {
    CAPTURE(name);
    const Pt2Archive archive = read_pt2(golden(cat("program/", name, ".pt2")));
    auto buffers = archive.buffers;
    std::ranges::sort(buffers);
    CHECK(buffers == std::vector<std::string>{"before", "blocks.0.flags", "odd", "share", "steps"});
    CHECK(archive.names.at("blocks.0.flags") == std::vector<std::string>{"blocks.1.flags"});
    CHECK(archive.constants.contains("fixed"));
    CHECK(archive.graph.outputs.size() == 2);
    CHECK(archive.graph.outputs[0].name == "loss");
  }
  const ScratchDirectory scratch;
  write_changed_json(scratch / "other.pt2", kModel, [](json& model) {
    for (auto& spec : model["graph_module"]["signature"]["input_specs"])
      if (spec.contains("buffer")) spec["buffer"]["persistent"] = false;
  });
  CHECK(read_pt2(scratch / "other.pt2").buffers.empty());
}

}  // namespace shardline::pt2_archive_test
