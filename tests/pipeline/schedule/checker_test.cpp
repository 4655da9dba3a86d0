#include "pipeline/schedule/checker.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>

#include "pipeline/schedule/kinds/schedule_generators.h"
#include "tests/pipeline/schedules.h"

#include "tests/catch.h"

namespace shardline::checker_test {
namespace {

using Key = std::pair<int, int>;  // microbatch, chunk

// An independent check: a machine with values runs the lists, one randomly chosen stage at a time. Something is wrong
// if a value is missing, is made or sent twice, or is left over, or if no stage can continue.
class Machine {
 public:
  Machine(const Schedule& schedule, int send_buffers, unsigned seed)
      : schedule_(schedule), buffers_(send_buffers), random_(seed), at_(schedule.instructions.size()) {
    for (const auto& list : schedule.instructions)
      for (const auto& i : list)
        if (i.op != Op::forward && i.op != Op::send_activation && i.op != Op::recv_activation) training_ = true;
  }

  bool runs_through() {
    for (;;) {
      std::vector<int> movable;
      for (int stage = 0; stage < schedule_.stages; ++stage)
        if (!ended(stage) && can_move(stage)) movable.push_back(stage);
      if (movable.empty()) return everybody_ended() && complete();
      const int stage = movable[random_() % movable.size()];
      if (!move(stage)) return false;
    }
  }

 private:
  struct Message {
    bool activation;
    int microbatch, chunk;  // on the receiver
    bool operator==(const Message&) const = default;
  };

  bool ended(int stage) const { return at_[size_t(stage)] == schedule_.instructions[size_t(stage)].size(); }
  bool everybody_ended() const {
    for (int stage = 0; stage < schedule_.stages; ++stage)
      if (!ended(stage)) return false;
    return true;
  }
  const Instruction& current(int stage) const { return schedule_.instructions[size_t(stage)][at_[size_t(stage)]]; }
  static bool sends(Op op) { return op == Op::send_activation || op == Op::send_gradient; }
  static bool receives(Op op) { return op == Op::recv_activation || op == Op::recv_gradient; }
  std::optional<int> stage_of(int chunk) const {
    if (chunk < 0 || chunk >= schedule_.chunks()) return {};
    return schedule_.stage_of_chunk[size_t(chunk)];
  }

  bool can_move(int stage) {
    const auto& i = current(stage);
    if (receives(i.op)) return !channels_[{i.peer, stage}].empty();
    if (!sends(i.op)) return true;
    if (i.peer < 0 || i.peer >= schedule_.stages) return true;  // move() will detect it
    const bool waited_for = !ended(i.peer) && receives(current(i.peer).op) && current(i.peer).peer == stage;
    return int(channels_[{stage, i.peer}].size()) < buffers_ + (waited_for ? 1 : 0);
  }

  bool move(int stage) {
    const Instruction i = current(stage);
    ++at_[size_t(stage)];
    const Key key{i.microbatch, i.chunk};
    if (stage_of(i.chunk) != stage) return false;
    if (i.op == Op::end_gradients)
      return i.microbatch == -1 && i.peer == -1 && int(weights_[i.chunk].size()) == schedule_.microbatches &&
             reduced_.insert(i.chunk).second;
    if (i.op == Op::settle_gradients && reduced_.count(i.chunk)) return false;
    if (i.microbatch < 0 || i.microbatch >= schedule_.microbatches) return false;
    const bool computes = !sends(i.op) && !receives(i.op);
    if (computes && i.peer != -1) return false;
    switch (i.op) {
      case Op::forward:
        if (i.chunk > 0 && !take(inputs_, key)) return false;
        if (i.chunk + 1 < schedule_.chunks() && stage_of(i.chunk + 1) == stage)
          inputs_.insert({i.microbatch, i.chunk + 1});
        if (training_ && i.chunk >= schedule_.first_backward_chunk) kept_.insert(key);
        if (training_ && i.chunk + 1 == schedule_.chunks() && !ascending(losses_, i.microbatch)) return false;
        return ran_.insert(key).second && (leaves(stage, i.chunk + 1) ? outputs_.insert(key).second : true);
      case Op::backward_input:
        if (i.chunk + 1 < schedule_.chunks() && !take(gradients_, key)) return false;
        if (!take(kept_, key) || !ascending(input_gradients_[i.chunk], i.microbatch)) return false;
        pairs_.insert(key);
        if (i.chunk == schedule_.first_backward_chunk) return true;
        if (stage_of(i.chunk - 1) == stage) gradients_.insert({i.microbatch, i.chunk - 1});
        return leaves(stage, i.chunk - 1) ? output_gradients_.insert(key).second : true;
      case Op::backward_weight:
        return take(pairs_, key) && ascending(weights_[i.chunk], i.microbatch);
      case Op::send_activation:
        return send(stage, i, outputs_, i.chunk + 1, true);
      case Op::send_gradient:
        return send(stage, i, output_gradients_, i.chunk - 1, false);
      case Op::recv_activation:
        return receive(stage, i, inputs_, true);
      case Op::recv_gradient:
        return receive(stage, i, gradients_, false);
      case Op::settle_gradients:
        return int(weights_[i.chunk].size()) > i.microbatch && scattered_.insert(key).second;
      case Op::end_gradients:
        break;
    }
    return false;
  }

