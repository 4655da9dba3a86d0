#include "tests/parity/axes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/numbers/philox.h"
#include "tests/parity/traced_models.h"

namespace shardline::parity {
namespace {

template <class T>
Axis axis(const std::string& name, T Point::*member, const std::vector<T>& choices,
          std::vector<std::string> labels = {}) {
  if (labels.empty())
    for (const auto& choice : choices) labels.push_back(cat(choice));
  return {.name = name,
          .values = labels,
          .set = [=](Point& point, size_t value) { point.*member = choices[value]; },
          .get =
              [=](const Point& point) {
                return static_cast<size_t>(std::find(choices.begin(), choices.end(), point.*member) - choices.begin());
              }};
}

// A point under construction: the value chosen for each axis so far.
using Row = std::vector<std::optional<size_t>>;
using Pair = std::tuple<size_t, size_t, size_t, size_t>;  // an axis and its value, a later axis and its value

Point point_of(const std::vector<Axis>& axes, const Row& row) {
  Point point;
  for (size_t a = 0; a < axes.size(); ++a) axes[a].set(point, row[a].value_or(0));
  return point;
}

bool possible(const std::vector<Axis>& axes, const Row& row) {
  return feasible(point_of(axes, row));
}

std::set<Pair> feasible_pairs(const std::vector<Axis>& axes) {
  std::set<Pair> pairs;
  for (size_t a = 0; a < axes.size(); ++a)
    for (size_t b = a + 1; b < axes.size(); ++b)
      for (size_t va = 0; va < axes[a].values.size(); ++va)
        for (size_t vb = 0; vb < axes[b].values.size(); ++vb) {
          Row row(axes.size());
          row[a] = va;
          row[b] = vb;
          if (possible(axes, row)) pairs.insert({a, va, b, vb});
        }
  return pairs;
}

Pair pair_of(size_t a, size_t va, size_t b, size_t vb) {
  return a < b ? Pair{a, va, b, vb} : Pair{b, vb, a, va};
}

// How many uncovered pairs axis a makes with the axes chosen so far if it takes value va.
int gain(const std::set<Pair>& open, const Row& row, size_t a, size_t va) {
  int pairs = 0;
  for (size_t b = 0; b < row.size(); ++b)
    if (b != a && row[b]) pairs += static_cast<int>(open.count(pair_of(a, va, b, *row[b])));
  return pairs;
}

void remove_covered(std::set<Pair>& open, const Row& row) {
  for (size_t a = 0; a < row.size(); ++a)
    for (size_t b = a + 1; b < row.size(); ++b) open.erase({a, *row[a], b, *row[b]});
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  size_t operator()(size_t sides) { return random_word({.seed = seed_}, next_++) % sides; }

 private:
  uint64_t seed_, next_ = 0;
};

size_t index_of(const std::vector<Axis>& axes, const std::string& name) {
  const auto found = std::find_if(axes.begin(), axes.end(), [&](const Axis& one) { return one.name == name; });
  SL_ASSERT(found != axes.end(), "there is no axis ", name);
  return static_cast<size_t>(found - axes.begin());
}

// Starts from an uncovered pair and gives the other axes, in random order, the value that covers the most.
Row grown(const std::vector<Axis>& axes, const std::set<Pair>& open, Dice& dice, int& covered) {
  Row row(axes.size());
  const auto [a, va, b, vb] = *std::next(open.begin(), static_cast<std::ptrdiff_t>(dice(open.size())));
  row[a] = va;
  row[b] = vb;
  covered = 1;
  std::vector<size_t> order(axes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[dice(i)]);
  for (const size_t next : order) {
    if (row[next]) continue;
    int best = -1;
    size_t best_value = 0;
    const size_t turn = dice(axes[next].values.size());
    for (size_t i = 0; i < axes[next].values.size(); ++i) {
      const size_t value = (i + turn) % axes[next].values.size();
      Row tried = row;
      tried[next] = value;
      const int pairs = gain(open, row, next, value);
      if (pairs > best && possible(axes, tried)) std::tie(best, best_value) = std::tuple(pairs, value);
    }
    SL_ASSERT(best >= 0, "axis ", axes[next].name, " has no value that goes with the others");
    row[next] = best_value;
    covered += best;
  }
  return row;
}

}  // namespace

std::vector<Axis> matrix_axes() {
  return {
      axis<int>("D", &Point::d, {1, 2, 3, 4}),
      axis<int>("P", &Point::p, {1, 2, 3, 4}),
      axis<int>("T", &Point::t, {1, 2, 3, 4}),
      axis<std::string>("optimize", &Point::optimize, {"speed", "memory"}),
      axis<std::string>("pipeline", &Point::pipeline,
                        {"interleaved", "simple", "interleaved_1f1b v2", "interleaved_1f1b v3", "zb_h1", "zb_h2", "zbv",
                         "dualpipev"}),
      axis<std::string>("placement", &Point::placement, {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"}),
      axis<int>("microbatches", &Point::microbatches, {1, 2, 3, 4, 5, 6, 7, 8}),
      axis<int>("accumulation", &Point::accumulation, {1, 2, 3}),
      axis<int>("active_microbatches", &Point::active, {0, 1, 2}, {"unset", "1", "2"}),
      axis<bool>("dropout", &Point::dropout, {false, true}, {"0", "0.1"}),
      axis<bool>("head", &Point::tied, {true, false}, {"tied", "untied"}),
      axis<bool>("last batch", &Point::short_batch, {false, true}, {"full", "short"}),
      axis<bool>("labels", &Point::ignored, {false, true}, {"all count", "some ignored"}),
      axis<bool>("label smoothing", &Point::smoothing, {false, true}, {"0", "0.1"}),
      axis<std::string>("packing", &Point::packing, {"off", "packed"}),
      axis<std::string>("checkpointing", &Point::checkpointing, {"none", "each", "group_2", "contiguous", "selective"}),
      axis<std::string>("offload", &Point::offload, {"off", "checkpointed", "all"}),
      axis<std::string>("sharding", &Point::sharding,
                        {"none", "ZeRO-1", "ZeRO-2", "ZeRO-3", "MiCS 2", "ZeRO-3 weights"}),
      axis<std::string>("units", &Point::units,
                        {"split", "by rule", "whole", "attention whole", "mlp whole", "embedding whole", "mixed"}),
      axis<std::string>("model", &Point::model, {"gpt2", "gptj", "gpt_neo"}),
      axis<std::string>("shape", &Point::shape, {"6 heads", "3 heads", "1 head", "2 tokens"}),
      axis<std::string>("trained", &Point::trained, {"all", "head", "last blocks", "two layers", "biases"}),
  };
}

std::vector<Axis> all_axes() {
  std::vector<Axis> axes = matrix_axes();
  axes[index_of(axes, "model")] = axis<std::string>(
      "model", &Point::model, {"bert", "roberta", "xlm-roberta", "distilbert", "gpt2", "gptj", "gpt_neo"});
  axes.push_back(axis<std::string>("task", &Point::task,
                                   {"sequence-classification", "several labels", "regression", "token-classification",
                                    "question-answering", "masked-lm", "completions", "causal-lm"}));
  axes.push_back(axis<std::string>("padding", &Point::padding, {"dynamic", "left", "right"}));
  return axes;
}

std::vector<Axis> task_axes() {
  const auto axes = restricted(all_axes(), "label smoothing", {"0"});
  auto tasks = axes[index_of(axes, "task")].values;
  std::erase(tasks, "causal-lm");
  return restricted(axes, "task", tasks);
}

std::vector<Axis> traced_axes() {
  std::vector<Axis> axes = matrix_axes();
  for (const auto& [name, values] :
       std::map<std::string, std::vector<std::string>>{{"optimize", {"speed"}},
                                                       {"microbatches", {"1", "2", "4", "5"}},
                                                       {"packing", {"off"}},
                                                       {"units", {"split"}},
                                                       {"trained", {"all"}}})
    axes = restricted(axes, name, values);
  const auto& models = traced_models();
  axes[index_of(axes, "model")] = {
      .name = "model",
      .values = models,
      .set =
          [&models](Point& point, size_t value) {
            point.model = models[value];
            point.task = task_of_traced(point.model);
          },
      .get = [&models](const Point& point) { return size_t(std::ranges::find(models, point.model) - models.begin()); }};
  return axes;
}

std::vector<Axis> restricted(std::vector<Axis> axes, const std::string& name, const std::vector<std::string>& values) {
  Axis& cut = axes[index_of(axes, name)];
  SL_ASSERT(!values.empty(), "axis ", name, " is left without values");
  std::vector<size_t> kept;
  for (const auto& value : values) {
    const auto found = std::find(cut.values.begin(), cut.values.end(), value);
    SL_ASSERT(found != cut.values.end(), "axis ", name, " has no value ", value);
    kept.push_back(static_cast<size_t>(found - cut.values.begin()));
  }
  cut = {.name = name,
         .values = values,
         .set = [set = cut.set, kept](Point& point, size_t value) { set(point, kept[value]); },
         .get =
             [get = cut.get, kept](const Point& point) {
               return static_cast<size_t>(std::find(kept.begin(), kept.end(), get(point)) - kept.begin());
             }};
  return axes;
}

std::vector<Point> covering_array(const std::vector<Axis>& axes, uint64_t seed) {
  std::set<Pair> open = feasible_pairs(axes);
  Dice dice(seed);
  std::vector<Point> points;
  while (!open.empty()) {
    Row best;
    int most = 0;
    for (int candidate = 0; candidate < 40; ++candidate) {
      int covered = 0;
      Row row = grown(axes, open, dice, covered);
      if (covered > most) std::tie(most, best) = std::tuple(covered, std::move(row));
    }
    remove_covered(open, best);
    points.push_back(with_batch(point_of(axes, best)));
  }
  return points;
}

std::vector<Point> combinations(const std::vector<Axis>& axes, const std::vector<std::string>& crossed, uint64_t seed) {
  std::vector<Row> rows = {Row(axes.size())};
  std::set<size_t> places;  // rows grow in the order of the axes
  for (const auto& name : crossed) places.insert(index_of(axes, name));
  for (const size_t a : places) {
    std::vector<Row> longer;
    for (const Row& row : rows)
      for (size_t value = 0; value < axes[a].values.size(); ++value) {
        longer.push_back(row);
        longer.back()[a] = value;
      }
    rows = std::move(longer);
  }
  Dice dice(seed);
  std::vector<Point> points;
  for (const Row& combination : rows)
    for (int attempt = 0; attempt < 100; ++attempt) {
      Row row = combination;
      for (size_t a = 0; a < axes.size(); ++a)
        if (!row[a]) row[a] = dice(axes[a].values.size());
      if (!possible(axes, row)) continue;
      points.push_back(with_batch(point_of(axes, row)));
      break;
    }
  return points;
}

std::vector<std::string> missing_pairs(const std::vector<Axis>& axes, const std::vector<Point>& points) {
  std::set<Pair> open = feasible_pairs(axes);
  for (const auto& point : points) {
    Row row;
    for (const auto& one : axes) row.emplace_back(one.get(point));
    remove_covered(open, row);
  }
  std::vector<std::string> missing;
  for (const auto& [a, va, b, vb] : open)
    missing.push_back(cat(axes[a].name, "=", axes[a].values[va], ", ", axes[b].name, "=", axes[b].values[vb]));
  return missing;
}

}  // namespace shardline::parity
