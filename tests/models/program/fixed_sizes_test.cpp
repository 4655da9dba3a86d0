// Programs that were exported for batches and samples of one size, compared with the same programs for any size.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "core/error.h"
#include "models/program/layers/program_positions.h"
#include "models/program/masks/unmasked.h"
#include "models/program/program_inputs.h"
#include "models/traced/sample_check.h"
#include "tests/models/program/pairs_program.h"
#include "tests/models/program/program_run.h"
#include "tests/models/program/split/split_runs.h"
#include "tests/models/program/tensors_program.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::fixed_sizes_test {
namespace {

using Catch::Matchers::Contains;
using Predicts = ProgramUse::Predicts;

// Fixed sizes; 0: any.
struct Sizes {
  int64_t samples = 0, source = 0, target = 0;
};

// Fixes a size of an argument, wherever the graph has it.
void fix(Graph& graph, const GraphSize size, int64_t number) {
  if (number == 0 || size.expression.empty()) return;
  for (auto& value : graph.values)
    for (auto& each : value.sizes)
      if (each == size) each = {.number = number, .expression = ""};
}

std::shared_ptr<const Program> program_of(const std::string& name, const ProgramUse& use, const Sizes& sizes,
                                          const std::function<void(Graph&)>& change = {}) {
  Pt2Archive archive = read_pt2(golden("program/" + name + ".pt2"));
  Graph& graph = archive.graph;
  for (const auto& input : graph.inputs) {
    const auto of_input = graph.values[input.value].sizes;
    if (input.kind != GraphInput::Kind::user || of_input.empty()) continue;
    const bool is_target = use.predicts == Predicts::target_row && input.name == "labels";
    fix(graph, of_input[0], sizes.samples);
    if (of_input.size() == 2) fix(graph, of_input[1], is_target ? sizes.target : sizes.source);
  }
  if (change) change(graph);
  return cut_program(std::move(archive), use);
}

void drop(Graph& graph) {
  for (auto& node : graph.nodes)
    if (node.name == "aten::dropout") node.arguments[1].constant = 0.3;
}

// Samples of tokens of these lengths, with numbers from `first` on.
Microbatch batch_of(const std::vector<int64_t>& lengths, int64_t words, int64_t first = 0) {
  std::vector<int64_t> ids, positions, samples, of_segments;
  Microbatch batch;
  for (const int64_t length : lengths) {
    of_segments.push_back(first + std::ssize(of_segments));
    for (int64_t i = 0; i < length; ++i) {
      ids.push_back((5 * std::ssize(ids) + 3 * of_segments.back()) % words);
      positions.push_back(i);
      samples.push_back(of_segments.back());
    }
    batch.ends.push_back(std::ssize(ids));
    batch.position_count = std::max(batch.position_count, length);
  }
  batch.ids = at::tensor(ids, at::kLong);
  batch.labels = batch.ids.roll(-1);
  for (const int64_t end : batch.ends) batch.labels[end - 1] = kNoLabel;
  batch.positions = batch.places = at::tensor(positions, at::kLong);
  batch.samples = at::tensor(samples, at::kLong);
  batch.segment_samples = at::tensor(of_segments, at::kLong);
  batch.segment_places = at::zeros_like(batch.segment_samples);
  batch.is_rectangular = std::ranges::count(lengths, lengths[0]) == std::ssize(lengths);
  return batch;
}

// Both programs have the same loss, gradients and logits.
void check_same(const std::shared_ptr<const Program>& fixed, const std::shared_ptr<const Program>& any,
                const Microbatch& batch, int64_t traced_length) {
  ProgramRun one(fixed, at::kDouble, {}, traced_length), other(any, at::kDouble, {}, traced_length);
  const LossTerm loss = one.train(batch), wanted = other.train(batch);
  CHECK(loss.weight == wanted.weight);
  CHECK(loss.sum == Approx(wanted.sum).epsilon(1e-12));
  CHECK(largest_difference(one.gradients(), other.gradients()) < 1e-10);
  const at::Tensor logits = one.run(batch, Mode::evaluate, nullptr, true)[0],
                   others = other.run(batch, Mode::evaluate, nullptr, true)[0];
  REQUIRE(logits.sizes() == others.sizes());
  CHECK((logits - others).abs().max().item<double>() < 1e-10);
}

const ProgramUse kPictures = {.predicts = Predicts::segment,
                              .inputs = {{"pixel_values", "image"}, {"labels", "labels"}}};
const ProgramUse kPairs = {.predicts = Predicts::target_row};

}  // namespace

