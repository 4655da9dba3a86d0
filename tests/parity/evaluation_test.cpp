// Evaluation between the steps of a run: its loss equals that of one process, and training continues as without it.
#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "core/error.h"
#include "engine/train/trainer.h"
#include "tests/case_sample.h"
#include "tests/parity/faulty_communicator.h"
#include "tests/parity/random_source.h"
#include "tests/parity/run.h"
#include "tests/parity/wrapped_layer.h"

#include "tests/catch.h"

namespace shardline::parity::evaluation_test {
namespace {

// A whole batch, one whose microbatches are partly empty, and one with a single sample for all replicas.
constexpr std::array<int64_t, 3> kValidation = {24, 5, 1};
// The steps after which to evaluate: at the start, twice in a row, and at the end. State that evaluation must not
// change is compared after only one of them, because the comparison waits for collectives that evaluation must also
// wait for.
constexpr std::array<int, 5> kEvaluated = {0, 3, 4, 7, kSteps};
constexpr int kLookedAt = 4;

thread_local int evaluations = 0;  // on this rank, including those under way
thread_local bool evaluating = false;

RandomSource validation_of(const Point& point) {
  return RandomSource({.seed = 5,
                       .vocab = shape_of(point).vocab,
                       .length = shape_of(point).sequence,
                       .ignored = true,
                       .samples_in_step = [](int64_t step) { return kValidation.at(step); }});
}

// What a rank holds, apart from its place in the data.
struct State {
  std::map<std::string, at::Tensor> values;
  std::vector<at::Tensor> gradients;
  double loss_scale = 1;

  explicit State(RankTrainer& trainer) : loss_scale(trainer.loss_scale()) {
    trainer.parameters().visit_values([&](const Parameter& p) { values[p.name] = p.value.clone(); });
    for (const auto& range : trainer.parameters().trained_ranges()) gradients.push_back(range.gradients.clone());
  }
  std::string differs(const State& other) const {
    const auto same = [](const auto& a, const auto& b, const auto& equal) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
    };
    const auto equal_tensors = [](const at::Tensor& one, const at::Tensor& two) { return at::equal(one, two); };
    const auto equal_values = [](const auto& one, const auto& two) {
      return one.first == two.first && at::equal(one.second, two.second);
    };
    return cat(same(values, other.values, equal_values) ? "" : " values",
               same(gradients, other.gradients, equal_tensors) ? "" : " gradients",
               loss_scale == other.loss_scale ? "" : " scale");
  }
};

struct Evaluated {
  Outcome outcome;
  std::vector<std::vector<double>> losses;  // by rank, then in the order of the evaluations
  std::string touched;                      // what evaluation changed on any rank
};

Evaluated run_evaluated(const Point& point, Tampering tampering = {}) {
  Evaluated result;
  result.losses.resize(point.world());
  std::mutex mutex;
  tampering.after_step = [&](RankTrainer& trainer, int step) {
    if (step == 0) evaluations = 0;
    if (std::find(kEvaluated.begin(), kEvaluated.end(), step) == kEvaluated.end()) return;
    std::optional<State> before;
    if (step == kLookedAt) before.emplace(trainer);
    ++evaluations;
    evaluating = true;
    auto validation = validation_of(point);
    const LossTerm loss = trainer.evaluate(validation, std::ssize(kValidation));
    evaluating = false;
    const auto rank = static_cast<size_t>(trainer.parameters().groups().world->rank());
    result.losses[rank].push_back(loss.sum / loss.weight);
    if (!before) return;
    const std::string touched = State(trainer).differs(*before);
    const std::scoped_lock lock(mutex);
    if (touched.size() > result.touched.size()) result.touched = touched;
  };
  result.outcome = run_point(point, tampering);
  return result;
}

// The losses of the run in one process.
const std::vector<double>& reference_losses(const Point& point) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<double>> known;
  const std::scoped_lock lock(mutex);
  auto& losses = known[point.reference_key()];
  if (losses.empty()) losses = run_evaluated(point.reference()).losses[0];
  return losses;
}

