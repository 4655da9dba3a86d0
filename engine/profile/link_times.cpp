#include "engine/profile/link_times.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/comm/clock.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

constexpr int kRoundTrips = 7;
constexpr int64_t kSizes[] = {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26};  // bytes
constexpr int64_t kElementBytes = 4;

// Returns what a rank does to move a tensor of this many elements once. Called on every rank of the world.
using Operation = std::function<std::function<void()>(int64_t elements)>;

double slowest(Communicator& world, double seconds) {
  auto tensor = at::tensor({seconds}, at::kDouble);
  world.all_reduce(tensor, {.op = ReduceOp::max, .what = "measured time"})->wait();
  return tensor.item<double>();
}

// Median over repetitions, of the slowest rank; the first one warms up.
double seconds_of(Communicator& world, at::Device device, const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int repetition = 0; repetition <= kRoundTrips; ++repetition) {
    world.barrier();
    const double start = steady_seconds();
    run();
    wait_for_device(device, "the end of what is timed");
    if (repetition > 0) seconds.push_back(steady_seconds() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return slowest(world, seconds[kRoundTrips / 2]);
}

class Links {
 public:
  Links(const RankGroups& groups, at::Device device, Profile& profile,
        const std::function<void(int64_t, int64_t)>& progress)
      : groups_(groups), device_(device), profile_(profile), progress_(progress) {
    const bool pp = groups.mesh.p() > 1, tp = groups.mesh.t() > 1, rdp = groups.mesh.d() > 1;
    total_ = std::ssize(kSizes) * (2 * pp + 3 * tp + 3 * rdp);
  }

  void measure() {
    if (groups_.mesh.t() > 1) collectives("tp", *groups_.tp);
    if (groups_.mesh.d() > 1) {
      const size_t first = profile_.links.size();
      collectives("rdp", *groups_.rdp);
      profile_.links[first].hidden = hidden_share(*groups_.rdp);
    }
    if (groups_.mesh.p() > 1) {
      all_reduce("pp", *groups_.pp);  // reduces tied gradients
      messages(*groups_.pp);
    }
  }

 private:
  at::Tensor tensor(int64_t elements) const { return at::zeros({elements}, at::TensorOptions(device_)); }

  void add(const std::string& group, int ranks, const std::string& operation, const Operation& operation_of) {
    LinkMeasurement link{.group = group, .operation = operation, .ranks = ranks, .bytes = {}, .seconds = {}};
    for (const int64_t size : kSizes) {
      const int64_t elements = (size / kElementBytes + ranks - 1) / ranks * ranks;
      link.bytes.push_back(elements * kElementBytes);
      link.seconds.push_back(seconds_of(*groups_.world, device_, operation_of(elements)));
      progress_(++done_, total_);
    }
    profile_.links.push_back(std::move(link));
  }

  void all_reduce(const std::string& name, Communicator& comm) {
    add(name, comm.size(), "all_reduce",
        [&](int64_t elements) { return [&comm, whole = tensor(elements)] { comm.all_reduce(whole)->wait(); }; });
  }

  void collectives(const std::string& name, Communicator& comm) {
    all_reduce(name, comm);
    add(name, comm.size(), "all_gather", [&](int64_t elements) {
      return [&comm, whole = tensor(elements), part = tensor(elements / comm.size())] {
        comm.all_gather(whole, part)->wait();
      };
    });
    add(name, comm.size(), "reduce_scatter", [&](int64_t elements) {
      return [&comm, whole = tensor(elements), part = tensor(elements / comm.size())] {
        comm.reduce_scatter(part, whole)->wait();
      };
    });
  }

  // A message from stage 0 to 1, 2 to 3, ... and back takes twice the time of one message.
  void messages(Communicator& pp) {
    const int stage = groups_.coordinates.p, partner = stage ^ 1;
    add("pp", 2, "send", [&](int64_t elements) {
      return [&, message = tensor(elements)] {
        if (partner >= groups_.mesh.p()) return;
        if (stage < partner) pp.send(message, partner)->wait();
        pp.recv(message, partner)->wait();
        if (stage > partner) pp.send(message, partner)->wait();
      };
    });
    for (double& seconds : profile_.links.back().seconds) seconds /= 2;
  }

  // Runs products that take about as long as the largest all-reduce, alone and together with it.
  double hidden_share(Communicator& comm) const {
    const auto gradients = tensor(kSizes[std::size(kSizes) - 1] / kElementBytes);
    const auto x = at::zeros({256, 768}, at::TensorOptions(device_)), w = at::zeros({768, 768}, x.options());
    auto y = linear_forward(x, w, {});
    int products = 1;
    const auto compute = [&] {
      for (int i = 0; i < products; ++i) linear_forward_out(y, x, w, {});
    };
    Communicator& world = *groups_.world;
    const double reduction = seconds_of(world, device_, [&] { comm.all_reduce(gradients)->wait(); });
    products = std::max<int>(1, 1.5 * reduction / seconds_of(world, device_, compute));
    const double alone = seconds_of(world, device_, compute);
    const double both = seconds_of(world, device_, [&] {
      const auto work = comm.all_reduce(gradients);
      compute();
      work->wait();
    });
    return std::clamp((alone + reduction - both) / std::min(alone, reduction), 0.0, 1.0);
  }

  const RankGroups& groups_;
  const at::Device device_;
  Profile& profile_;
  const std::function<void(int64_t, int64_t)>& progress_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

void measure_links(const RankGroups& groups, at::Device device, Profile& profile,
                   const std::function<void(int64_t, int64_t)>& progress) {
  Links(groups, device, profile, progress).measure();
}

}  // namespace shardline