TEST_CASE("a program that was exported without dynamic sizes states its sizes", "[fixed]") {
  const auto program = program_of("fixed_heads", {}, {});
  CHECK(program->fixed_samples == 4);
  CHECK(program->fixed_source() == 5);
  CHECK(most_positions(*program) == 5);
  CHECK(program_of("heads", {}, {})->fixed_samples == 0);
  CHECK(program_of("heads", {}, {})->fixed_source() == 0);
}

TEST_CASE(
    "a program of fixed sizes computes the same as with dynamic sizes, with the same dropout, even for fewer samples",
    "[fixed]") {
  const auto fixed = program_of("fixed_heads", {}, {}), any = program_of("heads", {}, {});
  for (const auto& lengths : {std::vector<int64_t>{5, 5, 5, 5}, {5, 5, 5}, {5}})
    check_same(fixed, any, batch_of(lengths, 11, 3), 5);
}

TEST_CASE("samples are padded to a fixed length, which need not go with a fixed batch", "[fixed]") {
  const auto any = program_of("words", {}, {}, drop);
  for (const Sizes& sizes : {Sizes{.samples = 4}, Sizes{.source = 7}, Sizes{.samples = 4, .source = 7}}) {
    const auto fixed = program_of("words", {}, sizes, drop);
    for (const auto& lengths : {std::vector<int64_t>{7, 7, 7, 7}, {3, 7, 5}, {4, 4}})
      check_same(fixed, any, batch_of(lengths, words_program::kWords), 7);
  }
}

TEST_CASE("samples that fill a microbatch of a fixed size do not count in losses", "[fixed]") {
  const auto pictures = program_of("pictures", kPictures, {.samples = 3});
  const Microbatch images = tensors_program::batch_of_pictures();
  check_same(pictures, tensors_program::pictures(), part_of(images, {0, 3}), 5);
  check_same(pictures, tensors_program::pictures(), part_of(images, {1, 2}), 5);
  const auto pairs = program_of("pairs", kPairs, {.samples = 4, .source = 8, .target = 6}, drop);
  CHECK(most_positions(*pairs) == 14);
  const ModelSpec spec = spec_of_program(pairs, 14);
  CHECK(spec.most_samples == 4);
  CHECK(spec.most_targets == 6);
  const auto any = program_of("pairs", kPairs, {}, drop);
  for (const auto& samples : {std::vector<int>{0, 1, 2, 0}, {2, 1}})
    check_same(pairs, any, pairs_program::batch_of(samples), 14);
}

TEST_CASE("features of a sample pass whole, even if there are as many as tokens", "[fixed]") {
  const auto form_of = [](const std::shared_ptr<const Program>& program, std::vector<GraphSize> sizes) {
    Program with_value = *program;
    std::vector<Counts> counted;
    for (const auto& size : sizes)
      counted.push_back(counted.empty() ? Counts::samples : size == GraphSize{7, ""} ? Counts::source : Counts::other);
    with_value.archive.graph.values.push_back({.name = "passed", .dtype = at::kFloat, .sizes = std::move(sizes)});
    with_value.counted.push_back(std::move(counted));
    return hidden_form(with_value, int(with_value.archive.graph.values.size()) - 1);
  };
  const auto words = program_of("words", {}, {.samples = 4, .source = 7});
  const GraphSize batch = {.number = 4}, length = {.number = 7}, features = {.number = 6};
  const auto of_sample = form_of(words, {batch, length});
  REQUIRE(of_sample);
  CHECK(of_sample->length == -1);
  CHECK(of_sample->features == 7);
  CHECK(form_of(words, {batch, length, features})->length == 1);
  CHECK(form_of(words, {batch, features, length})->length == 2);
  const auto pairs = program_of("pairs", kPairs, {.samples = 4, .source = 8, .target = 6});
  const auto of_targets = form_of(pairs, {batch, features});
  CHECK(!of_targets->of_target);
  CHECK(of_targets->features == 6);
}

