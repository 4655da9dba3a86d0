#include "tests/core/comm/communicator_suite.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <xxhash.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>

#include "core/error.h"

namespace shardline::testing {
namespace {

const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt};

// Small whole numbers, which are exact in every type: element i of rank r.
at::Tensor ramp(int64_t n, int rank, at::ScalarType type) {
  return at::arange(n, at::kLong).remainder(7).add(rank).to(type);
}

// Numbers of very different sizes, so that a different order of addition gives different bits.
at::Tensor uneven(int64_t n, int rank, at::ScalarType type) {
  at::Tensor values = at::empty({n}, at::kDouble);
  uint64_t state = 0x9e3779b97f4a7c15ull * (rank + 1);
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const double fraction = static_cast<double>(state >> 11) / 9007199254740992.0 - 0.5;
    values.mutable_data_ptr<double>()[i] = std::ldexp(fraction, static_cast<int>((state >> 3) % 40) - 26);
  }
  const bool whole = type == at::kLong || type == at::kInt;
  return values.mul(type == at::kLong ? 1e12 : whole ? 1e4 : 1).to(type);
}

// Computes the expected result with the simplest loop.
at::Tensor sum_in_order(const std::vector<at::Tensor>& inputs) {
  const at::ScalarType type = inputs[0].scalar_type();
  const bool half = type == at::kBFloat16 || type == at::kHalf;
  const at::ScalarType wide = half ? at::kFloat : type == at::kInt ? at::kLong : type;
  at::Tensor sum = inputs[0].to(wide).clone();
  for (size_t r = 1; r < inputs.size(); ++r) sum.add_(inputs[r].to(wide));
  return sum.to(type);
}

// Odd lengths, and lengths around the largest that any communicator moves in one piece (256 KiB).
const std::vector<int64_t> kDigestSizes = {1, 3, 1000, 32768, 65535, 65537, 70001, 262145};

uint64_t digest(uint64_t seed, const at::Tensor& tensor) {
  return XXH64(tensor.const_data_ptr(), tensor.nbytes(), seed);
}

void all_reduce_adds(Communicator& comm) {
  for (const auto type : kTypes)
    for (const int64_t n : {0, 1, 5, 64, 1023, 100003}) {
      const at::Tensor tensor = ramp(n, comm.rank(), type);
      comm.all_reduce(tensor)->wait();
      std::vector<at::Tensor> all;
      for (int r = 0; r < comm.size(); ++r) all.push_back(ramp(n, r, type));
      EXPECT(at::equal(tensor, sum_in_order(all)), type, " x ", n);
    }
}

void all_reduce_finds_the_largest(Communicator& comm) {
  for (const auto type : kTypes) {
    const at::Tensor tensor = ramp(77, comm.rank(), type);
    comm.all_reduce(tensor, {.op = ReduceOp::max})->wait();
    EXPECT(at::equal(tensor, ramp(77, comm.size() - 1, type)), type);
  }
  const at::Tensor negative = at::full({3}, -1.0 - comm.rank(), at::kFloat);
  comm.all_reduce(negative, {.op = ReduceOp::max})->wait();
  EXPECT(at::equal(negative, at::full({3}, -1.0, at::kFloat)));
  const at::Tensor one_is_nan = at::full({2}, comm.rank() == comm.size() - 1 ? NAN : 5.0, at::kFloat);
  comm.all_reduce(one_is_nan, {.op = ReduceOp::max})->wait();
  EXPECT(std::isnan(one_is_nan.const_data_ptr<float>()[1]));
}

void additions_come_in_rank_order(Communicator& comm) {
  EXPECT(reduction_digest(comm) == expected_reduction_digest(comm.size()));
}

void reduce_scatter_gives_each_its_part(Communicator& comm) {
  for (const auto type : kTypes)
    for (const int64_t part : {0, 1, 7, 40001}) {
      std::vector<at::Tensor> inputs;
      for (int r = 0; r < comm.size(); ++r) inputs.push_back(uneven(part * comm.size(), r, type));
      const at::Tensor expected = sum_in_order(inputs).narrow(0, part * comm.rank(), part);
      const at::Tensor output = at::empty({part}, type);
      comm.reduce_scatter(output, inputs[comm.rank()])->wait();
      EXPECT(at::equal(output, expected), type, " x ", part);
      // In place: the output is this rank's part of the input.
      const at::Tensor input = inputs[comm.rank()];
      const at::Tensor inside = input.narrow(0, part * comm.rank(), part);
      comm.reduce_scatter(inside, input)->wait();
      EXPECT(at::equal(inside, expected), "in place ", type, " x ", part);
    }
}

