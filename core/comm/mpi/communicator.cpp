#include <ATen/ops/empty.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "core/comm/communicator_base.h"
#include "core/comm/mpi/engine.h"
#include "core/comm/mpi/operations.h"
#include "core/comm/mpi/shared_lane.h"
#include "core/comm/mpi_communicator.h"
#include "core/device/accelerator.h"
#include "core/flight/flight_ring.h"
#include "core/memory/copy_streams.h"

namespace shardline {
namespace {

using mpi::Engine;
using mpi::Lane;
using mpi::SharedLane;
using mpi::SharedSegment;

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw DistributedError(cat(call, " failed: ", mpi::error_text(code)));
}

// State that the groups of one world share.
struct World {
  std::shared_ptr<Engine> engine;
  MPI_Comm comm = MPI_COMM_NULL;  // our own duplicate, so that tags of other libraries cannot collide
  int sequence_bits = 0;
  int next_group = 0;         // larger than the number of every group of this rank
  std::vector<int> host_of;   // by rank: the first rank on its host
  bool shares_memory = true;  // between ranks of one host

  ~World() {
    if (comm != MPI_COMM_NULL && std::uncaught_exceptions() == 0)
      engine->call([this] { MPI_Comm_free(&comm); }, "MPI_Comm_free");
  }
};
using WorldPtr = std::shared_ptr<World>;

class MpiWork : public Work {
 public:
  MpiWork(std::shared_ptr<mpi::Completion> completion, std::shared_ptr<const CommIdentity> identity,
          CommRequest request)
      : completion_(std::move(completion)), identity_(std::move(identity)), request_(std::move(request)) {}

  bool poll() override { return completion_->over(); }

 protected:
  void await(TimePoint since) override {
    std::optional<RecordedWait> wait;
    if (!completion_->over()) wait.emplace(request_, *identity_);
    if (!completion_->wait_until(since + request_.limit.time)) {
      flight_ring().end(request_.ticket, FlightState::failed);
      throw identity_->timed_out(request_, since);
    }
    if (const std::string error = completion_->error(); !error.empty()) throw identity_->error(request_, error, since);
  }

 private:
  std::shared_ptr<mpi::Completion> completion_;
  std::shared_ptr<const CommIdentity> identity_;
  CommRequest request_;
};

// Transfers a copy of a CUDA tensor in pinned host memory through MPI; wait() copies the result to the device.
class StagedWork : public Work {
 public:
  StagedWork(WorkPtr host_work, at::Tensor device_output, at::Tensor host_output)
      : host_work_(std::move(host_work)), device_(std::move(device_output)), host_(std::move(host_output)) {}

  bool poll() override { return host_work_->poll(); }

 protected:
  void await(TimePoint) override {
    host_work_->wait();
    if (host_.defined()) device_.detach().copy_(host_);
    host_.reset();
  }

 private:
  WorkPtr host_work_;
  at::Tensor device_, host_;
};

at::Tensor pinned_like(const at::Tensor& tensor) {
  return pinned_tensor(tensor.sizes(), tensor.scalar_type());
}

class MpiCommunicator : public CommunicatorBase {
 public:
  // shared: nullptr if collectives use messages, too.
  MpiCommunicator(WorldPtr world, Lane lane, std::shared_ptr<SharedLane> shared, CommIdentity identity)
      : CommunicatorBase(std::move(identity)),
        world_(std::move(world)),
        lane_(std::move(lane)),
        shared_(std::move(shared)) {}

  std::shared_ptr<Communicator> split(int color, const std::string& group_name) override;
  void abort(const std::string& reason) override { world_->engine->abort(reason); }