  bool leaves(int stage, int chunk) const { return stage_of(chunk) && stage_of(chunk) != stage; }
  static bool take(std::set<Key>& from, const Key& key) { return from.erase(key) == 1; }
  static bool ascending(std::vector<int>& done, int microbatch) {
    if (int(done.size()) != microbatch) return false;
    done.push_back(microbatch);
    return true;
  }
  bool send(int stage, const Instruction& i, std::set<Key>& from, int chunk, bool activation) {
    if (!leaves(stage, chunk) || stage_of(chunk) != i.peer || !take(from, {i.microbatch, i.chunk})) return false;
    channels_[{stage, i.peer}].push_back({activation, i.microbatch, chunk});
    return true;
  }
  bool receive(int stage, const Instruction& i, std::set<Key>& into, bool activation) {
    auto& channel = channels_[{i.peer, stage}];
    const Message message = channel.front();
    channel.pop_front();
    return message == Message{activation, i.microbatch, i.chunk} && into.insert({i.microbatch, i.chunk}).second;
  }

  bool complete() const {
    for (const auto& [ends, channel] : channels_)
      if (!channel.empty()) return false;
    for (const auto* left : {&inputs_, &outputs_, &kept_, &pairs_, &gradients_, &output_gradients_})
      if (!left->empty()) return false;
    if (int(ran_.size()) != schedule_.microbatches * schedule_.chunks()) return false;
    const int trained = schedule_.chunks() - schedule_.first_backward_chunk;
    if (!scattered_.empty() && int(scattered_.size()) != schedule_.microbatches * trained) return false;
    return !training_ || int(reduced_.size()) == trained;
  }