void all_gather_keeps_rank_order(Communicator& comm) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kByte, at::kBool})
    for (const int64_t n : {0, 1, 9, 50021}) {
      const at::Tensor output = at::zeros({comm.size(), n}, type);
      comm.all_gather(output, ramp(n, comm.rank(), type))->wait();
      for (int r = 0; r < comm.size(); ++r) EXPECT(at::equal(output[r], ramp(n, r, type)), type, " x ", n);
      const at::Tensor whole = at::zeros({comm.size(), n}, type);
      whole[comm.rank()].copy_(ramp(n, comm.rank(), type));
      comm.all_gather(whole, whole[comm.rank()])->wait();
      EXPECT(at::equal(whole, output), "in place ", type, " x ", n);
    }
}

void all_to_all_transposes(Communicator& comm) {
  const int n = comm.size();
  for (const auto type : kTypes)
    for (const int64_t part : {0, 1, 3, 30011}) {
      at::Tensor input = at::empty({n, part}, type);
      for (int to = 0; to < n; ++to) input[to].copy_(ramp(part, 10 * comm.rank() + to, type));
      const at::Tensor output = at::empty({n, part}, type);
      comm.all_to_all(output, input)->wait();
      for (int from = 0; from < n; ++from)
        EXPECT(at::equal(output[from], ramp(part, 10 * from + comm.rank(), type)), type, " x ", part);
    }
}

void broadcast_reaches_all(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root)
    for (const int64_t n : {0, 1, 33, 300007}) {
      const at::Tensor tensor = ramp(n, comm.rank(), at::kBFloat16);
      comm.broadcast(tensor, root)->wait();
      EXPECT(at::equal(tensor, ramp(n, root, at::kBFloat16)), "root ", root, " x ", n);
    }
}

// Waits only for the root: if ranks waited for all others in a broadcast, they would hang when another rank needs them.
void broadcasts_follow_each_other(Communicator& comm) {
  std::vector<at::Tensor> tensors;
  std::vector<WorkPtr> works;
  for (int i = 0; i < 3 * comm.size(); ++i) {
    tensors.push_back(ramp(200003 - i, comm.rank() + i, at::kInt));
    works.push_back(comm.broadcast(tensors.back(), i % comm.size()));
  }
  for (const WorkPtr& work : works) work->wait();
  for (int i = 0; i < 3 * comm.size(); ++i)
    EXPECT(at::equal(tensors[i], ramp(200003 - i, i % comm.size() + i, at::kInt)), "broadcast ", i);
}

void messages_of_a_pair_keep_their_order(Communicator& comm) {
  if (comm.size() == 1) return;
  const int next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
  const std::vector<int64_t> sizes = {5, 0, 100001, 1, 20000, 3};
  std::vector<WorkPtr> sends, receives;
  std::vector<at::Tensor> sent, received;
  for (size_t i = 0; i < sizes.size(); ++i) {
    received.push_back(at::zeros({sizes[i]}, at::kFloat));
    sent.push_back(ramp(sizes[i], 10 * comm.rank() + static_cast<int>(i), at::kFloat));
  }
  // Half of the receives are posted before the sends and half after them; all are waited for in reverse order.
  for (size_t i = 0; i < 3; ++i) receives.push_back(comm.recv(received[i], previous));
  for (const at::Tensor& tensor : sent) sends.push_back(comm.send(tensor, next));
  for (size_t i = 3; i < sizes.size(); ++i) receives.push_back(comm.recv(received[i], previous));
  for (size_t i = sizes.size(); i-- > 0;) receives[i]->wait();
  for (const WorkPtr& work : sends) work->wait();
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT(receives[i]->poll());
    EXPECT(at::equal(received[i], ramp(sizes[i], 10 * previous + static_cast<int>(i), at::kFloat)), "message ", i);
  }
}

