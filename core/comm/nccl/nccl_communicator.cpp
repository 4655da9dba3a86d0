#include "core/comm/nccl/nccl_communicator.h"

#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>

#include "core/comm/nccl/nccl_channel.h"
#include "core/comm/timeouts.h"
#include "core/device/accelerator.h"
#include "core/memory/tensor_data.h"

namespace shardline {
namespace {

class NcclWork : public Work {
 public:
  NcclWork(NcclChannelPtr channel, NcclBatchPtr batch, CommRequest request)
      : channel_(std::move(channel)), batch_(std::move(batch)), request_(std::move(request)) {
    request_.let_tensors_go();  // the batch keeps them alive
  }

  bool poll() override { return channel_->advance(batch_); }
  void start() override { channel_->start(batch_); }

 protected:
  void await(TimePoint) override { channel_->wait_for(batch_, request_); }
  bool waits_on_stream() const override { return true; }

 private:
  NcclChannelPtr channel_;
  NcclBatchPtr batch_;
  CommRequest request_;
};

class NcclCommunicator : public CommunicatorBase {
 public:
  NcclCommunicator(NcclWorldPtr world, void* comm, CommunicatorPtr control, CommIdentity identity)
      : CommunicatorBase(std::move(identity)),
        world_(std::move(world)),
        control_(std::move(control)),
        channel_(std::make_shared<NcclChannel>(world_, comm, this->identity())) {}

  std::shared_ptr<Communicator> split(int color, const std::string& group_name) override;

  void abort(const std::string& reason) override {
    const std::string message = cat("rank ", identity()->members[rank()], " aborted: ", reason);
    control_->abort(message);  // first, so that the message is sent even if aborting NCCL hangs
    world_->fail(message);
  }

  // NCCL connects the ranks of a group in the group's first collective, during which the CUDA runtime may wait for all
  // work on the device. It is safe to connect now, because no work on the device waits for another rank yet.
  void connect() {
    if (size() > 1) barrier({.what = "connecting a new group", .timeout = timeouts().start_up});
  }

 protected:
  WorkPtr start(CommRequest request) override {
    const bool is_barrier = request.op == CommOp::barrier;
    if (is_barrier)
      request.input = request.output = at::zeros({1}, at::TensorOptions(at::kInt).device(world_->device()));
    for (const at::Tensor& tensor : {request.input, request.output})
      SL_ASSERT(!tensor.defined() || tensor.device() == world_->device(), name_of(request.op), " in group ", name(),
                request.what.empty() ? "" : cat(" (for ", request.what, ")"), ": rank ", identity()->members[rank()],
                "'s NCCL communicators carry tensors on ", world_->device(), ", not on ", tensor.device());
    const bool is_message = request.op == CommOp::send || request.op == CommOp::recv;
    const NcclBatchPtr batch = is_message ? channel_->add_message(request) : channel_->launch_collective(request);
    const auto work = std::make_shared<NcclWork>(channel_, batch, std::move(request));
    return is_barrier ? ended(work) : work;
  }

 private:
  // A barrier is the only operation that the host waits for.
  WorkPtr ended(const WorkPtr& work) {
    work->wait();
    {
      const HostWait host_wait("a barrier of ranks with devices of their own");
      world_->current_stream().synchronize();
    }
    if (const std::string failure = world_->failure(); !failure.empty()) throw DistributedError(failure);
    return finished_work();
  }