// Returns what is wrong with evaluations between the steps of the point: their " loss", in float64, differs from that
// of one process; the " ranks" do not agree on it; evaluation changed " values", " gradients" or the loss " scale"; the
// run continues with other " bits".
std::string wrong(const Point& point, const Tampering& tampering = {}) {
  Point exact = point;
  exact.dtype = "float64";
  const auto losses = run_evaluated(exact, tampering).losses;
  const auto& expected = reference_losses(exact);
  SL_ASSERT(expected.size() == kEvaluated.size(), "evaluations");
  bool same_loss = true, same_ranks = true;
  for (const auto& of_rank : losses) same_ranks = same_ranks && of_rank == losses[0];
  for (size_t i = 0; i < expected.size(); ++i)
    same_loss = same_loss && std::abs(losses[0].at(i) / expected[i] - 1) <= limits_of(exact).loss;

  const Evaluated evaluated = run_evaluated(point, tampering);
  return cat(same_loss ? "" : " loss", same_ranks ? "" : " ranks", evaluated.touched,
             bit_equal(evaluated.outcome, run_point(point)) ? "" : " bits");
}

// Every schedule with every sharding, recompute, offload and precision, though not in all combinations.
std::vector<Point> points() {
  const std::vector<std::string> schedules = {"interleaved", "simple",   "interleaved_1f1b v2", "zb_h1", "zb_h2",
                                              "zbv",         "dualpipev"};
  const std::vector<std::string> shardings = {"ZeRO-1", "ZeRO-2", "ZeRO-3", "none", "ZeRO-3 weights", "MiCS 2"};
  const std::vector<std::string> recomputed = {"none", "each", "selective", "contiguous", "group_2"};
  const std::vector<std::string> offloads = {"off", "all", "checkpointed"};
  const std::vector<std::string> dtypes = {"float32", "fp16", "float32", "bf16"};
  std::vector<Point> points;
  for (const auto& schedule : schedules)
    for (int i = 0; i < 3; ++i) {
      const size_t n = points.size();
      Point point = {.d = 2,
                     .p = 2,
                     .t = i == 0 ? 2 : 1,
                     .optimize = n % 2 == 0 ? "memory" : "speed",
                     .pipeline = schedule,
                     .dtype = dtypes[n % dtypes.size()],
                     .microbatches = 3,
                     .dropout = true,
                     .short_batch = n % 3 == 0,
                     .checkpointing = recomputed[n % recomputed.size()],
                     .sharding = shardings[n % shardings.size()]};
      point.offload = point.checkpointing == "none" && offloads[n % 3] == "checkpointed" ? "all" : offloads[n % 3];
      points.push_back(point);
    }
  points.push_back({.dtype = "float32", .accumulation = 2, .dropout = true});
  points.push_back({.dtype = "fp16", .microbatches = 4, .dropout = true, .optim = "sgd"});
  points.push_back({.p = 4, .dtype = "float32", .microbatches = 4, .tied = false, .optim = "adafactor"});
  points.push_back({.t = 4, .optimize = "memory", .dtype = "float32", .dropout = true, .model = "gptj"});
  // There are more replicas than some batches have samples.
  points.push_back({.d = 8, .dtype = "float32", .sharding = "ZeRO-3", .global_batch = 24});
  points.push_back({.d = 4,
                    .t = 2,
                    .dtype = "float32",
                    .microbatches = 3,
                    .accumulation = 2,
                    .sharding = "ZeRO-1",
                    .global_batch = 24});
  return points;
}

struct Fault {
  std::string what, caught;
  Point point;
  Tampering tampering;
};

Tampering around(const std::string& layer, const Around& around) {
  return {.spec = [=](ModelSpec& spec, const Point&) {
    for (auto& one : spec.layers)
      if (one.name == layer) wrap(one, around);
  }};
}

// The context that a layer sees is modified in passes of one mode.
Tampering in_mode(Mode mode, const std::string& layer, const std::function<void(MicrobatchContext&)>& edit) {
  return around(layer, [=](Layer& inner, const LayerBuild&, const Border& input, MicrobatchContext& context) {
    if (context.mode != mode) return inner.forward(input, context);
    MicrobatchContext edited = context;
    edit(edited);
    Border border = inner.forward(input, edited);
    context.loss = edited.loss;
    return border;
  });
}

Tampering adds_in_evaluation(at::Tensor Parameter::*to) {
  return around("h.1", [=](Layer& inner, const LayerBuild& build, const Border& input, MicrobatchContext& context) {
    if (context.mode == Mode::evaluate) (parameter(build, "ln_1.weight").*to).add_(1);
    return inner.forward(input, context);
  });
}

