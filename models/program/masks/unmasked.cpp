#include "models/program/masks/unmasked.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "core/error.h"
#include "models/program/operators.h"
#include "models/program/program_inputs.h"

namespace shardline {
namespace {

enum class Pattern { none, all, causal };

constexpr int64_t kLongestMask = 8192;  // longer masks take too much memory to examine

// Whether a part reads values of arguments that differ between samples.
bool reads_tokens(const Program& program, const GraphPart& part) {
  const auto is_token = [&](int value) {
    const auto* input = program.input_of(value);
    if (!input || input->kind != GraphInput::Kind::user) return false;
    const std::string& given = program.given_to(*input);
    return given != "attention_mask" && given != "decoder_attention_mask" && given != "position_ids";
  };
  return std::ranges::any_of(part.nodes, [&](int number) {
    const GraphNode& node = program.graph().nodes[number];
    const bool makes_like = node.name == "aten::new_ones" || node.name == "aten::new_zeros" ||
                            node.name == "aten::ones_like" || node.name == "aten::zeros_like";
    if (node.name == kSizeOf || makes_like || node.name == "aten::_assert_tensor_metadata") return false;
    bool reads = false;
    for (const auto& argument : node.arguments) visit_values(argument, [&](int value) { reads |= is_token(value); });
    return reads;
  });
}

// mask [.., queries, keys]: true or 0 if a key is seen; otherwise false, or a number that no score outweighs.
Pattern pattern_of(const at::Tensor& mask) {
  if (mask.dim() < 2) return Pattern::none;
  const bool is_bool = mask.scalar_type() == at::kBool;
  if (!is_bool && !mask.is_floating_point()) return Pattern::none;
  const at::Tensor seen = is_bool ? mask : mask == 0;
  if (!is_bool && !(seen | (mask < std::numeric_limits<float>::lowest() / 4)).all().item<bool>()) return Pattern::none;
  if (seen.all().item<bool>()) return Pattern::all;
  const int64_t queries = mask.size(-2), keys = mask.size(-1);
  if (queries != keys) return Pattern::none;
  const at::Tensor causal = at::ones({queries, keys}, seen.options()).tril().expand(seen.sizes());
  return seen.equal(causal) ? Pattern::causal : Pattern::none;
}

struct Sizes {
  int64_t samples, source, target;
};

// Numbers and lengths of samples up to the longest. A mask can differ between short and long samples: a window hides
// nothing from samples that are shorter.
std::vector<Sizes> tried_sizes(const Program& program, int64_t longest) {
  if (const int64_t source = program.fixed_source(); program.columns.empty() && source > 0) {
    if (source > longest) return {};
    return {{1, source, program.fixed_target()}};
  }
  std::vector<Sizes> sizes = {{2, 5, 3}, {3, 7, 6}, {2, 4, 4}};
  if (program.fixed_samples > 0)
    for (auto& each : sizes) each.samples = std::min(each.samples, program.fixed_samples);
  for (int64_t length = 8; length < longest; length *= 2) sizes.push_back({1, length, length});
  for (const int64_t length : {longest - 1, longest})
    if (length > 7) sizes.push_back({1, length, length});
  return sizes;
}

// The pattern for samples up to this length, if all have the same.
Pattern pattern_of(const Program& program, const GraphPart& part, int64_t longest) {
  std::optional<Pattern> pattern;
  for (const auto& [samples, source, target] : tried_sizes(program, longest)) {
    const Microbatch rows = sample_batch(program, samples, source, target, 1);
    const ProgramBatch batch(program, rows);
    std::vector<c10::IValue> inputs;
    for (const int value : part.inputs) {
      const auto* input = program.input_of(value);
      inputs.push_back(input->kind == GraphInput::Kind::user ? program_argument(*input, batch)
                                                             : program.constant(value));
    }
    try {
      const Interpreter interpreter(program.graph(), part, at::kFloat, at::kCPU);
      const Pattern found = pattern_of(interpreter.run(std::move(inputs), nullptr)[0].toTensor());
      if (pattern.value_or(found) != found) return Pattern::none;
      pattern = found;
    } catch (const RunError&) {  // it supports only samples of other lengths
      return Pattern::none;
    }
  }
  return pattern.value_or(Pattern::none);
}

// The pattern of an attention's mask; none if it has no mask, or one that depends on more than sizes, such as on a
// buffer that steps change.
Pattern pattern_of(const Program& program, int number, int64_t longest) {
  const GraphNode& node = program.graph().nodes[number];
  const auto& mask = node.arguments[place_of_argument(node, "attn_mask")];
  const auto& causal = node.arguments[place_of_argument(node, "is_causal")];
  if (mask.value < 0 || program.flow.is_trained[mask.value] || causal.value >= 0 || causal.constant.toBool())
    return Pattern::none;
  const GraphPart part = program.flow.part(program.graph(), {mask.value}, 0, number, [](int) { return false; });
  const bool is_known = std::ranges::all_of(part.inputs, [&](int value) {
    const auto* input = program.input_of(value);
    if (program.is_changed(value)) return false;
    return input->kind != GraphInput::Kind::user || is_given(program.given_to(*input), program.use);
  });
  return is_known && !reads_tokens(program, part) ? pattern_of(program, part, longest) : Pattern::none;
}

bool have_equal_ends(const Program& a, const Program& b) {
  return std::ranges::equal(a.layers, b.layers, [](const ProgramLayer& x, const ProgramLayer& y) {
    return x.border == y.border && x.parameters == y.parameters && x.part.outputs == y.part.outputs;
  });
}

}  // namespace

std::shared_ptr<const Program> with_unmasked(const std::shared_ptr<const Program>& program, int64_t longest) {
  const at::NoGradGuard no_grad;
  Pt2Archive archive = program->archive;
  bool is_changed = false;
  longest = std::min(longest, kLongestMask);
  std::map<int, Pattern> patterns;  // by mask, because layers share masks
  for (size_t number = 0; number < archive.graph.nodes.size(); ++number) {
    GraphNode& node = archive.graph.nodes[number];
    if (node.name != kAttention) continue;
    const int mask = node.arguments[place_of_argument(node, "attn_mask")].value;
    const auto known = patterns.find(mask);
    const Pattern pattern = known == patterns.end() ? pattern_of(*program, number, longest) : known->second;
    patterns.emplace(mask, pattern);
    if (pattern == Pattern::none) continue;
    node.arguments[place_of_argument(node, "attn_mask")] = {};
    node.arguments[place_of_argument(node, "is_causal")] = {.constant = pattern == Pattern::causal};
    is_changed = true;
  }
  if (!is_changed) return program;
  auto both = std::make_shared<Program>(*program);
  const auto unmasked = cut_program(std::move(archive), program->use);
  if (have_equal_ends(*program, *unmasked)) {
    both->unmasked = unmasked;
    both->unmasked_length = longest;
  }
  return both;
}

}  // namespace shardline