TEST_CASE("targets pass between layers together with a source of one row", "[fixed]") {
  Program program = *tensors_program::sounds();
  program.source_length = {.number = 1};
  REQUIRE(program.source_rows() == 1);
  const auto& labels = program.graph().values[program.argument("labels")->value].sizes;
  program.archive.graph.values.push_back(
      {.name = "passed", .dtype = at::kFloat, .sizes = {labels[0], program.target_length, {.number = 6}}});
  const auto form = hidden_form(program, int(program.graph().values.size()) - 1);
  REQUIRE(form);
  CHECK(form->of_target);
  CHECK(form->length == 1);
  CHECK(form->features == 6);
}

TEST_CASE("positions that all samples share equal those of PyTorch", "[fixed]") {
  const auto wanted = nlohmann::json::parse(contents(golden("program/channels.json")));
  std::vector<int64_t> flat;
  for (const std::vector<int64_t> row : wanted["ids"]) flat.insert(flat.end(), row.begin(), row.end());
  const at::Tensor ids = at::tensor(flat).view({4, 6});
  const auto without_batch = [](Graph& graph) {
    for (const auto& input : graph.inputs)
      if (input.name == "position_ids") graph.values[input.value].sizes.erase(graph.values[input.value].sizes.begin());
  };
  for (const bool has_two_sizes : {true, false}) {
    const auto program = program_of("channels", {}, {}, has_two_sizes ? std::function<void(Graph&)>() : without_batch);
    CHECK(program->fixed_samples == 0);
    ProgramRun run(program, at::kDouble, {}, 6);
    const LossTerm loss = run.train(causal_microbatch(ids, ids, at::arange(4)));
    CHECK(loss.sum / loss.weight == Approx(wanted["loss"].get<double>()).epsilon(1e-6));
    for (const auto& [name, gradient] : run.gradients()) {
      const auto of_torch = at::tensor(wanted["gradients"][name].get<std::vector<double>>(), at::kDouble);
      INFO(name);
      CHECK((gradient.flatten() / loss.weight - of_torch).abs().max().item<double>() < 1e-6);
    }
  }
  check_samples(program_of("channels", {}, {}), spec_of_program(program_of("channels", {}, {}), 6), 6);
}

TEST_CASE("channels and rows of a table are not mistaken for tokens and samples of the same number", "[fixed]") {
  const auto any = program_of("channels", {}, {});
  for (const Sizes& sizes : {Sizes{.samples = 4, .source = 6}, Sizes{.samples = 4}, Sizes{.source = 6}}) {
    const auto fixed = program_of("channels", {}, sizes);
    const auto form = hidden_form(*fixed, fixed->layers[1].border.at(0));
    REQUIRE(form);
    CHECK(form->length == 2);
    CHECK(form->features == 6);
    for (const auto& layer : fixed->layers) CHECK(layer.border.size() == (layer.name == "embedding" ? 0 : 1));
    for (const auto& lengths : {std::vector<int64_t>{6, 6, 6, 6}, {3, 6, 5}, {4}})
      check_same(fixed, any, batch_of(lengths, 11, 2), 6);
  }
}

