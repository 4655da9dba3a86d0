#include "core/comm/communicator_base.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string_view>

#include "core/comm/communicator_reduce.h"
#include "core/comm/timeouts.h"
#include "core/flight/flight_ring.h"

namespace shardline {
namespace {

bool is_pair(CommOp op) {
  return op == CommOp::send || op == CommOp::recv;
}

std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    default:
      return c10::toString(type);
  }
}

std::string seconds(std::chrono::steady_clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

FlightRecord record_of(const CommRequest& request, const CommIdentity& identity) {
  FlightRecord record;
  record.sequence = request.sequence;
  record.rank = identity.members[identity.rank];
  record.peer = request.peer;
  if (const at::Tensor& tensor = request.subject(); tensor.defined()) record.elements = tensor.numel();
  fill_text(record.op, name_of(request.op));
  fill_text(record.what, request.what);
  fill_text(record.dtype, request.type);
  fill_text(record.shape, request.shape);
  return record;
}

// Converts a time of the steady clock to nanoseconds since the epoch.
int64_t since_epoch_ns(Work::TimePoint time) {
  using namespace std::chrono;
  const auto ago = steady_clock::now() - time;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch() - ago).count();
}

// Empty unless the records of this job are in files; otherwise the doctor would explain an earlier job.
std::string doctor_advice() {
  const std::filesystem::path file = flight_ring().path();
  if (file.empty()) return "";
  const std::filesystem::path output_dir = file.parent_path().parent_path();
  return cat("; the command 'shardline doctor ", output_dir.string(), "' shows what each rank was doing");
}

// A hash of the text: equal on all ranks for equal text, and very likely different for other text.
uint64_t hash_of(std::string_view text, uint64_t hash = 0xcbf29ce484222325) {
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;  // FNV-1a
  return hash;
}

CommRequest request_for(CommOp op, const at::Tensor& input, const at::Tensor& output) {
  CommRequest request;
  request.op = op;
  request.input = input;
  request.output = output;
  return request;
}

class FinishedWork : public Work {
 public:
  bool poll() override { return true; }

 protected:
  void await(TimePoint) override {}
};

}  // namespace

const char* name_of(CommOp op) {
  switch (op) {
    case CommOp::all_reduce:
      return "all_reduce";
    case CommOp::reduce_scatter:
      return "reduce_scatter";
    case CommOp::all_gather:
      return "all_gather";
    case CommOp::all_to_all:
      return "all_to_all";
    case CommOp::broadcast:
      return "broadcast";
    case CommOp::send:
      return "send";
    case CommOp::recv:
      return "recv";
    case CommOp::barrier:
      return "barrier";
  }
  return "?";
}

std::string CommRequest::signature() const {
  std::string text = is_pair(op) ? "message" : name_of(op);
  if (op == CommOp::all_reduce || op == CommOp::reduce_scatter) text += reduce == ReduceOp::sum ? "(sum)" : "(max)";
  if (op == CommOp::broadcast) text += cat(" from root ", peer);
  text += cat(" number ", sequence);
  if (const at::Tensor& tensor = subject(); tensor.defined())
    text += cat(" of ", dtype_name(tensor.scalar_type()), " x ", tensor.numel());
  return text;
}

DistributedError CommIdentity::error(const CommRequest& request, const std::string& reason,
                                     std::optional<Work::TimePoint> since) const {
  std::string text =
      cat("rank ", members[rank], " on host ", host_name(), ": ", name_of(request.op), " number ", request.sequence);
  if (!request.type.empty()) text += cat(" of ", request.type, " ", request.shape);
  if (request.op == CommOp::send) text += cat(" to rank ", members[request.peer]);
  if (request.op == CommOp::recv) text += cat(" from rank ", members[request.peer]);
  if (request.op == CommOp::broadcast) text += cat(" from rank ", members[request.peer]);
  text += cat(" in group ", name, " of ", size(), " ranks");
  if (!request.what.empty()) text += cat(" (for ", request.what, ")");
  const Work::TimePoint now = std::chrono::steady_clock::now();
  text += " failed";
  if (since) text += cat(" after a wait of ", seconds(now - *since), " (limit ", seconds(request.limit.time), "),");
  text += cat(" ", seconds(now - request.posted), " after it was posted: ", reason);
  if (!library.empty()) text += cat(" [", library, "]");
  return DistributedError(text);
}

DistributedError CommIdentity::timed_out(const CommRequest& request, Work::TimePoint since) const {
  return error(request,
               cat("the time limit has passed: another rank is slow, has stopped, or is waiting for something else",
                   doctor_advice(), request.limit.advice()),
               since);
}

RecordedWait::RecordedWait(const CommRequest& request, const CommIdentity& identity)
    : ring_(flight_ring()),
      rank_(identity.members[identity.rank]),
      ticket_(request.ticket),
      exceptions_(std::uncaught_exceptions()) {
  FlightRecord record = record_of(request, identity);
  record.ticket = ticket_;
  record.start_ns = since_epoch_ns(request.posted);
  ring_.begin_wait(record, identity);
}

RecordedWait::~RecordedWait() {
  ring_.end_wait(rank_, ticket_, std::uncaught_exceptions() > exceptions_);
}

CommIdentity CommIdentity::of_world(int rank, int size, const std::string& library) {
  CommIdentity identity;
  identity.name = "world";
  identity.id = hash_of(identity.name, hash_of(library));
  identity.rank = rank;
  identity.library = library;
  for (int member = 0; member < size; ++member) identity.members.push_back(member);
  return identity;
}

