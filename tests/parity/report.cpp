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

}  // namespace

std::string markdown(const Report& report) {
  std::ostringstream out;
  out << "# Parity: every layout gives the run of one process\n\n"
         "<!-- Made by tests/parity: run parity_tests \"[docs]\" with SHARDLINE_WRITE_DOCS=1 to make it again. -->\n\n"
         "Each point trains a small GPT-2 or GPT-J (5 blocks, hidden size 24) for ten steps (AdamW, a few points with "
         "momentum "
         "SGD, "
         "Adam\n"
         "or Adafactor; learning rate 1e-3, clipping at norm 1, weight decay 0.1) on a layout with ranks as threads, "
         "and the same model and batches in one process "
         "with\n"
         "one microbatch. Compared are, in this order, because AdamW and clipping hide a gradient that is wrong by a "
         "factor:\n\n"
         "- **gradient**: of step 1, complete and before clipping, for every logical parameter: largest difference "
         "over the\n"
         "  tensor's largest gradient (over the layer's largest where the tensor's is zero but for rounding);\n"
         "- **norm** of that gradient, relative;\n"
         "- **loss** of each step, relative;\n"
         "- **change** of every logical parameter over the ten steps, relative in L2. In fp32 tensors whose exact "
         "gradient is\n"
         "  zero (an attention key bias) are left out of it: AdamW makes steps of their rounding (Adafactor in "
         "float64, too);\n"
         "- **copies**: all ranks that hold the same gradient or parameter hold the same bits.\n\n"
         "Shapes: `6 heads` has vocabulary 1009 and sequence 33; `3 heads` an inner size of 50; `1 head` 3 words and 3 "
         "inner\n"
         "features, so that some of 4 ranks have none; `2 tokens` fewer tokens in a microbatch than ranks. `short`: "
         "every\n"
         "other step has fewer than half the samples, and microbatches are empty.\n\n"
         "    parity_tests                  # every pair of axis values, the fp32 sample, equal bits, planted faults\n"
         "    parity_tests \"[matrix]\"       # the rest: each value alone; P, T, D >= 2 with dropout and uneven "
         "sizes;\n"
         "                                  # every grid; every schedule with every choice of memory\n"
         "    ctest -R mpi/parity           # points of the list on 2, 4 and 8 real ranks: within the limits of one\n"
         "                                  # process, and equal in every bit to ranks as threads\n"
         "    ctest -R mpi/parity_matrix    # the rest on 2 to 8 real ranks\n\n";
  out << "## float64: the worst difference by axis\n\n";
  differences(out, report.matrix, "float64");
  out << "\n## fp32 on the shipped kernels: a sample\n\n";
  differences(out, report.fp32, "float32");
  out << "\n## Half precision\n\nHow far ranks on a layout, and one process, are from one process in fp32: the first "
         "gradient in relative L2, its\nnorm, and the losses of ten steps. A layout may be twice as far away as one "
         "process, and 1e-3.\n\n";
  half_distances(out, report.half);
  out << "\n## Equal in every bit, fp32 and half precision\n\nFor the same microbatches, threads per rank and "
         "kernels.\n\n"
         "| what | points | bits |\n| --- | --- | --- |\n";
  checks(out, report.bits);
  out << "\n## Planted faults\n\nEach is put in from outside (a communicator, a layer, a plan or a batch that is "
         "wrong); the "
         "last column names what\nexceeds its limit.\n\n| fault | point that catches it | by |\n| --- | --- | --- |\n";
  checks(out, report.faults);
  out << "\nThose that are not lost in its roundings, in bf16, and one of fp16, held against the rule for half "
         "precision:\n\n| fault | point that catches it | by "
         "|\n| --- | --- | --- |\n";
  checks(out, report.half_faults);
  return out.str();
}

}  // namespace shardline::parity
