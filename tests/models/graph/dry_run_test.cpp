// What dry runs find, against the formulas.
#include "models/graph/dry_run.h"

#include <map>
#include <set>

#include "core/model/layer.h"
#include "models/families/gpt2.h"
#include "models/families/gptj.h"

#include "tests/catch.h"

namespace shardline {
namespace {

Gpt2Config small_gpt2(double dropout, bool tied) {
  Gpt2Config c;
  c.vocab_size = 1003, c.n_positions = 64, c.n_embd = 40, c.n_layer = 2, c.n_head = 5, c.n_inner = 70;
  c.attn_pdrop = c.resid_pdrop = c.embd_pdrop = dropout;
  c.tie_word_embeddings = tied;
  return c;
}
GptjConfig small_gptj(double dropout) {
  GptjConfig c;
  c.vocab_size = 1003, c.n_positions = 64, c.n_embd = 40, c.n_layer = 2, c.n_head = 5, c.n_inner = 70, c.rotary_dim = 6;
  c.attn_pdrop = c.resid_pdrop = c.embd_pdrop = dropout;
  return c;
}

template <class Visit>
void for_specs(const Visit& visit) {
  for (const bool sequence_parallel : {false, true})
    for (const double dropout : {0.0, 0.1})
      for (const char* whole : {"", "attn", "mlp", "attn mlp", "ends", "attn mlp ends"}) {
        SplitChoices choices;
        const std::string text = whole;
        if (text.find("attn") != std::string::npos) choices["h.0.attn"] = {false, ""};
        if (text.find("mlp") != std::string::npos) choices["h.0.mlp"] = {false, ""};
        if (text.find("ends") != std::string::npos)
          choices["embedding.wte"] = {false, ""}, choices["head.lm_head"] = {false, ""};
        for (const bool tied : {false, true})
          visit(gpt2_spec(small_gpt2(dropout, tied), sequence_parallel, choices), sequence_parallel, text, dropout);
        visit(gptj_spec(small_gptj(dropout), sequence_parallel, choices), sequence_parallel, text, dropout);
      }
}

}  // namespace

// Where the formulas are not exact:
//  - whole ends on padded rows: a rank looks up and predicts its own tokens, fewer than its rows;
//  - weight gradients that wait, beside split rows: a row linear gathers its gradient and frees what it gathered from,
//    which the formula holds until the end;
//  - attention that runs again lets its sums of exponentials go before its projection, not behind it;
//  - GPT-J's blocks with fp32 borders: the gradient that a block is given is its residual's, and cannot be added to.
TEST_CASE("dry runs count the bytes of the formulas") {
  int checks = 0;
  for_specs([&](const ModelSpec& spec, bool sequence_parallel, const std::string& whole, double dropout) {
    for (const int t_degree : {1, 2, 3, 4})
      for (int t = 0; t < t_degree; ++t)
        for (const int64_t tokens : {9, 16, 600})
          for (const auto& [element, border] : {std::pair{2, 2}, {2, 4}, {4, 4}, {8, 8}})
            for (const bool recompute : {false, true}) {
              const KeptCase at{.tokens = tokens,
                                .rows = border_rows(tokens, t_degree, sequence_parallel),
                                .t = t,
                                .t_degree = t_degree,
                                .element_bytes = element,
                                .border_bytes = border,
                                .recompute_attention = recompute};
              std::vector<BorderTensor> input;
              for (const auto& layer : spec.layers) {
                CAPTURE(spec.family, layer.name, whole, sequence_parallel, dropout, t_degree, t, tokens, element, border,
                        recompute);
                const DryBytes dry = dry_bytes(layer, input, at);
                const KeptBytes kept = layer.kept(at);
                const PassBytes passes = layer.passes(at);
                const bool padded = !layer.is_block && !layer.units[0].split && at.rows * (t + 1) > tokens && t > 0;
                const bool waits = sequence_parallel && t_degree > 1;
                const bool shared = spec.family == "gptj" && border > element;
                if (!(dry.kept == kept)) FAIL_CHECK("kept");
                if (dry.passes.backward != passes.backward) FAIL_CHECK("backward");
                if (padded || recompute ? dry.passes.forward > passes.forward : dry.passes.forward != passes.forward)
                  FAIL_CHECK("forward " << dry.passes.forward << " " << passes.forward);
                if (waits && !shared ? dry.passes.input_gradient > passes.input_gradient
                                     : !shared && dry.passes.input_gradient != passes.input_gradient)
                  FAIL_CHECK("input gradient " << dry.passes.input_gradient << " " << passes.input_gradient);
                ++checks;
                input = layer.output;
              }
            }
  });
  CHECK(checks == 72 * 10 * 3 * 4 * 2 * 4);
}

namespace {

template <class Value>
double number(Value value) {
  return static_cast<double>(value);
}

std::multiset<std::vector<double>> listed(const LayerWork& work) {
  std::multiset<std::vector<double>> all;
  for (const auto& p : work.products)
    all.insert({0, number(p.phase), number(p.m), number(p.n), number(p.k), p.count, number(p.stored), number(p.core)});
  for (const auto& c : work.collectives) all.insert({1, number(c.kind), number(c.phase), c.bytes});
  all.insert({2, number(work.hidden), number(work.heads), number(work.recomputable)});
  return all;
}

// Bytes and kernels.
std::pair<double, int> sweeps(const LayerWork& work, Phase phase, bool core) {
  std::pair<double, int> all;
  for (const auto& sweep : work.sweeps) {
    if (sweep.phase != phase || sweep.core != core) continue;
    all.first += sweep.bytes;
    all.second += sweep.kernels;
  }
  return all;
}

std::string text_of(const LayerWork& work) {
  std::string text;
  for (const auto& item : listed(work)) {
    text += "(";
    for (const double x : item) text += std::to_string(x) + " ";
    text += ") ";
  }
  return text;
}

}  // namespace

// Where the formulas are not exact:
//  - an embedding without dropout makes no sweep for it; with split rows its gradient is gathered in the borders' type;
//  - one sum of gradients too many in GPT-J's blocks, which have two: of the block's input and of its norm;
//  - attention that is whole beside split rows: its core sees all rows, the bias of its linear the rank's own.
TEST_CASE("dry runs note the work of the formulas") {
  for_specs([&](const ModelSpec& spec, bool sequence_parallel, const std::string& whole, double dropout) {
    for (const int tensor : {1, 2, 3, 4})
      for (const auto& [sequences, length] : {std::pair{1, 9}, {2, 16}, {6, 100}})
        for (const auto& [element, border] : {std::pair{2, 2}, {2, 4}, {4, 4}})
          for (const bool fused : {false, true}) {
            const WorkShape shape{.sequences = sequences,
                                  .length = length,
                                  .tensor = tensor,
                                  .sequence_parallel = sequence_parallel && tensor > 1,
                                  .fused = fused,
                                  .value_bytes = element,
                                  .border_bytes = border};
            std::vector<BorderTensor> input;
            for (const auto& layer : spec.layers) {
              CAPTURE(spec.family, layer.name, whole, sequence_parallel, dropout, tensor, sequences, length, element,
                      border, fused);
              const LayerWork dry = dry_work(layer, input, shape), formula = layer.work(shape);
              const bool embedding = layer.name == "embedding";
              if (!(embedding && border > element) && listed(dry) != listed(formula))
                FAIL_CHECK(text_of(dry) << "\n" << text_of(formula));
              const bool own_attention = layer.is_block && !layer.units[0].split && shape.sequence_parallel;
              const double rows = static_cast<double>(shape.rows() * 40);
              for (const Phase phase : {Phase::forward, Phase::backward_input, Phase::backward_weight})
                for (const bool core : {false, true}) {
                  const auto [bytes, kernels] = sweeps(dry, phase, core);
                  auto [expected, expected_kernels] = sweeps(formula, phase, core);
                  if (embedding && dropout == 0 && !core && phase != Phase::backward_weight)
                    expected -= rows * (2 * element + 1), --expected_kernels;
                  if (layer.is_block && spec.family == "gptj" && !core && phase == Phase::backward_input)
                    expected -= rows * 3 * element, --expected_kernels;
                  const bool other_rows = own_attention && !core && phase != Phase::backward_weight;
                  if ((!other_rows && bytes != Approx(expected).epsilon(1e-12)) || kernels != expected_kernels)
                    FAIL_CHECK("phase " << static_cast<int>(phase) << ": " << bytes << " bytes, expected " << expected);
                }
              double flops = 0;
              for (const auto& product : dry_work(layer, input, {}).products)
                if (!product.core) flops += product.flops();
              if (flops / 3 != layer.flops_per_token) FAIL_CHECK("flops");
              input = layer.output;
            }
          }
  });
}

}  // namespace shardline
