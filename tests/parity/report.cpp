#include "tests/parity/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>

#include "core/error.h"
#include "tests/parity/axes.h"

namespace shardline::parity {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", value);
  return value == 0 ? "0" : text;
}

// Of two differences, the larger of each number.
Difference worse(const Difference& a, const Difference& b) {
  return {.gradient = std::max(a.gradient, b.gradient),
          .norm = std::max(a.norm, b.norm),
          .loss = std::max(a.loss, b.loss),
          .change = std::max(a.change, b.change),
          .copies = std::max(a.copies, b.copies)};
}

void row(std::ostream& out, const std::string& axis, const std::string& value, const std::vector<Measured>& points) {
  Difference worst;
  for (const auto& one : points) worst = worse(worst, one.difference);
  out << "| " << axis << " | " << value << " | " << points.size() << " | " << number(worst.gradient) << " | "
      << number(worst.norm) << " | " << number(worst.loss) << " | " << number(worst.change) << " |\n";
}

void differences(std::ostream& out, const std::vector<Measured>& points, const std::string& dtype) {
  const Limits limits = limits_of(dtype);
  out << "| axis | value | points | gradient | norm | loss | change |\n| --- | --- | ---: | ---: | ---: | ---: | ---: "
         "|\n"
      << "| limit | | | " << number(limits.gradient) << " | " << number(limits.norm) << " | " << number(limits.loss)
      << " | " << number(limits.change) << " |\n";
  row(out, "all", "", points);
  for (const auto& axis : matrix_axes())
    for (size_t value = 0; value < axis.values.size(); ++value) {
      std::vector<Measured> these;
      std::copy_if(points.begin(), points.end(), std::back_inserter(these),
                   [&](const Measured& one) { return axis.get(one.point) == value; });
      if (!these.empty()) row(out, axis.name, axis.values[value], these);
    }
}

// The largest distances from fp32, by precision and sharding.
void half_distances(std::ostream& out, const std::vector<MeasuredHalf>& points) {
  std::map<std::pair<std::string, std::string>, std::vector<MeasuredHalf>> rows;
  for (const auto& one : points) rows[{one.point.dtype, one.point.sharding}].push_back(one);
  out << "| precision | sharding | points | gradient | one process | norm | one process | loss | one process |\n"
         "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (const auto& [key, these] : rows) {
    const auto most = [&](double HalfDistance::*of) {
      double layout = 0, one = 0;
      for (const auto& measured : these) {
        layout = std::max(layout, measured.layout.*of);
        one = std::max(one, measured.one.*of);
      }
      return cat(number(layout), " | ", number(one), " | ");
    };
    out << "| " << key.first << " | " << key.second << " | " << these.size() << " | " << most(&HalfDistance::gradient)
        << most(&HalfDistance::norm) << most(&HalfDistance::loss) << "\n";
  }
}

void checks(std::ostream& out, const std::vector<Checked>& all) {
  for (const auto& one : all) out << "| " << one.what << " | " << one.point << " | " << one.result << " |\n";
}

constexpr const char* kIntroduction = R"(# Parity: every layout gives the same run as one process

<!-- Made by tests/parity: run parity_tests "[docs]" with SHARDLINE_WRITE_DOCS=1 to make it again. -->

Each point trains a small GPT-2, GPT-J or GPT-Neo (5 blocks, hidden size 24) for ten steps on a layout whose ranks are threads,
and the same model on the same batches in one process with one microbatch. Most points use AdamW, a few momentum SGD,
Adam or Adafactor; the learning rate is 1e-3, the clipping norm 1, the weight decay 0.1. The following are compared in
this order, because AdamW and clipping hide a gradient that is wrong by a factor:

- **gradient**: the complete gradient of step 1 before clipping, for every logical parameter: the largest difference
  divided by the tensor's largest gradient (or the layer's largest, if the tensor's is zero except for rounding);
- **norm** of that gradient, relative;
- **loss** of each step, relative;
- **change** of every logical parameter over the ten steps, relative in L2. In fp32, and in float64 with Adafactor,
  this excludes tensors whose exact gradient is zero (an attention key bias), because the optimizer turns their rounding
  errors into steps;
- **copies**: all ranks that hold the same gradient or parameter hold the same bits.

With `trained` other than `all`, the rest of the model is frozen, and must not move.

Shapes: `6 heads` has a vocabulary of 1009 and sequence length 33; `3 heads` has an inner size of 50; `1 head` has a
vocabulary of 3 and 3 inner features, so that some of 4 ranks have none; `2 tokens` has fewer tokens in a microbatch
than there are ranks. `short`: every other step has fewer than half the samples, and some microbatches are empty.

    parity_tests                  # every pair of axis values, the fp32 sample, equal bits, injected faults
    parity_tests "[matrix]"       # the rest: each value alone; P, T, D >= 2 with dropout and uneven sizes;
                                  # every grid; every schedule with every memory option
    ctest -R mpi/parity           # some of the points on 2, 4 and 8 real ranks: within the limits of one
                                  # process, and equal in every bit to ranks as threads
    ctest -R mpi/parity_matrix    # the rest on 2 to 8 real ranks

)";

}  // namespace

std::string markdown(const Report& report) {
  std::ostringstream out;
  out << kIntroduction;
  out << "## float64: the worst difference by axis\n\n";
  differences(out, report.matrix, "float64");
  out << "\n## fp32 on the shipped kernels: a sample\n\n";
  differences(out, report.fp32, "float32");
  out << "\n## Half precision\n\nDifferences of a layout, and of one process, from one process in fp32: the first "
         "gradient "
         "in relative L2, its\nnorm, and the losses of ten steps. The limit for a layout is twice the difference of "
         "one "
         "process plus 1e-3.\n\n";
  half_distances(out, report.half);
  out << "\n## Equal in every bit, fp32 and half precision\n\nFor the same microbatches, threads per rank and "
         "kernels.\n\n"
         "| what | points | bits |\n| --- | --- | --- |\n";
  checks(out, report.bits);
  out << "\n## Injected faults\n\nEach fault is injected from outside (a wrong communicator, layer, plan or batch); "
         "the last "
         "column names what\nexceeds its limit.\n\n| fault | point that catches it | by |\n| --- | --- | --- |\n";
  checks(out, report.faults);
  out << "\nThose that exceed rounding in bf16, and one in fp16, checked against the rule for half precision:\n\n| "
         "fault | point that catches it | by "
         "|\n| --- | --- | --- |\n";
  checks(out, report.half_faults);
  return out.str();
}

}  // namespace shardline::parity