  const Schedule& schedule_;
  int buffers_;
  std::mt19937 random_;
  bool training_ = false;
  std::vector<size_t> at_;
  std::map<std::pair<int, int>, std::deque<Message>> channels_;
  std::set<Key> inputs_, outputs_, kept_, pairs_, gradients_, output_gradients_, ran_;
  std::map<int, std::vector<int>> input_gradients_, weights_;
  std::vector<int> losses_;
  std::set<int> reduced_;
  std::set<Key> scattered_;
};

bool accepted(const Schedule& schedule, int send_buffers) {
  try {
    check_schedule(schedule, send_buffers);
    return true;
  } catch (const ScheduleError&) {
    return false;
  }
}

std::string refusal(const Schedule& schedule, int send_buffers = 1) {
  try {
    check_schedule(schedule, send_buffers);
  } catch (const ScheduleError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The shortest of three times, because other programs may be running.
double best_milliseconds(const Schedule& schedule) {
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    const auto start = std::chrono::steady_clock::now();
    check_schedule(schedule);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

struct Count {
  int mutants = 0, equivalent = 0;
};

// The checker and the machine must agree on every mutant; some mutants (two independent neighbours swapped) are fine.
void judge(const Schedule& mutant, const Schedule& original, int send_buffers, Count& count) {
  if (mutant == original) return;
  ++count.mutants;
  const bool fine = accepted(mutant, send_buffers);
  count.equivalent += fine;
  for (unsigned seed = 1; seed <= (fine ? 3u : 1u); ++seed) {
    if (Machine(mutant, send_buffers, seed).runs_through() == fine) continue;
    INFO("checker: " << refusal(mutant, send_buffers));
    for (int stage = 0; stage < mutant.stages; ++stage) {
      std::string list;
      for (const auto& i : mutant.instructions[size_t(stage)])
        list += cat(to_string(i.op), " ", i.microbatch, " ", i.chunk, " ", i.peer, "; ");
      UNSCOPED_INFO("stage " << stage << ": " << list);
    }
    FAIL("the checker " << (fine ? "accepts" : "refuses") << " what the machine does not");
  }
}

Count judge_all_mutants(const Schedule& original, int send_buffers) {
  Count count;
  const auto with = [&](int stage, auto&& change) {
    auto mutant = original;
    change(mutant.instructions[size_t(stage)]);
    judge(mutant, original, send_buffers, count);
  };
  for (int stage = 0; stage < original.stages; ++stage) {
    const auto size = long(original.instructions[size_t(stage)].size());
    for (long i = 0; i < size; ++i) {
      with(stage, [&](auto& list) { list.erase(list.begin() + i); });
      for (long j = 0; j <= size; ++j)  // duplicate, to everywhere
        with(stage, [&](auto& list) { list.insert(list.begin() + j, Instruction(list[size_t(i)])); });
      for (long j = i + 1; j < size; ++j) {
        with(stage, [&](auto& list) { std::swap(list[size_t(i)], list[size_t(j)]); });
        with(stage, [&](auto& list) { std::rotate(list.begin() + i, list.begin() + i + 1, list.begin() + j + 1); });
        with(stage, [&](auto& list) { std::rotate(list.begin() + i, list.begin() + j, list.begin() + j + 1); });
      }
      for (int op = 0; op <= int(Op::settle_gradients); ++op)
        with(stage, [&](auto& list) { list[size_t(i)].op = Op(op); });
      for (int microbatch = -1; microbatch <= original.microbatches; ++microbatch)
        with(stage, [&](auto& list) { list[size_t(i)].microbatch = microbatch; });
      for (int chunk = -1; chunk <= original.chunks(); ++chunk)
        with(stage, [&](auto& list) { list[size_t(i)].chunk = chunk; });
      for (int peer = -1; peer <= original.stages; ++peer)
        with(stage, [&](auto& list) { list[size_t(i)].peer = peer; });
      for (int other = 0; other < original.stages; ++other) {  // to another stage
        auto mutant = original;
        auto& from = mutant.instructions[size_t(stage)];
        mutant.instructions[size_t(other)].push_back(from[size_t(i)]);
        from.erase(from.begin() + i);
        judge(mutant, original, send_buffers, count);
      }
    }
  }
  return count;
}

// Chunks go down the stages and up again, so that both kinds of messages share a channel and the last stage hands over
// to itself. Backward halves are split: all weight gradients come last.
Schedule v_shape(int stages, int microbatches) {
  Schedule schedule{"v", stages, microbatches, {}, std::vector<std::vector<Instruction>>(size_t(stages))};
  for (int chunk = 0; chunk < 2 * stages; ++chunk)
    schedule.stage_of_chunk.push_back(chunk < stages ? chunk : 2 * stages - 1 - chunk);
  const auto message = [&](Op op, int microbatch, int chunk, int other) {
    if (other < 0 || other >= 2 * stages) return;
    const int stage = schedule.stage_of_chunk[size_t(chunk)], peer = schedule.stage_of_chunk[size_t(other)];
    if (stage != peer) schedule.instructions[size_t(stage)].push_back({op, microbatch, chunk, peer});
  };
  const auto compute = [&](Op op, int microbatch, int chunk) {
    schedule.instructions[size_t(schedule.stage_of_chunk[size_t(chunk)])].push_back({op, microbatch, chunk});
  };
  for (int microbatch = 0; microbatch < microbatches; ++microbatch)
    for (int chunk = 0; chunk < 2 * stages; ++chunk) {
      message(Op::recv_activation, microbatch, chunk, chunk - 1);
      compute(Op::forward, microbatch, chunk);
      message(Op::send_activation, microbatch, chunk, chunk + 1);
    }
  for (int microbatch = 0; microbatch < microbatches; ++microbatch)
    for (int chunk = 2 * stages - 1; chunk >= 0; --chunk) {
      message(Op::recv_gradient, microbatch, chunk, chunk + 1);
      compute(Op::backward_input, microbatch, chunk);
      message(Op::send_gradient, microbatch, chunk, chunk - 1);
    }
  for (int chunk = 0; chunk < 2 * stages; ++chunk) {
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) compute(Op::backward_weight, microbatch, chunk);
    compute(Op::end_gradients, -1, chunk);
  }
  return schedule;
}

}  // namespace

TEST_CASE("every mutant is refused, or an independent machine runs it too") {
  const std::vector<Schedule> corpus = {simple_schedule(1, 2, 0),
                                        simple_schedule(3, 2, 0),
                                        simple_schedule(2, 3, 2),
                                        with_reductions(one_forward_one_backward(2, 2, 0), true),
                                        one_forward_one_backward(2, 3, 0),
                                        one_forward_one_backward(3, 3, 0),
                                        one_forward_one_backward(3, 3, 2),
                                        forward_schedule(3, 3),
                                        v_shape(2, 2),
                                        interleaved_1f1b(2, 2, 2, 0),
                                        zb_h1(3, 2, 0),
                                        zb_h2(2, 3, 0),
                                        zbv(2, 2, 0),
                                        dualpipev(2, 2, 0),
                                        without_backward_before(one_forward_one_backward(3, 2, 0), 1),
                                        without_backward_before(one_forward_one_backward(2, 2, 0), 1),
                                        without_backward_before(with_reductions(simple_schedule(3, 2, 0), true), 2),
                                        without_backward_before(interleaved_1f1b(2, 2, 2, 0), 2),
                                        without_backward_before(zb_h1(3, 2, 0), 1),
                                        without_backward_before(zbv(2, 2, 0), 1)};
  Count total;
  for (const auto& schedule : corpus)
    for (int send_buffers : {0, 1, 2}) {
      if (!accepted(schedule, send_buffers)) continue;
      CHECK(Machine(schedule, send_buffers, 7).runs_through());
      const auto count = judge_all_mutants(schedule, send_buffers);
      total.mutants += count.mutants;
      total.equivalent += count.equivalent;
    }
  CHECK(total.mutants > 20000);
  CHECK(total.equivalent > 0);
  WARN(total.mutants << " mutants, of which " << total.equivalent << " are schedules themselves");
}

TEST_CASE("schedules stay complete without the backward passes before any chunk") {
  for (const auto& whole : all_schedules(3, 5))
    for (const bool scattered : {false, true})
      for (int first = 0; first < whole.chunks(); ++first) {
        const auto schedule = without_backward_before(with_reductions(whole, scattered), first);
        CAPTURE(whole.name, scattered, first);
        CHECK(refusal(schedule, kUnboundedSends) == "");
        CHECK(Machine(schedule, 1000, 7).runs_through());
        for (const auto& list : schedule.instructions)
          for (const auto& i : list) CHECK((is_of_forward(i.op) || i.chunk >= first));
        CHECK(schedule_from_json(nlohmann::json(schedule), "a test") == schedule);
      }
}

TEST_CASE("a first chunk with a backward pass that does not exist is refused") {
  for (const int first : {-1, 3}) {
    auto schedule = simple_schedule(3, 2, 0);
    schedule.first_backward_chunk = first;
    CHECK(contains(refusal(schedule), cat("begin with chunk ", first, ", but there are 3 chunks")));
  }
}

TEST_CASE("random reorderings: checker and machine agree") {
  std::mt19937 random(20);
  Count count;
  for (int round = 0; round < 3000; ++round) {
    const auto original = round % 2 ? v_shape(2 + round % 3, 2) : one_forward_one_backward(2 + round % 3, 4, 0);
    auto mutant = original;
    for (int swaps = 1 + round % 4; swaps > 0; --swaps) {
      auto& list = mutant.instructions[random() % mutant.instructions.size()];
      const size_t i = random() % (list.size() - 1);
      std::swap(list[i], list[i + 1]);
    }
    judge(mutant, original, 1 + round % 2, count);
  }
  CHECK(count.equivalent > 100);
  CHECK(count.mutants - count.equivalent > 1000);
}

TEST_CASE("split backward passes and local neighbours are understood") {
  const auto report = check_schedule(v_shape(3, 4));
  CHECK(report.training);
  CHECK(report.peak_activations == std::vector<int>{8, 8, 8});   // 4 microbatches of 2 chunks
  CHECK(report.peak_weight_pairs == std::vector<int>{8, 8, 8});  // all weight gradients wait
}

TEST_CASE("a refusal names stage, index and instruction") {
  auto schedule = one_forward_one_backward(2, 2, 0);
  std::swap(schedule.instructions[1][2], schedule.instructions[1][3]);  // weight before input
  try {
    check_schedule(schedule);
    FAIL();
  } catch (const ScheduleError& error) {
    CHECK(error.stage == 1);
    CHECK(error.index == 2);
    CHECK(std::string(error.what()) ==
          "schedule \"interleaved (1F1B)\": stage 1, instruction 2 (backward_weight, microbatch 0, chunk 1): comes "
          "before "
          "its backward_input");
  }
}

TEST_CASE("the losses of a step are in ascending microbatch order, the forward passes of other chunks in any order") {
  auto schedule = simple_schedule(1, 2, 0);
  std::swap(schedule.instructions[0][0], schedule.instructions[0][1]);  // two forwards
  CHECK(contains(refusal(schedule), "stage 0, instruction 0 (forward, microbatch 1, chunk 0): microbatches add to"));
  schedule = v_shape(1, 2);
  auto& list = schedule.instructions[0];  // forwards of both chunks for microbatch 0, then for 1
  REQUIRE(list[2] == Instruction{Op::forward, 1, 0});
  std::rotate(list.begin(), list.begin() + 2, list.begin() + 3);
  CHECK(refusal(schedule).empty());
}

TEST_CASE("crossed messages are refused although every value is sent") {
  auto schedule = forward_schedule(2, 2);
  auto& list = schedule.instructions[0];
  std::swap(list[1], list[2]);  // forward 0, forward 1, send 0, send 1
  CHECK(accepted(schedule, 1));
  std::swap(list[2], list[3]);
  CHECK(contains(refusal(schedule),
                 "the next message from stage 0 comes from its instruction 2 (send_activation, "
                 "microbatch 1, chunk 0, peer 1)"));
}

TEST_CASE("a cycle of waiting stages is reported stage by stage") {
  // Stage 0 wants the gradient of microbatch 1 before it sends microbatch 1's activation.
  auto schedule = simple_schedule(2, 2, 0);
  auto& list = schedule.instructions[0];
  const auto send = list[3];
  REQUIRE(send.op == Op::send_activation);
  list.erase(list.begin() + 3);
  list.insert(list.begin() + 6, send);
  const auto message = refusal(schedule);
  CHECK(contains(message, "stage 0, instruction 3 (recv_gradient, microbatch 0, chunk 0, peer 1)"));
  CHECK(contains(message, "stage 1, instruction 2 (recv_activation, microbatch 1, chunk 1, peer 0)"));
  CHECK(contains(message, "wait for each other"));
}

TEST_CASE("a rendezvous hangs where both neighbours send first") {
  const auto schedule = one_forward_one_backward(4, 8, 0);
  CHECK(contains(refusal(schedule, 0), "0 send buffers"));
  CHECK(refusal(schedule, 1).empty());
}

TEST_CASE("wrong sizes are refused before they are used as indices") {
  const auto good = one_forward_one_backward(2, 2, 0);
  const auto changed = [&](auto&& change) {
    auto bad = good;
    change(bad);
    return refusal(bad);
  };
  CHECK(contains(changed([](auto& s) { s.stages = 0; }), "must be at least 1"));
  CHECK(contains(changed([](auto& s) { s.microbatches = -1; }), "must be at least 1"));
  CHECK(contains(changed([](auto& s) { s.stage_of_chunk.clear(); }), "must be at least 1"));
  CHECK(contains(changed([](auto& s) { s.stages = 3; }), "3 stages, but 2 lists"));
  CHECK(contains(changed([](auto& s) { s.stage_of_chunk[1] = 2; }), "chunk 1 is on stage 2, but there are 2 stages"));
  CHECK(contains(changed([](auto& s) { s.stage_of_chunk[1] = 0; }), "stage 1: has no chunk"));
  CHECK(contains(changed([](auto& s) { s.microbatches = 2000000000; }), "too few"));
  CHECK(contains(changed([](auto& s) { s.microbatches = 3; }), "comes before backward_weight of microbatch 2"));
  CHECK(contains(changed([](auto& s) { s.instructions[0].clear(); }), "is missing"));
}

TEST_CASE("checking takes milliseconds at 64 stages and 512 microbatches") {
  for (const auto& schedule : all_schedules(64, 512)) {
    size_t instructions = 0;
    for (const auto& list : schedule.instructions) instructions += list.size();
    const double elapsed = best_milliseconds(schedule);
    WARN(schedule.name << ": " << instructions << " instructions in " << elapsed << " ms");
    CHECK(elapsed < 250);
  }
}

TEST_CASE("checking takes linear time") {
  for (const char* name : {"interleaved", "zbv"}) {
    const double small = best_milliseconds(make_schedule({name, 16, 256}));
    const double large = best_milliseconds(make_schedule({name, 16, 4096}));
    INFO(name << ": " << small << " ms, with 16 times the microbatches " << large << " ms");
    CHECK(large < 16 * 6 * small);  // quadratic time would be 256 times as long
  }
}

}  // namespace shardline::checker_test
