// Archives of torch.export.save: the input as a whole file, and as the graph of an archive whose other entries are
// correct (a parameter "w" [2, 2] and a buffer "b" [2]). Values of an accepted graph exist before they are used, and
// its analysis refers only to its own values.
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "models/program/gelu_calls.h"
#include "models/program/graph_flow.h"
#include "models/program/operators.h"
#include "models/program/program_loss.h"
#include "models/program/pt2_archive.h"
#include "tests/fuzz/fuzz.h"
#include "tests/models/files/torch_bytes.h"

namespace shardline::program_fuzz {
namespace {

constexpr const char* kWeights = R"({"config": {
"w": {"path_name": "weight_0", "is_param": true, "use_pickle": false, "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 2}], "requires_grad": true, "strides": [{"as_int": 2}, {"as_int": 1}], "storage_offset": {"as_int": 0}}},
"b": {"path_name": "weight_1", "is_param": false, "use_pickle": false, "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 2}], "requires_grad": false, "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}}}}})";

std::string archive_of(const std::string& graph) {
  return torch_bytes::zip({{"m/data/weights/weight_0", std::string(16, '\1')},
                           {"m/data/weights/weight_1", std::string(8, '\1')},
                           {"m/data/weights/model_weights_config.json", kWeights},
                           {"m/models/model.json", graph},
                           {"m/archive_format", "pt2"}});
}

void check_graph(const Graph& graph) {
  const int count = graph.values.size();
  std::vector<bool> exists(count);
  const auto check_new = [&](int value) {
    FUZZ_REQUIRE(value >= 0 && value < count && !exists[value], "value ", value, " of ", count);
    exists[value] = true;
  };
  for (const auto& input : graph.inputs) check_new(input.value);
  for (const auto& node : graph.nodes) {
    for (const auto& argument : node.arguments)
      visit_values(argument,
                   [&](int value) { FUZZ_REQUIRE(value < count && exists[value], node.text(), " uses ", value); });
    for (const auto& result : node.results) {
      check_new(result.value);
      const size_t made = node.is_operator ? find_operator(node.name, node.overload)->schema().returns().size() : 1;
      FUZZ_REQUIRE(result.place >= 0 && std::cmp_less(result.place, made), node.text(), " makes ", made, " results");
    }
  }
  for (const auto& output : graph.outputs)
    FUZZ_REQUIRE(output.value >= 0 && output.value < count && exists[output.value], output.name);
  const GraphFlow flow = flow_of(graph);
  for (int value = 0; value < count; ++value)
    FUZZ_REQUIRE(flow.storage[value] >= 0 && flow.storage[value] <= value, "memory ", flow.storage[value]);
  for (const auto& output : graph.outputs)
    for (const int value : loss_terms(graph, flow, output.value).values()) FUZZ_REQUIRE(value < count, value);
}

// Checks that a part of the graph has all values that its calls read, and that it computes the requested values.
void check_part(const Graph& graph, const GraphFlow& flow, int begin, bool is_given) {
  std::vector<int> wanted;
  for (const auto& output : graph.outputs) wanted.push_back(output.value);
  const GraphPart part = flow.part(graph, wanted, begin, std::ssize(graph.nodes), [&](int) { return is_given; });
  std::set<int> has(part.inputs.begin(), part.inputs.end());
  for (const int number : part.nodes) {
    const GraphNode& node = graph.nodes[number];
    for (const auto& argument : node.arguments)
      visit_values(argument, [&](int value) { FUZZ_REQUIRE(has.contains(value), node.text(), " lacks ", value); });
    for (const auto& result : node.results) has.insert(result.value);
  }
  for (const int value : wanted) FUZZ_REQUIRE(has.contains(value), "the part does not make ", value);
}

void check_changed(Graph graph, const std::map<std::string, at::Tensor>& constants) {
  const size_t changes = flow_of(graph).changes.size();
  make_calls_functional(graph);
  make_gelu_calls(graph, constants);
  check_graph(graph);
  FUZZ_REQUIRE(flow_of(graph).changes.size() <= changes, "more memory is changed than before");
}

bool read_file(const std::string& bytes, size_t input_bytes) {
  const std::string path = fuzz::file_with("model.pt2", bytes);
  std::unique_ptr<const Pt2Archive> archive;
  if (!fuzz::accepts(input_bytes, [&] { archive = std::make_unique<Pt2Archive>(read_pt2(path)); })) return false;
  check_graph(archive->graph);
  const GraphFlow flow = flow_of(archive->graph);
  check_part(archive->graph, flow, 0, false);
  check_part(archive->graph, flow, std::ssize(archive->graph.nodes) / 2, true);
  check_changed(archive->graph, archive->constants);
  for (const auto& [name, entry] : archive->weights->tensors())
    FUZZ_REQUIRE(entry.begin <= entry.end && entry.end <= bytes.size(), name, " ends at ", entry.end);
  return true;
}

}  // namespace

FUZZ_TARGET(program) {
  const std::string input = fuzz::text_of(data, size);
  const bool as_file = read_file(input, size);
  const bool as_graph = read_file(archive_of(input), size + archive_of("").size());
  return as_file || as_graph;
}

}  // namespace shardline::program_fuzz
