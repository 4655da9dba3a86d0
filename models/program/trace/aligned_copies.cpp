#include "models/program/trace/aligned_copies.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace shardline {
namespace {

// Calls change(value) for the number of each value in the argument.
void change_values(GraphArgument& argument, const std::function<void(int&)>& change) {
  if (argument.value >= 0) change(argument.value);
  for (auto& item : argument.items) change_values(item, change);
}

// A run, and the values that were added to it: copy -> what it is a copy of.
struct Side {
  TracedRun& run;
  std::map<int, int> added = {};

  bool has(size_t call) const { return call < run.calls.size(); }
  // The value that this call copies; -1 if it is another call.
  int copied(size_t call) const {
    return has(call) && run.calls[call].name == "aten::contiguous" ? run.calls[call].arguments[0].value : -1;
  }

  // Inserts another run's call that copies `value`. Values made earlier have the same numbers in both.
  bool insert(size_t place, const GraphNode& call, int value) {
    const int copy = call.results.at(0).value;
    // The number of a constant is that of its first use, which may be this call.
    if (std::ranges::count(run.constants, value) > 0 || value >= copy || std::cmp_greater(copy, run.values.size()))
      return false;
    const auto shift = [&](int& number) { number += number >= copy; };
    for (auto& later : run.calls) {
      for (auto& argument : later.arguments) change_values(argument, shift);
      for (auto& result : later.results) shift(result.value);
    }
    std::ranges::for_each(run.constants, shift);
    std::ranges::for_each(run.results, shift);
    const at::Tensor tensor = run.values[value];
    run.values.insert(run.values.begin() + copy, tensor);
    run.calls.insert(run.calls.begin() + place, call);
    added[copy] = value;
    return true;
  }

  // Uses the copy in place of the value if the other run does.
  void follow(int& mine, int others) const {
    const auto found = added.find(others);
    if (found != added.end() && found->second == mine) mine = others;
  }
};

class Alignment {
 public:
  Alignment(TracedRun& a, TracedRun& b) : a_{a}, b_{b} {}

  bool run() {
    for (size_t call = 0; has_same(call); ++call) follow(a_.run.calls[call].arguments, b_.run.calls[call].arguments);
    if (a_.run.results.size() == b_.run.results.size())
      for (size_t i = 0; i < a_.run.results.size(); ++i) follow(a_.run.results[i], b_.run.results[i]);
    return !a_.added.empty() || !b_.added.empty();
  }

 private:
  // Whether both runs make the same call, perhaps because it has been added.
  bool has_same(size_t call) {
    const int here = a_.copied(call), there = b_.copied(call);
    if (here >= 0 && here != there) return b_.insert(call, a_.run.calls[call], here);
    if (there >= 0 && here < 0) return a_.insert(call, b_.run.calls[call], there);
    return a_.has(call) && b_.has(call) && a_.run.calls[call].text() == b_.run.calls[call].text();
  }

  void follow(std::vector<GraphArgument>& of_a, std::vector<GraphArgument>& of_b) const {
    if (of_a.size() != of_b.size()) return;
    for (size_t i = 0; i < of_a.size(); ++i) {
      follow(of_a[i].value, of_b[i].value);
      follow(of_a[i].items, of_b[i].items);
    }
  }
  void follow(int& of_a, int& of_b) const {
    a_.follow(of_a, of_b);
    b_.follow(of_b, of_a);
  }

  Side a_, b_;
};

}  // namespace

bool align_copies(TracedRun& a, TracedRun& b) {
  return Alignment(a, b).run();
}

}  // namespace shardline