// Operations of all kinds, some of them larger than what is moved in one piece, waited for in reverse order.
void many_operations_at_once(Communicator& comm) {
  const int n = comm.size(), me = comm.rank();
  std::vector<WorkPtr> works;
  std::vector<std::pair<at::Tensor, at::Tensor>> results;  // the expected results
  const auto add = [&](const WorkPtr& work, const at::Tensor& result, const at::Tensor& expected) {
    works.push_back(work);
    results.emplace_back(result, expected);
  };
  for (int i = 0; i < 20; ++i) {
    const int64_t part = 1 + 7919 * i;
    const at::Tensor input = ramp(n * part, me + i, at::kFloat);
    const at::Tensor sum = ramp(n * part, i, at::kFloat).mul(n).add(n * (n - 1) / 2);
    if (i % 5 == 0) add(comm.all_reduce(input), input, sum);
    if (i % 5 == 1) {
      const at::Tensor output = at::empty({part}, at::kFloat);
      add(comm.reduce_scatter(output, input), output, sum.narrow(0, me * part, part));
    }
    if (i % 5 == 2) {
      const at::Tensor output = at::empty({n, n * part}, at::kFloat), expected = at::empty_like(output);
      for (int r = 0; r < n; ++r) expected[r].copy_(ramp(n * part, r + i, at::kFloat));
      add(comm.all_gather(output, input), output, expected);
    }
    if (i % 5 == 3) {
      const at::Tensor output = at::empty({n * part}, at::kFloat), expected = at::empty_like(output);
      for (int r = 0; r < n; ++r)
        expected.narrow(0, r * part, part).copy_(ramp(n * part, r + i, at::kFloat).narrow(0, me * part, part));
      add(comm.all_to_all(output, input), output, expected);
    }
    if (i % 5 == 4) add(comm.broadcast(input, i % n), input, ramp(n * part, i % n + i, at::kFloat));
  }
  for (size_t i = works.size(); i-- > 0;) works[i]->wait();
  for (size_t i = 0; i < works.size(); ++i) EXPECT(at::equal(results[i].first, results[i].second), "operation ", i);
}

// The time between issuing an operation and waiting for it does not count.
void limits_run_from_the_wait(Communicator& comm) {
  if (comm.size() == 1) return;
  using namespace std::chrono_literals;
  const CommOptions short_limit{.timeout = 600ms};
  const at::Tensor sum = at::full({3}, 1, at::kFloat), message = at::zeros({3}, at::kFloat);
  comm.barrier();
  if (comm.rank() == 0) {
    const WorkPtr reduced = comm.all_reduce(sum, short_limit);
    const WorkPtr received = comm.recv(message, comm.size() - 1, short_limit);
    std::this_thread::sleep_for(800ms);
    received->wait();
    reduced->wait();
  } else {
    std::this_thread::sleep_for(950ms);
    WorkPtr sent;
    if (comm.rank() == comm.size() - 1) sent = comm.send(at::full({3}, 7, at::kFloat), 0);
    comm.all_reduce(sum)->wait();
    if (sent) sent->wait();
  }
  EXPECT(at::equal(sum, at::full({3}, comm.size(), at::kFloat)));
  EXPECT(comm.rank() != 0 || at::equal(message, at::full({3}, 7, at::kFloat)));
}

void an_expired_wait_states_both_times(Communicator& comm) {
  if (comm.size() == 1) return;
  using namespace std::chrono_literals;
  const at::Tensor message = at::zeros({2, 3}, at::kFloat);
  if (comm.rank() == 0) {
    const WorkPtr late = comm.recv(message, comm.size() - 1, {.what = "recv_gradient", .timeout = 100ms});
    std::this_thread::sleep_for(500ms);
    const std::string text = failure_of([&] { late->wait(); });
    const size_t times = text.find("failed after a wait of ");
    EXPECT(times != std::string::npos, text);
    double waited = 0, limit = 0, posted = 0;
    std::sscanf(text.c_str() + times, "failed after a wait of %lf s (limit %lf s), %lf s after it was posted", &waited,
                &limit, &posted);
    EXPECT(waited >= 0.1 && limit == 0.1 && posted >= waited + 0.4, text);
    EXPECT(!failure_of([&] { late->wait(); }).empty(), "the limit has passed for good");
  }
  comm.barrier();
  if (comm.rank() == comm.size() - 1) comm.send(message, 0)->wait();  // so that nothing is in progress any more
}

