#include "models/program/split/observed_sizes.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <set>

#include "models/program/program_inputs.h"

namespace shardline {
namespace {

at::Tensor zeros_of(const Program& program, const std::string& parameter) {
  const auto& shape = program.archive.weights->tensors().at(parameter).shape;
  return at::zeros({}, at::kFloat).expand(shape);  // takes no memory
}

}  // namespace

GraphPart whole_part(const Program& program) {
  std::set<int> nodes, inputs;
  const auto add = [&](const GraphPart& part) {
    nodes.insert(part.nodes.begin(), part.nodes.end());
    for (const int value : part.inputs)
      if (program.input_of(value)) inputs.insert(value);
  };
  for (const auto& layer : program.layers) add(layer.part);
  add(program.logits);
  GraphPart part{{nodes.begin(), nodes.end()}, {inputs.begin(), inputs.end()}, {}};
  for (const int node : part.nodes)
    for (const auto& result : program.graph().nodes[node].results) part.outputs.push_back(result.value);
  part.outputs.insert(part.outputs.end(), part.inputs.begin(), part.inputs.end());
  return part;
}

ObservedSizes observed_sizes(const Program& program, const SampleSizes& of) {
  const at::NoGradGuard no_grad;
  const GraphPart part = whole_part(program);
  const Microbatch rows = sample_batch(program, of.samples, of.source, of.target, 0);
  const ProgramBatch batch(program, rows);
  std::vector<c10::IValue> inputs;
  for (const int value : part.inputs) {
    const GraphInput& input = *program.input_of(value);
    if (input.kind == GraphInput::Kind::parameter)
      inputs.push_back(zeros_of(program, input.name));
    else if (input.kind == GraphInput::Kind::user)
      inputs.push_back(program_argument(input, batch));
    else
      inputs.push_back(program.constant(value));
  }
  const Interpreter interpreter(program.graph(), part, at::kFloat, at::kCPU);
  const auto values = interpreter.run(std::move(inputs), nullptr);
  ObservedSizes sizes(program.graph().values.size());
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].isTensor()) sizes[part.outputs[i]] = values[i].toTensor().sizes().vec();
  return sizes;
}

}  // namespace shardline