TEST_CASE("fixed sizes are interpreted like the expressions of dynamic sizes", "[fixed]") {
  const auto check = [](const std::string& name, const ProgramUse& use, const Sizes& sizes) {
    INFO(name);
    const auto any = program_of(name, use, {}), fixed = program_of(name, use, sizes);
    REQUIRE(any->graph().values.size() == fixed->counted.size());
    const auto is_batch = [&](const GraphSize& size) { return std::ranges::count(any->batches, size) > 0; };
    int known = 0, tokens = 0;
    for (size_t value = 0; value < fixed->counted.size(); ++value)
      for (size_t i = 0; i < fixed->counted[value].size(); ++i) {
        const GraphSize& size = any->graph().values[value].sizes[i];
        const Counts counts = fixed->counted[value][i];
        INFO(any->graph().values[value].name << " dimension " << i);
        if (counts == Counts::unknown || counts == Counts::repeated) continue;
        if (size.expression.empty()) CHECK(counts == Counts::other);
        if (is_batch(size)) CHECK(counts == Counts::samples);
        if (size == any->source_length && any->columns.empty()) CHECK(counts == Counts::source);
        if (any->has_target() && size == any->target_length) CHECK(counts == Counts::target);
        ++known;
        tokens += counts == Counts::source || counts == Counts::target;
      }
    CHECK(known > 50);
    CHECK((tokens > 10 || !any->columns.empty()));
  };
  const Sizes both = {.samples = 4, .source = 7};
  for (const char* name : {"words", "heads", "patches", "sections", "channels"}) check(name, {}, both);
  check("window", {.predicts = Predicts::row}, both);
  check("pairs", kPairs, {.samples = 4, .source = 8, .target = 6});
  check("pictures", kPictures, {.samples = 3});
}

TEST_CASE("a call that does not show the meaning of a size is refused by name", "[fixed]") {
  const auto turned = [](Graph& graph) {
    for (auto& node : graph.nodes)
      if (node.text() == "aten::transpose.int") {
        node = {.name = "aten::rot90",
                .arguments = {node.arguments[0],
                              {.constant = int64_t{1}},
                              {.constant = c10::IValue(std::vector<int64_t>{1, 2})}},
                .results = node.results,
                .modules = node.modules};
        return;
      }
  };
  CHECK_THROWS_WITH(program_of("channels", {}, {.samples = 4, .source = 6}, turned),
                    Contains("add_2 (made by aten::add.Tensor) of an earlier one") &&
                        Contains("whether the 6 of its dimension 1 are the tokens"));
  CHECK_NOTHROW(program_of("channels", {}, {.samples = 4, .source = 7}, turned));
}

TEST_CASE("earlier positions that are not in a microbatch are refused, for any fixed length", "[fixed]") {
  ProgramRun run(program_of("words", {}, {.source = 7}), at::kDouble);
  Microbatch next = batch_of({1}, words_program::kWords);
  next.positions = next.positions + 4;
  next.position_count = 5;
  CHECK_THAT(message_of<RunError>([&] { run.run(next, Mode::generate); }),
             Contains("a program does not cache earlier positions"));
}

TEST_CASE("the next token follows from the last one before the padding", "[fixed]") {
  const auto fixed = program_of("words", {}, {.samples = 2, .source = 7});
  ProgramRun one(fixed, at::kDouble), other(program_of("words", {}, {}), at::kDouble);
  const Microbatch batch = batch_of({4}, words_program::kWords);
  const at::Tensor next = one.run(batch, Mode::generate)[0], wanted = other.run(batch, Mode::generate)[0];
  REQUIRE(next.sizes() == wanted.sizes());
  CHECK((next - wanted).abs().max().item<double>() < 1e-12);
}

TEST_CASE("more or longer samples than a program accepts are refused, and the error gives both numbers", "[fixed]") {
  ProgramRun run(program_of("fixed_heads", {}, {}), at::kDouble, {}, 5);
  CHECK_THAT(message_of<RunError>([&] {
               run.train(batch_of({5, 5, 5, 5, 5}, 11));
             }),
             Contains("a microbatch has 5 samples, but the program takes 4") && Contains("{0: Dim.AUTO}"));
  CHECK_THAT(message_of<RunError>([&] {
               run.train(batch_of({6, 6, 6, 6}, 11));
             }),
             Contains("a microbatch has 6 tokens in a sample, but the program takes 5") && Contains("{1: Dim.AUTO}"));
  CHECK_THAT(message_of<RunError>([&] { run.train(batch_of({5, 4}, 11)); }), Contains("must have 5 tokens"));
}

