#include "engine/link_times.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/clock.h"
#include "core/error.h"

namespace shardline {
namespace {

constexpr int kRepetitions = 7;
constexpr int64_t kSizes[] = {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 25};  // bytes

// What a rank does once to move a tensor of so many elements. Called on every rank of the world.
using Operation = std::function<std::function<void()>(int64_t elements)>;

LinkMeasurement measure(const std::string& group, int ranks, const std::string& operation, Communicator& world,
                        const Operation& operation_of, const std::function<void()>& step_done) {
  LinkMeasurement link{.group = group, .operation = operation, .ranks = ranks, .bytes = {}, .seconds = {}};
  for (const int64_t size : kSizes) {
    const int64_t elements = (size / 4 + ranks - 1) / ranks * ranks;
    const auto run = operation_of(elements);
    std::vector<double> seconds;
    for (int repetition = 0; repetition <= kRepetitions; ++repetition) {  // the first one warms up
      world.barrier();
      const double start = steady_seconds();
      run();
      if (repetition > 0) seconds.push_back(steady_seconds() - start);
    }
    std::sort(seconds.begin(), seconds.end());
    auto slowest = at::tensor({seconds[kRepetitions / 2]}, at::kDouble);
    world.all_reduce(slowest, {.op = ReduceOp::max, .what = "measured time"})->wait();
    link.bytes.push_back(elements * 4);
    link.seconds.push_back(slowest.item<double>());
    step_done();
  }
  return link;
}

}  // namespace

void measure_links(const RankGroups& groups, at::Device device, Profile& profile,
                   const std::function<void(int64_t, int64_t)>& progress) {
  const auto tensor = [&](int64_t elements) { return at::zeros({elements}, at::TensorOptions(device)); };
  std::vector<std::tuple<std::string, Communicator*>> kinds;
  if (groups.mesh.t() > 1) kinds.emplace_back("tp", groups.tp.get());
  if (groups.mesh.d() > 1) kinds.emplace_back("rdp", groups.rdp.get());
  const auto total = static_cast<int64_t>(std::size(kSizes) * (3 * kinds.size() + (groups.mesh.p() > 1 ? 1 : 0)));
  int64_t done = 0;
  const auto step_done = [&] { progress(++done, total); };

  for (const auto& [name, group] : kinds) {
    Communicator& comm = *group;
    const int ranks = comm.size();
    const auto add = [&, name = name](const char* operation, const Operation& operation_of) {
      profile.links.push_back(measure(name, ranks, operation, *groups.world, operation_of, step_done));
    };
    add("all_reduce", [&](int64_t elements) {
      return [&comm, whole = tensor(elements)] { comm.all_reduce(whole)->wait(); };
    });
    add("all_gather", [&](int64_t elements) {
      return [&comm, whole = tensor(elements), part = tensor(elements / ranks)] { comm.all_gather(whole, part)->wait(); };
    });
    add("reduce_scatter", [&](int64_t elements) {
      return [&comm, whole = tensor(elements), part = tensor(elements / ranks)] {
        comm.reduce_scatter(part, whole)->wait();
      };
    });
  }
  if (groups.mesh.p() == 1) return;
  // There and back between stages 0 and 1, 2 and 3, ...: half of it is one message.
  Communicator& pp = *groups.pp;
  const int stage = groups.at.p, partner = stage ^ 1;
  const bool takes_part = partner < groups.mesh.p();
  const auto there_and_back = [&](int64_t elements) {
    return [&, message = tensor(elements)] {
      if (!takes_part) return;
      if (stage < partner) pp.send(message, partner)->wait();
      pp.recv(message, partner)->wait();
      if (stage > partner) pp.send(message, partner)->wait();
    };
  };
  auto link = measure("pp", 2, "send", *groups.world, there_and_back, step_done);
  for (double& seconds : link.seconds) seconds /= 2;
  profile.links.push_back(std::move(link));
}

}  // namespace shardline
