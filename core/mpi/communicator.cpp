#include <ATen/ops/empty.h>
#include <mpi.h>

#include <algorithm>

#include "core/communicator_base.h"
#include "core/flight_ring.h"
#include "core/mpi/engine.h"
#include "core/mpi/operations.h"
#include "core/mpi_communicator.h"

namespace shardline {
namespace {

using mpi::Engine;
using mpi::Lane;

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw DistributedError(cat(call, " failed: ", mpi::error_text(code)));
}

// What the groups of one world share.
struct World {
  std::shared_ptr<Engine> engine;
  MPI_Comm comm = MPI_COMM_NULL;  // a duplicate of our own: no tag of anybody else's is in it
  int sequence_bits = 0;
  int next_group = 0;  // no group of this rank has this number or a higher one

  ~World() {
    if (comm != MPI_COMM_NULL && std::uncaught_exceptions() == 0)
      engine->call([this] { MPI_Comm_free(&comm); }, "MPI_Comm_free");
  }
};
using WorldPtr = std::shared_ptr<World>;

class MpiWork : public Work {
 public:
  MpiWork(std::shared_ptr<mpi::WaitableOperation> operation, std::shared_ptr<const CommIdentity> identity,
          CommRequest request)
      : operation_(std::move(operation)), identity_(std::move(identity)), request_(std::move(request)) {}

  bool done() override { return operation_->over(); }

 protected:
  void await() override {
    if (!operation_->wait_until(request_.deadline())) {
      flight_ring().end(request_.ticket, FlightState::failed);
      throw identity_->timed_out(request_);
    }
    if (const std::string error = operation_->error(); !error.empty()) throw identity_->error(request_, error);
  }

 private:
  std::shared_ptr<mpi::WaitableOperation> operation_;
  std::shared_ptr<const CommIdentity> identity_;
  CommRequest request_;
};

// A CUDA tensor's stand-in in pinned host memory goes through MPI; wait() brings the result to the device.
class StagedWork : public Work {
 public:
  StagedWork(WorkPtr host_work, at::Tensor device_output, at::Tensor host_output)
      : host_work_(std::move(host_work)), device_(std::move(device_output)), host_(std::move(host_output)) {}

  bool done() override { return host_work_->done(); }

 protected:
  void await() override {
    host_work_->wait();
    if (host_.defined()) device_.detach().copy_(host_);
    host_.reset();
  }

 private:
  WorkPtr host_work_;
  at::Tensor device_, host_;
};

at::Tensor pinned_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(true));
}

class MpiCommunicator : public CommunicatorBase {
 public:
  MpiCommunicator(WorldPtr world, Lane lane, CommIdentity identity)
      : CommunicatorBase(std::move(identity)), world_(std::move(world)), lane_(std::move(lane)) {}

  std::shared_ptr<Communicator> split(int color, const std::string& group_name) override;
  void abort(const std::string& reason) override { world_->engine->abort(reason); }

 protected:
  WorkPtr start(CommRequest request) override {
    const at::Tensor& tensor = request.input.defined() ? request.input : request.output;
    if (tensor.defined() && !tensor.is_cpu()) return start_staged(std::move(request));
    const auto operation = mpi::make_operation(lane_, request);
    world_->engine->submit(operation);
    return std::make_shared<MpiWork>(operation, identity(), std::move(request));
  }

 private:
  WorkPtr start_staged(CommRequest request) {
    const at::Tensor device_input = request.input, device_output = request.output;
    if (device_input.defined()) {
      request.input = pinned_like(device_input);
      const bool is_overwritten = request.op == CommOp::broadcast && request.peer != rank();
      if (!is_overwritten) request.input.copy_(device_input.detach());
    }
    if (device_output.defined()) {
      const bool in_place = request.op == CommOp::all_reduce || request.op == CommOp::broadcast;
      request.output = in_place ? request.input : pinned_like(device_output);
    }
    const at::Tensor host_output = request.output;
    return std::make_shared<StagedWork>(start(std::move(request)), device_output, host_output);
  }

  WorldPtr world_;
  Lane lane_;
};

std::shared_ptr<Communicator> MpiCommunicator::split(int color, const std::string& group_name) {
  const std::vector<int> ranks = ranks_of_color(*this, color);
  // Groups of this split share no rank, so they may share a number; it must be new to every rank here.
  const at::Tensor number = at::empty({1}, at::kLong);
  number.mutable_data_ptr<int64_t>()[0] = world_->next_group;
  all_reduce(number, {.op = ReduceOp::max, .what = "split"})->wait();
  Lane lane{world_->comm, static_cast<int>(number.const_data_ptr<int64_t>()[0]), world_->sequence_bits, {}, 0};
  SL_ASSERT(lane.group < 1 << Lane::kGroupBits, "more than ", 1 << Lane::kGroupBits,
            " groups were split off one world");
  world_->next_group = lane.group + 1;
  CommIdentity part;
  part.name = group_name;
  part.library = identity()->library;
  for (const int member : ranks) {
    if (member == rank()) part.rank = lane.rank = static_cast<int>(part.members.size());
    part.members.push_back(identity()->members[member]);
  }
  lane.members = part.members;
  return std::make_shared<MpiCommunicator>(world_, std::move(lane), std::move(part));
}

// Bits that a tag leaves for sequence numbers, after group, phase and sign.
int sequence_bits(MPI_Comm comm) {
  void* value = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(comm, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
  const int largest = found ? *static_cast<int*>(value) : 32767;
  int bits = 0;
  while (bits < 16 && (int64_t{1} << (bits + 1 + 2 + Lane::kGroupBits)) - 1 <= largest) ++bits;
  if (bits < 8) throw RunError(cat("this MPI's largest tag is ", largest, "; shardline needs at least 22 bits"));
  return bits;
}

}  // namespace

void set_mpi_abort_handler(std::function<void(const std::string&)> handler) {
  mpi::abort_handler() = std::move(handler);
}

MpiWorld make_mpi_world(const void* callers_mpi_comm) {
  const auto world = std::make_shared<World>();
  world->engine = Engine::of_process();
  MpiWorld result;
  result.library = world->engine->library();
  int rank = 0, size = 0;
  const auto join = [&] {
    const MPI_Comm base = callers_mpi_comm ? *static_cast<const MPI_Comm*>(callers_mpi_comm) : MPI_COMM_WORLD;
    check(MPI_Comm_dup(base, &world->comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(world->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(world->comm, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(world->comm, &size), "MPI_Comm_size");
    world->sequence_bits = sequence_bits(world->comm);
    MPI_Comm host = MPI_COMM_NULL;
    check(MPI_Comm_split_type(world->comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
    MPI_Comm_rank(host, &result.local_rank);
    MPI_Comm_size(host, &result.local_size);
    MPI_Comm_free(&host);
    set_current_rank(rank);
  };
  world->engine->call(join, "joining the MPI world");
  set_current_rank(rank);

  CommIdentity identity;
  identity.name = "world";
  identity.rank = rank;
  identity.library = result.library;
  for (int member = 0; member < size; ++member) identity.members.push_back(member);
  Lane lane{world->comm, world->next_group++, world->sequence_bits, identity.members, rank};
  result.comm = std::make_shared<MpiCommunicator>(world, std::move(lane), std::move(identity));
  return result;
}

}  // namespace shardline