// Groups of one split have no rank in common, so the first rank identifies a group.
CommIdentity CommunicatorBase::identity_of_part(const std::vector<int>& ranks, const std::string& part_name) {
  CommIdentity part;
  part.name = part_name;
  part.id = hash_of(cat("split ", splits_++, " from ", ranks.front()), identity_->id);
  part.library = identity_->library;
  for (const int member : ranks) {
    if (member == rank()) part.rank = part.members.size();
    part.members.push_back(identity_->members[member]);
  }
  return part;
}

CommunicatorBase::CommunicatorBase(CommIdentity identity)
    : identity_(std::make_shared<const CommIdentity>(std::move(identity))) {
  SL_ASSERT(rank() >= 0 && rank() < size(), "rank ", rank(), " of ", size());
}

void CommunicatorBase::refuse(const CommRequest& request, const std::string& rule) const {
  throw InvariantError(cat("rank ", identity_->members[rank()], ": ", name_of(request.op), " in group ", name(),
                           request.what.empty() ? "" : cat(" (for ", request.what, ")"), ": ", rule));
}

WorkPtr CommunicatorBase::issue(CommRequest request, const CommOptions& options) {
  request.reduce = options.op;
  request.what = options.what;
  for (const at::Tensor& tensor : {request.input, request.output})
    if (tensor.defined() && !tensor.is_contiguous())
      refuse(request, cat("the tensor ", tensor.sizes(), " is not contiguous"));
  if (request.input.defined() && request.output.defined() &&
      (request.input.scalar_type() != request.output.scalar_type() ||
       request.input.device() != request.output.device()))
    refuse(request, cat("input is ", dtype_name(request.input.scalar_type()), " on ", request.input.device(),
                        ", output is ", dtype_name(request.output.scalar_type()), " on ", request.output.device()));
  if ((request.op == CommOp::all_reduce || request.op == CommOp::reduce_scatter) &&
      !can_reduce(request.input.scalar_type()))
    refuse(request, cat("no reduction is defined for ", dtype_name(request.input.scalar_type())));
  const bool needs_peer = is_pair(request.op) || request.op == CommOp::broadcast;
  if (needs_peer && (request.peer < 0 || request.peer >= size()))
    refuse(request, cat("there is no rank ", request.peer, " in a group of ", size()));
  const Timeouts table = timeouts();
  request.limit = options.timeout.time.count() > 0 ? options.timeout
                                                   : (is_pair(request.op) ? table.point_to_point : table.collective);
  request.sequence = is_pair(request.op) ? next_of_pair_[{request.op, request.peer}]++ : next_collective_++;
  request.posted = std::chrono::steady_clock::now();
  if (const at::Tensor& tensor = request.subject(); tensor.defined()) {
    request.type = dtype_name(tensor.scalar_type());
    request.shape = cat(tensor.sizes());
  }
  request.ticket = flight_ring().begin(record_of(request, *identity_), *identity_);
  return start(std::move(request));
}

WorkPtr CommunicatorBase::all_reduce(const at::Tensor& tensor, const CommOptions& options) {
  CommRequest request = request_for(CommOp::all_reduce, tensor, tensor);
  return issue(std::move(request), options);
}

WorkPtr CommunicatorBase::reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                         const CommOptions& options) {
  CommRequest request = request_for(CommOp::reduce_scatter, input, output);
  if (input.numel() != size() * output.numel())
    refuse(request, cat("input has ", input.numel(), " elements, but must have ", size(), " x ", output.numel()));
  return issue(std::move(request), options);
}

WorkPtr CommunicatorBase::all_gather(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) {
  CommRequest request = request_for(CommOp::all_gather, input, output);
  if (output.numel() != size() * input.numel())
    refuse(request, cat("output has ", output.numel(), " elements, but must have ", size(), " x ", input.numel()));
  return issue(std::move(request), options);
}

WorkPtr CommunicatorBase::all_to_all(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) {
  CommRequest request = request_for(CommOp::all_to_all, input, output);
  if (output.numel() != input.numel() || input.numel() % size() != 0)
    refuse(request, cat("input has ", input.numel(), " elements, output ", output.numel(),
                        "; they must be equal and a multiple of ", size()));
  if (input.numel() > 0 && input.const_data_ptr() == output.const_data_ptr())
    refuse(request, "input and output must be different tensors");
  return issue(std::move(request), options);
}

WorkPtr CommunicatorBase::broadcast(const at::Tensor& tensor, int root, const CommOptions& options) {
  CommRequest request = request_for(CommOp::broadcast, tensor, tensor);
  request.peer = root;
  return issue(std::move(request), options);
}

WorkPtr CommunicatorBase::send(const at::Tensor& tensor, int peer, const CommOptions& options) {
  CommRequest request = request_for(CommOp::send, tensor, {});
  request.peer = peer;
  return issue(std::move(request), options);
}

WorkPtr CommunicatorBase::recv(const at::Tensor& tensor, int peer, const CommOptions& options) {
  CommRequest request = request_for(CommOp::recv, {}, tensor);
  request.peer = peer;
  return issue(std::move(request), options);
}

void CommunicatorBase::barrier(const CommOptions& options) {
  issue(CommRequest{}, options)->wait();
}

WorkPtr finished_work() {
  static const WorkPtr work = std::make_shared<FinishedWork>();
  return work;
}

std::vector<int> ranks_of_color(Communicator& comm, int color) {
  const at::Tensor mine = at::empty({1}, at::kLong);
  const at::Tensor all = at::empty({comm.size()}, at::kLong);
  mine.mutable_data_ptr<int64_t>()[0] = color;
  comm.all_gather(all, mine, {.what = "split"})->wait();
  const int64_t* colors = all.const_data_ptr<int64_t>();
  std::vector<int> ranks;
  for (int rank = 0; rank < comm.size(); ++rank)
    if (colors[rank] == color) ranks.push_back(rank);
  return ranks;
}

}  // namespace shardline