  NcclWorldPtr world_;
  CommunicatorPtr control_;
  NcclChannelPtr channel_;
};

// NCCL creates a communicator in the background. Waits until it exists, and cleans up if it cannot be created. result:
// what the creating call returned; if it is an error, there may be no communicator to query.
void establish(NcclWorld& world, void* comm, const CommIdentity& identity, bool is_new, int result) {
  if (is_new && comm != nullptr) world.add(comm);  // to be aborted with the others
  const TimeLimit limit = timeouts().start_up;
  auto state = world.state_of(comm, result);
  if (state.error.empty()) state = world.settle(comm, limit);
  if (state.error.empty()) return;
  if (state.remote) NcclWorld::let_others_speak();
  world.end_job(cat(
      "rank ", identity.members[identity.rank], " on host ", host_name(), ": the NCCL group ", identity.name, " of ",
      identity.size(), " ranks could not be created: ", state.error, " (limit ", limit.time.count() / 1000.0,
      " s; NCCL_DEBUG=INFO shows details, NCCL_SOCKET_IFNAME selects the network) [", identity.library, "]"));
  throw DistributedError(world.failure());
}

std::shared_ptr<Communicator> NcclCommunicator::split(int color, const std::string& group_name) {
  channel_->flush();
  const std::vector<int> ranks = ranks_of_color(*control_, color);
  CommunicatorPtr control = control_->split(color, group_name);
  CommIdentity part = identity_of_part(ranks, group_name);
  // NCCL requires non-negative colors; the lowest rank of the group serves as one.
  void* comm = nullptr;
  int result = kNcclSuccess;
  world_->use([&] { result = world_->api().split(channel_->comm(), ranks.front(), rank(), &comm); });
  establish(*world_, channel_->comm(), part, false, result);
  establish(*world_, comm, part, true, kNcclSuccess);
  const auto made = std::make_shared<NcclCommunicator>(world_, comm, std::move(control), std::move(part));
  made->connect();
  return made;
}

// Checks that all ranks load the same version, and that it is not older than the one this program was compiled
// for.
std::string checked_library(Communicator& control, const NcclApi& api) {
  const at::Tensor mine = at::zeros({1}, at::kLong);
  int version = 0;
  api.get_version(&version);
  mine.mutable_data_ptr<int64_t>()[0] = version;
  const at::Tensor all = gather_to_all(control, mine);
  const int64_t* const versions = all.const_data_ptr<int64_t>();
  for (int rank = 1; rank < control.size(); ++rank)
    if (versions[rank] != versions[0])
      throw DistributedError(cat("the ranks load different versions of NCCL: rank 0 has ",
                                 nccl_version_text(versions[0]), ", rank ", rank, " has ",
                                 nccl_version_text(versions[rank]),
                                 "; install the same version on all hosts, and check LD_LIBRARY_PATH"));
  if (version / 100 < api.built_version / 100)
    throw RunError(cat("this build of shardline was compiled for NCCL ", nccl_version_text(api.built_version),
                       ", but the system loads the older ", nccl_version_text(version),
                       "; install a newer one, or check LD_LIBRARY_PATH"));
  return cat("NCCL ", nccl_version_text(version));
}

// Broadcasts rank 0's unique id.
NcclId shared_id(Communicator& control, const NcclApi& api, const std::string& library) {
  // The first byte of the message says whether there is an id, so that all ranks learn of a failure.
  NcclId id{};
  const at::Tensor message = at::zeros({1 + std::ssize(id)}, at::kByte);
  char* const bytes = mutable_data_of<char>(message);
  if (control.rank() == 0) {
    bytes[0] = api.get_unique_id(&id);
    std::memcpy(bytes + 1, id.data(), id.size());
  }
  control.broadcast(message, 0, {.what = "NCCL unique id", .timeout = timeouts().start_up})->wait();
  if (bytes[0] != kNcclSuccess)
    throw DistributedError(
        cat("NCCL cannot create a unique id on rank 0: ", nccl_result_text(bytes[0]), " [", library, "]"));
  std::memcpy(id.data(), bytes + 1, id.size());
  return id;
}

}  // namespace

CommunicatorPtr make_nccl_world(CommunicatorPtr control, int device_index, const NcclApi& api) {
  const at::Device device(api.device_type, device_index);
  const at::Device current = c10::impl::VirtualGuardImpl(device.type()).getDevice();
  SL_ASSERT(current == device, "NCCL takes the thread's current device, which is ", current, ", not ", device);
  CommIdentity identity = CommIdentity::of_world(control->rank(), control->size(), checked_library(*control, api));
  const NcclId id = shared_id(*control, api, identity.library);

  const auto world = std::make_shared<NcclWorld>(api, device, control);
  void* comm = nullptr;
  int result = kNcclSuccess;
  world->use([&] { result = api.init_rank(&comm, identity.size(), &id, identity.rank); });
  establish(*world, comm, identity, true, result);
  const auto made = std::make_shared<NcclCommunicator>(world, comm, std::move(control), std::move(identity));
  made->connect();
  return made;
}

}  // namespace shardline