void groups_are_independent(Communicator& comm) {
  const auto parity = comm.split(comm.rank() % 2, "parity");
  EXPECT(parity->size() == (comm.size() + 1 - comm.rank() % 2) / 2);
  EXPECT(parity->rank() == comm.rank() / 2);
  EXPECT(parity->name() == "parity");
  const auto low = comm.split(comm.rank() < comm.size() / 2 ? 5 : -5, "half");
  // Even ranks start the operations in one order, odd ranks in the other.
  const at::Tensor in_parity = ramp(1001, comm.rank(), at::kFloat), in_half = ramp(777, comm.rank(), at::kDouble);
  WorkPtr first, second;
  if (comm.rank() % 4 < 2) {
    first = parity->all_reduce(in_parity);
    second = low->all_reduce(in_half);
  } else {
    second = low->all_reduce(in_half);
    first = parity->all_reduce(in_parity);
  }
  second->wait();
  first->wait();
  std::vector<at::Tensor> expected;
  for (int r = comm.rank() % 2; r < comm.size(); r += 2) expected.push_back(ramp(1001, r, at::kFloat));
  EXPECT(at::equal(in_parity, sum_in_order(expected)));
  const auto again = parity->split(0, "again");
  EXPECT(again->size() == parity->size() && again->rank() == parity->rank());
  const at::Tensor one = at::full({1}, 1, at::kLong);
  again->all_reduce(one)->wait();
  EXPECT(one.const_data_ptr<int64_t>()[0] == parity->size());
}

void helpers_carry_host_values(Communicator& comm) {
  const at::Tensor all = gather_to_all(comm, at::full({2, 3}, comm.rank(), at::kInt));
  EXPECT(all.sizes() == at::IntArrayRef({comm.size(), 2, 3}));
  for (int r = 0; r < comm.size(); ++r) EXPECT(at::equal(all[r], at::full({2, 3}, r, at::kInt)));
  const auto text_of = [](int rank) { return rank % 3 == 1 ? std::string() : std::string(rank * 11, 'a' + rank); };
  const std::vector<std::string> texts = gather_strings(comm, text_of(comm.rank()));
  for (int r = 0; r < comm.size(); ++r) EXPECT(texts.at(r) == text_of(r));
  const int root = comm.size() - 1;
  EXPECT(broadcast_string(comm, comm.rank() == root ? std::string("a\0b", 3) : "other", root) ==
         std::string("a\0b", 3));
  EXPECT(broadcast_string(comm, "", 0).empty());
}

void barriers_hold(Communicator& comm) {
  for (int i = 0; i < 5; ++i) comm.barrier();
}

void nonsense_is_refused(Communicator& comm) {
  const auto refused = [](const auto& call) {
    try {
      call();
    } catch (const InvariantError&) {
      return true;
    }
    return false;
  };
  const at::Tensor ten = at::zeros({10}, at::kFloat), odd = at::zeros({10 * comm.size() + 1}, at::kFloat);
  EXPECT(refused([&] { comm.all_reduce(at::zeros({4, 5}, at::kFloat).t()); }));
  EXPECT(refused([&] { comm.all_reduce(at::zeros({4}, at::kBool)); }));
  EXPECT(refused([&] { comm.all_gather(odd, ten); }));
  EXPECT(refused([&] { comm.reduce_scatter(ten, odd); }));
  EXPECT(refused([&] { comm.all_gather(at::zeros({10 * comm.size()}, at::kDouble), ten); }));
  EXPECT(refused([&] { comm.all_to_all(ten, ten); }));
  EXPECT(refused([&] { comm.send(ten, comm.size()); }));
  EXPECT(refused([&] { comm.broadcast(ten, -1); }));
  comm.barrier();  // none of these was counted as an operation
}

}  // namespace

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const DistributedError& error) {
    return error.what();
  }
  return "";
}

