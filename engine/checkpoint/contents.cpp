#include "engine/checkpoint/contents.h"

#include <c10/util/accumulate.h>

#include "core/error.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "models/files/hf_layout.h"

namespace shardline {
namespace {

// Calls see(layer, parameter) for every parameter that has values of its own.
template <class See>
void for_parameters(const ModelSpec& spec, const See& see) {
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty()) see(param);
}

}  // namespace

std::string state_name(const std::string& tensor, const std::string& state) {
  return tensor + "." + state;
}

int64_t CheckpointTensor::elements() const {
  return c10::multiply_integers(sizes);
}

CheckpointContents::CheckpointContents(const ModelSpec& spec, at::ScalarType values,
                                       const std::optional<OptimizerOptions>& optimizer) {
  std::map<std::string, CheckpointTensor> known;
  std::vector<FileTensor> states;
  for_parameters(spec, [&](const ParamSpec& param) {
    const auto by_element = [&](const ParamSource& source) {
      return CheckpointTensor{.spec = &param, .source = &source, .sizes = file_view(param, source)};
    };
    for (const auto& source : param.sources) known[source.tensor] = by_element(source);
    if (!optimizer || !param.trainable) return;
    for (const auto& state : state_tensors(*optimizer, param)) {
      const ParamSource& source = param.sources[state.source];
      const std::string name = state_name(source.tensor, state.name);
      known[name] = state.by_element ? by_element(source) : CheckpointTensor{.sizes = state.shape};
      states.push_back(
          {name, state.by_element ? file_shape(param, source) : state.shape, state.is_double ? at::kDouble : values});
    }
  });
  for (const auto& buffer : spec.buffers) known[buffer.name] = CheckpointTensor{.sizes = buffer.shape};
  layouts_.reserve(2);  // files_ points into them
  layouts_.emplace_back(file_tensors(spec, values), kModelStem);
  if (!states.empty()) layouts_.emplace_back(std::move(states), kOptimizerStem);
  for (const auto& layout : layouts_) add(layout, known);
}

void CheckpointContents::add(const FileLayout& layout, const std::map<std::string, CheckpointTensor>& known) {
  for (const auto& file : layout.files()) {
    for (const auto& stored : file.tensors) {
      CheckpointTensor tensor = known.at(stored.name);
      tensor.file = files_.size();
      tensor.begin = layout.place(stored.name).begin;
      tensor.dtype = stored.dtype;
      numbers_.emplace(stored.name, tensors_.size());
      tensors_.push_back(std::move(tensor));
    }
    files_.push_back(&file);
  }
}

int64_t CheckpointContents::total_bytes() const {
  int64_t bytes = 0;
  for (const auto& layout : layouts_) bytes += layout.total_bytes();
  return bytes;
}

std::vector<std::pair<std::string, std::string>> CheckpointContents::indexes() const {
  std::vector<std::pair<std::string, std::string>> indexes;
  for (const auto& layout : layouts_)
    if (auto text = layout.index(); !text.empty()) indexes.emplace_back(layout.index_name(), std::move(text));
  return indexes;
}

int64_t checkpoint_bytes(const Config& config, const ModelSpec& spec) {
  const TrainingOptions& training = config.training;
  if (training.save_strategy == SaveStrategy::no) return 0;
  const auto optimizer = training.save_only_model ? std::nullopt : std::optional(optimizer_options(training));
  return CheckpointContents(spec, number_types(config).exact, optimizer).total_bytes();
}

std::vector<HeldPart> held_parts(const CheckpointContents& contents, StageParameters& parameters,
                                 Optimizer* optimizer) {
  const int t = parameters.groups().coordinates.t, t_degree = parameters.groups().mesh.t();
  std::vector<HeldPart> parts;
  for (const auto& range : parameters.kept_values())
    for (const auto& piece : range.pieces)
      for (const auto& source : piece.spec->sources)
        parts.push_back({contents.number(source.tensor),
                         {piece.spec, t, t_degree, piece.offset, piece.length},
                         range.values.narrow(0, piece.begin, piece.length)});
  if (!optimizer) return parts;
  for (auto& state : optimizer->state()) {
    const auto& tensor = state.spec->sources[state.tensor.source].tensor;
    HeldPart part{contents.number(state_name(tensor, state.tensor.name)), {}, std::move(state.values)};
    if (state.tensor.by_element) part.slice = {state.spec, t, t_degree, state.offset, state.length};
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<FileBox> boxes_of(const CheckpointTensor& tensor, const SlicePart& slice, const at::Tensor& values) {
  if (tensor.source) return file_boxes(slice, *tensor.source, values);
  return range_boxes(tensor.sizes, 0, tensor.elements(), values);
}

}  // namespace shardline