TEST_CASE("losses of an unknown kind accept only whole batches", "[fixed]") {
  const auto sum = [](Graph& graph) {  // a loss that is not of a known kind
    for (auto& node : graph.nodes)
      if (node.name == "aten::cross_entropy_loss") node.arguments[3].constant = int64_t{2};
  };
  const auto program = program_of("fixed_heads", {}, {}, sum);
  REQUIRE(program->loss.terms[0].kind == ProgramLossTerm::Kind::whole);
  ProgramRun run(program, at::kDouble, {}, 5);
  CHECK(run.train(batch_of({5, 5, 5, 5}, 11)).weight == 4);
  CHECK_THAT(message_of<RunError>([&] {
               run.train(batch_of({5, 5, 5}, 11));
             }),
             Contains("computed for 4 samples at a time, but a microbatch has 3"));
  check_samples(program, run.spec, 5);
  const auto means = program_of("two_means", {.predicts = Predicts::row}, {.samples = 3});
  const auto labelled = [](Microbatch batch) {
    batch.labels = batch.ids.remainder(5);
    return batch;
  };
  check_same(means, program_of("two_means", {.predicts = Predicts::row}, {}), labelled(batch_of({6, 6}, 12)), 6);
}

TEST_CASE("programs of fixed sizes are checked for mixed samples", "[fixed]") {
  const auto check = [](const std::shared_ptr<const Program>& program) {
    check_samples(program, spec_of_program(program, 8), 8);
  };
  check(program_of("fixed_heads", {}, {}));
  check(program_of("words", {}, {.samples = 4}));
  check(program_of("pairs", kPairs, {.samples = 4, .source = 8, .target = 6}));
  const auto mixing = [](Graph& graph) {
    for (auto& node : graph.nodes)
      if (node.name == "aten::silu")
        node = {.name = "aten::flip",
                .arguments = {node.arguments[0], {.constant = c10::IValue(std::vector<int64_t>{0})}},
                .results = node.results,
                .modules = node.modules};
  };
  CHECK_THROWS_WITH(check(program_of("fixed_heads", {}, {}, mixing)),
                    Contains("layer blocks.0 computes for a sample depends on the other samples"));
}

TEST_CASE("ranks divide a program of fixed sizes as they divide others", "[fixed]") {
  const split_runs::SplitRuns any("program/heads.pt2");
  for (const size_t samples : {4, 2}) {
    const split_runs::SplitRuns fixed(program_of("fixed_heads", {}, {}),
                                      batch_of(std::vector<int64_t>(samples, 5), 11));
    for (const bool divides_rows : {false, true}) {
      const auto split = fixed.splitter.split(2, {}, divides_rows);
      CHECK(split->share == Approx(any.splitter.split(2, {}, divides_rows)->share));
      CHECK(fixed.distance(split) < 1e-12);
    }
  }
}

TEST_CASE("masks of a fixed length are dropped if they hide nothing", "[fixed]") {
  const ProgramUse use = {.predicts = Predicts::row};
  CHECK(with_unmasked(program_of("window", use, {.source = 8}), 8)->unmasked_length == 8);
  CHECK(!with_unmasked(program_of("window", use, {.source = 9}), 9)->unmasked);
}

TEST_CASE("sizes that contradict each other are refused", "[fixed]") {
  const auto only = [](const std::string& name, size_t dimension, int64_t number) {
    return [=](Graph& graph) {
      const auto input = std::ranges::find(graph.inputs, name, &GraphInput::name);
      graph.values[input->value].sizes[dimension] = {.number = number, .expression = ""};
    };
  };
  CHECK_THROWS_WITH(program_of("words", {}, {}, only("attention_mask", 0, 3)),
                    Contains("its attention_mask has a batch of 3, but another argument one of any size"));
  CHECK_THROWS_WITH(program_of("words", {}, {.samples = 7, .source = 7}),
                    Contains("its input_ids must be [batch, length], with two different sizes"));
  CHECK_THROWS_WITH(program_of("pairs", kPairs, {.source = 8}),
                    Contains("its source has a fixed length, but its target does not"));
  CHECK_THROWS_WITH(program_of("pairs", kPairs, {.target = 8}),
                    Contains("its target has a fixed length, but its source does not"));
}

}  // namespace shardline::fixed_sizes_test