Tampering without_in_evaluation(const std::string& group, const std::string& what) {
  const DamageRule rule = [=](const Call& call) {
    return evaluating && call.group == group && call.what == what ? Damage::drop : Damage::leave;
  };
  return {.world = [rule](const CommunicatorPtr& world) { return damaged(world, rule); }};
}

std::vector<Fault> faults() {
  const Point one = {.dtype = "float32", .dropout = true}, p2 = {.p = 2, .dtype = "float32", .dropout = true};
  return {
      {"evaluation takes samples of the training data",
       " loss bits",
       one,
       {.batch = [](Batch& batch) { batch.rows.ids.add_(evaluations).remainder_(1009); }}},
      {"evaluation consumes random numbers of the dropout masks", " loss bits", one,
       in_mode(Mode::train, "h.2", [](MicrobatchContext& context) { context.step += evaluations; })},
      {"training goes on in evaluation mode", " loss bits", p2,
       in_mode(Mode::train, "h.2",
               [](MicrobatchContext& context) {
                 if (evaluations > 0) context.mode = Mode::evaluate;
               })},
      {"training goes on with another loss scale",
       " loss bits",
       {.p = 2, .dtype = "fp16", .dropout = true},
       in_mode(Mode::train, "head", [](MicrobatchContext& context) { context.loss_scale *= 1 + evaluations; })},
      {"evaluation leaves gradients", " gradients", p2, adds_in_evaluation(&Parameter::grad)},
      {"evaluation changes values", " loss values bits", p2, adds_in_evaluation(&Parameter::value)},
      {"evaluation draws dropout masks", " loss", one,
       in_mode(Mode::evaluate, "h.2", [](MicrobatchContext& context) { context.mode = Mode::train; })},
      {"evaluation gathers a layer from one shard only",
       " loss",
       {.d = 2, .dtype = "float32", .sharding = "ZeRO-3"},
       without_in_evaluation("rdp", "gather values")},
      {"an example counts twice", " loss", one,
       around("head",
              [](Layer& inner, const LayerBuild&, const Border& input, MicrobatchContext& context) {
                const auto& samples = context.batch->samples;
                const bool is_last = samples.numel() > 0 && samples[-1].item<int64_t>() == 4;  // the last of 5 samples
                if (context.mode == Mode::evaluate && is_last) {
                  const LossTerm before = context.loss;
                  inner.forward(input, context);
                  context.loss = {before.sum + 2 * (context.loss.sum - before.sum),
                                  before.weight + 2 * (context.loss.weight - before.weight)};
                  return Border{};
                }
                return inner.forward(input, context);
              })},
      {"each rank has the loss of its own samples",
       " loss ranks",
       {.d = 2, .dtype = "float32"},
       without_in_evaluation("world", "loss")},
  };
}

}  // namespace

TEST_CASE("evaluation between steps has the loss of one process and leaves no trace in training",
          "[parity][evaluation]") {
  std::vector<Point> all;
  CaseSample sample(3);
  for (const Point& point : points())
    if (sample.takes_next()) all.push_back(point);
  std::vector<std::string> results(all.size());
  at_once(all.size(), [&](size_t i) { results[i] = wrong(all[i]); });
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(all[i].name());
    CHECK(feasible(all[i]));
    CHECK(results[i] == "");
  }
}

TEST_CASE("injected faults of evaluation are detected", "[parity][evaluation][faults]") {
  const auto all = faults();
  std::vector<std::string> sound(all.size()), faulty(all.size());
  at_once(all.size(), [&](size_t i) {
    faulty[i] = wrong(all[i].point, all[i].tampering);
    const auto has_point = [&](const Fault& other) { return other.point.name() == all[i].point.name(); };
    const auto first = std::find_if(all.begin(), all.end(), has_point);
    if (first == all.begin() + static_cast<std::ptrdiff_t>(i)) sound[i] = wrong(all[i].point);
  });
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(all[i].what << ": " << all[i].point.name());
    CHECK(sound[i] == "");
    CHECK(faulty[i] == all[i].caught);
  }
}

}  // namespace shardline::parity::evaluation_test