 protected:
  WorkPtr start(CommRequest request) override {
    const at::Tensor& tensor = request.input.defined() ? request.input : request.output;
    if (tensor.defined() && is_accelerator(tensor)) return start_staged(std::move(request));
    if (shared_ && request.op != CommOp::send && request.op != CommOp::recv) return start_shared(std::move(request));
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

  WorkPtr start_shared(CommRequest request) {
    const auto completion = std::make_shared<mpi::Completion>(request.ticket);
    world_->engine->submit(shared_, [lane = shared_, request, completion] { lane->start(request, completion); });
    return std::make_shared<MpiWork>(completion, identity(), std::move(request));
  }

  std::shared_ptr<SharedLane> share_memory(const std::vector<int>& ranks, const Lane& lane);

  WorldPtr world_;
  Lane lane_;
  std::shared_ptr<SharedLane> shared_;
};

// Returns shared memory for `ranks` of this group if all of them can map it, otherwise nullptr. Collective over this
// group.
std::shared_ptr<SharedLane> MpiCommunicator::share_memory(const std::vector<int>& ranks, const Lane& lane) {
  const size_t bytes = SharedLane::bytes_for(lane.size());
  const auto is_near = [&](int member) { return world_->host_of[member] == world_->host_of[lane.members[0]]; };
  const bool can_share = world_->shares_memory && lane.size() > 1 && lane.size() <= SharedLane::kLargestGroup &&
                         std::all_of(lane.members.begin(), lane.members.end(), is_near);
  // The first rank of each group creates the memory and sends its location to the others; then every rank reports
  // whether it could map it.
  std::unique_ptr<SharedSegment> segment;
  if (can_share && lane.rank == 0) segment = SharedSegment::make(bytes);
  const SharedSegment::Offer mine = segment ? segment->offer() : SharedSegment::Offer{};
  const at::Tensor offer = at::empty({3}, at::kLong), has_it = at::empty({1}, at::kLong);
  int64_t* const numbers = offer.mutable_data_ptr<int64_t>();
  numbers[0] = mine.process, numbers[1] = mine.descriptor, numbers[2] = mine.token;
  const at::Tensor offers = gather_to_all(*this, offer);
  const int64_t* const first = offers.const_data_ptr<int64_t>() + 3 * ranks[0];
  if (lane.rank != 0) segment = SharedSegment::find({first[0], first[1], first[2]}, bytes);
  has_it.mutable_data_ptr<int64_t>()[0] = segment && segment->sign_in(lane.rank);
  const at::Tensor answers = gather_to_all(*this, has_it);
  for (const int rank : ranks)
    if (answers.const_data_ptr<int64_t>()[rank] == 0) return nullptr;
  return std::make_shared<SharedLane>(std::move(segment), lane.rank, lane.members);
}

std::shared_ptr<Communicator> MpiCommunicator::split(int color, const std::string& group_name) {
  const std::vector<int> ranks = ranks_of_color(*this, color);
  // Groups of this split have no rank in common, so they may share a number; it must be new to every rank here.
  const at::Tensor number = at::empty({1}, at::kLong);
  number.mutable_data_ptr<int64_t>()[0] = world_->next_group;
  all_reduce(number, {.op = ReduceOp::max, .what = "split"})->wait();
  const int group = number.const_data_ptr<int64_t>()[0];
  Lane lane{world_->comm, group, world_->sequence_bits, {}, 0};
  SL_ASSERT(lane.group < 1 << Lane::kGroupBits, "more than ", 1 << Lane::kGroupBits,
            " groups were split off one world");
  world_->next_group = lane.group + 1;
  CommIdentity part = identity_of_part(ranks, group_name);
  lane.rank = part.rank;
  lane.members = part.members;
  std::shared_ptr<SharedLane> shared = share_memory(ranks, lane);
  return std::make_shared<MpiCommunicator>(world_, std::move(lane), std::move(shared), std::move(part));
}

// The bits of a tag that are left for sequence numbers, after group, phase and sign.
int sequence_bits() {
  void* value = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");  // only WORLD has it
  const int largest = found ? *static_cast<int*>(value) : 32767;
  int bits = 0;
  while (bits < 16 && (int64_t{1} << (bits + 1 + 2 + Lane::kGroupBits)) - 1 <= largest) ++bits;
  if (bits < 8)
    throw RunError(cat("the largest message tag of this MPI library is ", largest,
                       ", but shardline needs tags of at least 22 bits; use Open MPI"));
  return bits;
}

bool may_share_memory() {
  const char* const text = std::getenv("SHARDLINE_SHARED_MEMORY");
  const std::string value = text == nullptr || *text == '\0' ? "1" : text;
  if (value != "0" && value != "1")
    throw ConfigError(cat("SHARDLINE_SHARED_MEMORY must be 0 or 1, but the environment has \"", value,
                          "\"; unset it for the default, 1"));
  return value == "1";
}

}  // namespace

void set_mpi_abort_handler(std::function<void(const std::string&)> handler) {
  mpi::abort_handler() = std::move(handler);
}

MpiWorld make_mpi_world(const void* callers_mpi_comm) {
  const auto world = std::make_shared<World>();
  world->shares_memory = may_share_memory();
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
    world->sequence_bits = sequence_bits();
    MPI_Comm host = MPI_COMM_NULL;
    check(MPI_Comm_split_type(world->comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
    MPI_Comm_rank(host, &result.local_rank);
    MPI_Comm_size(host, &result.local_size);
    int first_on_host = rank;
    check(MPI_Bcast(&first_on_host, 1, MPI_INT, 0, host), "MPI_Bcast");
    MPI_Comm_free(&host);
    world->host_of.resize(size);
    check(MPI_Allgather(&first_on_host, 1, MPI_INT, world->host_of.data(), 1, MPI_INT, world->comm), "MPI_Allgather");
    set_current_rank(rank);
  };
  world->engine->call(join, "joining the MPI world");
  set_current_rank(rank);
  result.host_of = world->host_of;

  CommIdentity identity = CommIdentity::of_world(rank, size, result.library);
  Lane lane{world->comm, world->next_group++, world->sequence_bits, identity.members, rank};
  const auto messages = std::make_shared<MpiCommunicator>(world, std::move(lane), nullptr, std::move(identity));
  result.comm = messages->split(0, "world");
  return result;
}

}  // namespace shardline