std::vector<CommBehaviour> comm_mismatches() {
  using Call = std::function<WorkPtr(Communicator&)>;
  const auto floats = [](int64_t n) { return at::zeros({n}, at::kFloat); };
  // Arrays have 8 elements per rank wherever the order of addition makes a difference.
  const Call reduce = [=](Communicator& comm) { return comm.all_reduce(floats(8 * comm.size())); };
  const Call reduce_part = [=](Communicator& comm) { return comm.all_reduce(floats(8)); };
  const Call reduce_max = [=](Communicator& comm) {
    return comm.all_reduce(floats(8 * comm.size()), {.op = ReduceOp::max});
  };
  const Call reduce_ints = [](Communicator& comm) { return comm.all_reduce(at::zeros({8 * comm.size()}, at::kInt)); };
  const Call scatter = [=](Communicator& comm) { return comm.reduce_scatter(floats(8), floats(8 * comm.size())); };
  const Call gather = [=](Communicator& comm) { return comm.all_gather(floats(8 * comm.size()), floats(8)); };
  const Call gather_ints = [](Communicator& comm) {
    return comm.all_gather(at::zeros({8 * comm.size()}, at::kInt), at::zeros({8}, at::kInt));
  };
  const Call transpose = [=](Communicator& comm) {
    return comm.all_to_all(floats(8 * comm.size()), floats(8 * comm.size()));
  };
  const Call from_first = [=](Communicator& comm) { return comm.broadcast(floats(8), 0); };
  const Call from_last = [=](Communicator& comm) { return comm.broadcast(floats(8), comm.size() - 1); };
  const Call barrier = [](Communicator& comm) -> WorkPtr {
    comm.barrier();
    return nullptr;
  };
  struct Pair {
    const char* name;
    Call most, other;
  };
  const std::vector<Pair> pairs = {{"all_reduce and the broadcast of a root", reduce, from_first},
                                   {"all_reduce of a part and the broadcast of a root", reduce_part, from_first},
                                   {"reduce_scatter and the broadcast of a root", scatter, from_first},
                                   {"all_gather and the broadcast of a root", gather, from_first},
                                   {"all_to_all and the broadcast of a root", transpose, from_first},
                                   {"barrier and the broadcast of a root", barrier, from_first},
                                   {"broadcasts from two roots", from_last, from_first},
                                   {"all_reduce and barrier", reduce, barrier},
                                   {"all_reduce of two lengths", reduce, reduce_part},
                                   {"all_reduce of two types of equal size", reduce, reduce_ints},
                                   {"all_reduce by sum and by maximum", reduce, reduce_max},
                                   {"all_reduce and reduce_scatter", reduce, scatter},
                                   {"all_gather of two types of equal size", gather, gather_ints},
                                   {"all_gather and all_to_all", gather, transpose},
                                   {"reduce_scatter and all_to_all", scatter, transpose}};
  std::vector<CommBehaviour> mismatches;
  for (const Pair& pair : pairs)
    for (const bool first_is_other : {true, false})
      mismatches.push_back({cat(pair.name, first_is_other ? ", rank 0 against all" : ", all against the last rank"),
                            [=](Communicator& comm) {
                              const bool is_odd = comm.rank() == (first_is_other ? 0 : comm.size() - 1);
                              const WorkPtr work = is_odd ? pair.other(comm) : pair.most(comm);
                              if (work) work->wait();
                            }});
  return mismatches;
}

uint64_t reduction_digest(Communicator& comm) {
  uint64_t bits = 0;
  for (const auto type : kTypes)
    for (const int64_t n : kDigestSizes) {
      const at::Tensor tensor = uneven(n, comm.rank(), type);
      const at::Tensor input = tensor.repeat({comm.size()}), part = at::empty_like(tensor);
      comm.all_reduce(tensor)->wait();
      bits = digest(bits, tensor);
      comm.reduce_scatter(part, input)->wait();
      bits = digest(bits, part);
    }
  return bits;
}

uint64_t expected_reduction_digest(int n_ranks) {
  uint64_t bits = 0;
  for (const auto type : kTypes)
    for (const int64_t n : kDigestSizes) {
      std::vector<at::Tensor> inputs;
      for (int r = 0; r < n_ranks; ++r) inputs.push_back(uneven(n, r, type));
      const at::Tensor sum = sum_in_order(inputs);
      bits = digest(digest(bits, sum), sum);
    }
  return bits;
}

std::vector<CommBehaviour> comm_behaviours() {
  return {{"all_reduce adds", all_reduce_adds},
          {"all_reduce finds the largest", all_reduce_finds_the_largest},
          {"additions come in rank order", additions_come_in_rank_order},
          {"reduce_scatter gives each its part", reduce_scatter_gives_each_its_part},
          {"all_gather keeps rank order", all_gather_keeps_rank_order},
          {"all_to_all transposes", all_to_all_transposes},
          {"broadcast reaches all", broadcast_reaches_all},
          {"broadcasts follow each other", broadcasts_follow_each_other},
          {"messages of a pair keep their order", messages_of_a_pair_keep_their_order},
          {"many operations at once", many_operations_at_once},
          {"limits run from the wait", limits_run_from_the_wait},
          {"an expired wait states both times", an_expired_wait_states_both_times},
          {"groups are independent", groups_are_independent},
          {"helpers carry host values", helpers_carry_host_values},
          {"barriers hold", barriers_hold},
          {"nonsense is refused", nonsense_is_refused}};
}

}  // namespace shardline::testing
