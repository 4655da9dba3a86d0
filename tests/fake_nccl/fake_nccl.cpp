#include "tests/fake_nccl/fake_nccl.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "core/error.h"
#include "tests/fake_device/fake_device.h"
#include "tests/fake_nccl/sums.h"

namespace shardline::fake {
namespace {

using Clock = std::chrono::steady_clock;
enum : int { kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6 };

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, send, recv };
constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "send", "recv"};

bool is_message(Kind kind) {
  return kind == Kind::send || kind == Kind::recv;
}

struct Comm;
struct Kernel;

struct Op {
  Kind kind;
  const void* from;
  void* to;
  size_t count;  // as in the call
  NcclType type;
  bool max;
  int peer;  // the peer of a message, or the root of a broadcast
  Comm* comm;
  c10::StreamId stream;
  Kernel* kernel = nullptr;
  bool over = false;

  size_t bytes(int parts = 1) const { return count * parts * c10::elementSize(scalar_type(type)); }
  // Equal on all ranks that take part.
  std::string signature() const {
    std::string text = is_message(kind) ? "message" : kNames[static_cast<int>(kind)];
    if (kind == Kind::all_reduce || kind == Kind::reduce_scatter) text += max ? " max" : " sum";
    if (kind == Kind::broadcast) text += cat(" from ", peer);
    return text + cat(" of ", count, " x ", c10::toString(scalar_type(type)));
  }
};

// The operations of one launch on one communicator.
struct Kernel : Outside {
  Comm* comm = nullptr;
  std::list<Op> ops;
  std::vector<OutsidePtr> before;  // marks the end of earlier work in its stream
  bool in_stream = false;
  std::atomic<Clock::rep> end{0};

  std::optional<Clock::time_point> ended() override {
    if (end == 0) return std::nullopt;
    return Clock::time_point(Clock::duration(end));
  }
  bool is_running() const {
    return in_stream && end == 0 &&
           std::all_of(before.begin(), before.end(), [](const OutsidePtr& work) { return work->ended().has_value(); });
  }
};
using KernelPtr = std::shared_ptr<Kernel>;

// (sender, receiver, number) of a message; (-1, -1, number) of a collective.
using MeetingKey = std::tuple<int, int, uint64_t>;
using Meeting = std::vector<Op*>;  // by rank, or sender and receiver

struct Group {
  std::vector<Comm*> members;               // by rank; null if not created yet
  std::map<MeetingKey, Meeting> meetings;   // those that have not ended
  std::set<std::pair<int, int>> connected;  // sender and receiver, or (-1, -1) for all ranks
  std::map<uint64_t, std::vector<struct Split>> splits;
};

struct Split {
  Comm* comm;
  int color, key;
  void** part;
};

struct Comm {
  std::shared_ptr<Group> group;
  int rank = 0, device = 0;
  std::thread::id owner = std::this_thread::get_id();
  int state = kNcclInProgress;
  int busy_questions = 0;
  std::string error;
  bool finalized = false, freed = false;
  KernelPtr launching;
  std::list<KernelPtr> running;  // in the stream
  uint64_t collectives = 0, splits = 0;
  std::map<std::pair<int, int>, uint64_t> messages;

  int size() const { return group->members.size(); }
};

struct Library {
  std::mutex mutex;
  std::list<Comm> comms;  // never freed, so that a late use is a fault and not a crash
  std::map<NcclId, std::shared_ptr<Group>> groups;
  std::vector<std::string> faults;
  int ids = 0;
};

Library& library() {
  static Library* const all = new Library;
  return *all;
}

thread_local NcclTrouble trouble;
thread_local std::vector<std::string> calls;
thread_local int depth = 0, first_error = kNcclSuccess;  // those of the open group
thread_local std::list<Op> collected;
thread_local std::vector<Comm*> aborting;

using Lock = std::lock_guard<std::mutex>;

void note(std::string call) {
  calls.push_back(std::move(call));
}

void fault(const std::string& text) {
  library().faults.push_back(text);
}

void break_comm(Comm& comm, int result, const std::string& text) {
  if (comm.freed || (comm.state != kNcclSuccess && comm.state != kNcclInProgress)) return;
  comm.state = result;
  comm.error = text;
}

void break_group(Group& group, int result, const std::string& text) {
  for (Comm* member : group.members)
    if (member != nullptr) break_comm(*member, result, text);
}

Comm* used(void* handle, const char* call) {
  Comm* comm = static_cast<Comm*>(handle);
  if (comm == nullptr || comm->freed) {
    fault(cat(call, comm == nullptr ? " without a communicator" : " of a communicator that was freed"));
    return nullptr;
  }
  return comm;
}

// ---- data

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

void move_data(const Meeting& ops) {
  const Op& first = *ops.front();
  const size_t bytes = first.bytes();
  const auto reduce = [&](size_t offset, const std::vector<void*>& outputs) {
    std::vector<const void*> inputs;
    for (const Op* op : ops) inputs.push_back(static_cast<const char*>(op->from) + offset);
    const ReduceOp kind = first.max ? ReduceOp::max : ReduceOp::sum;
    if (first.count > 0) reduce_as_nccl(kind, scalar_type(first.type), inputs, outputs, first.count);
  };
  std::vector<void*> outputs;
  for (const Op* op : ops) outputs.push_back(op->to);
  switch (first.kind) {
    case Kind::all_reduce:
      return reduce(0, outputs);
    case Kind::reduce_scatter:
      for (size_t r = 0; r < ops.size(); ++r) reduce(r * bytes, {outputs[r]});
      return;
    case Kind::all_gather:
      for (size_t from = 0; from < ops.size(); ++from)
        for (void* to : outputs) copy_bytes(static_cast<char*>(to) + from * bytes, ops[from]->from, bytes);
      return;
    case Kind::broadcast:
      for (void* to : outputs) copy_bytes(to, ops[first.peer]->from, bytes);
      return;
    case Kind::send:
    case Kind::recv:
      return copy_bytes(ops[1]->to, ops[0]->from, bytes);
  }
}

// The tensors that an operation reads and writes.
std::vector<Access> accesses_of(const Op& op) {
  const int parts = op.comm->size();
  std::vector<Access> all;
  if (op.kind != Kind::recv) all.push_back({op.from, op.bytes(op.kind == Kind::reduce_scatter ? parts : 1), false});
  if (op.kind != Kind::send) all.push_back({op.to, op.bytes(op.kind == Kind::all_gather ? parts : 1), true});
  return all;
}

// ---- progress, with the mutex locked

bool is_idle(const Comm& comm) {
  return outside_of(device(comm.device)).empty();
}

bool is_complete(const Meeting& meeting) {
  return std::find(meeting.begin(), meeting.end(), nullptr) == meeting.end();
}

// Makes the connections that can be made now. Returns whether the kernel has all that it needs.
bool connect(Kernel& kernel) {
  Group& group = *kernel.comm->group;
  bool all = true;
  for (const Op& op : kernel.ops) {
    std::pair<int, int> link{-1, -1};
    if (op.kind == Kind::send) link = {kernel.comm->rank, op.peer};
    if (op.kind == Kind::recv) link = {op.peer, kernel.comm->rank};
    if (group.connected.count(link) > 0) continue;
    const auto can_connect = [&](const auto& entry) {
      const auto& [key, meeting] = entry;
      return std::pair(std::get<0>(key), std::get<1>(key)) == link && is_complete(meeting) &&
             std::all_of(meeting.begin(), meeting.end(), [](const Op* end) { return is_idle(*end->comm); });
    };
    if (std::any_of(group.meetings.begin(), group.meetings.end(), can_connect))
      group.connected.insert(link);
    else
      all = false;
  }
  return all;
}

bool run_meeting(Group& group, const Meeting& meeting) {
  if (!is_complete(meeting)) return false;
  for (const Op* op : meeting)
    if (op->signature() != meeting.front()->signature()) {
      break_group(group, kInvalidUsage,
                  cat("rank ", meeting.front()->comm->rank, " calls ", meeting.front()->signature(), ", rank ",
                      op->comm->rank, " ", op->signature()));
      return false;
    }
  if (!std::all_of(meeting.begin(), meeting.end(), [](const Op* op) { return op->kernel->is_running(); })) return false;
  move_data(meeting);
  for (Op* op : meeting) op->over = true;
  return true;
}

void end(Kernel& kernel) {
  kernel.end = Clock::now().time_since_epoch().count();
}

void progress() {
  for (bool moved = true; std::exchange(moved, false);) {
    std::set<Group*> groups;
    for (Comm& comm : library().comms)
      if (!comm.freed) groups.insert(comm.group.get());
    for (Group* group : groups)
      moved |= std::erase_if(group->meetings, [&](const auto& entry) { return run_meeting(*group, entry.second); }) > 0;
    for (Comm& comm : library().comms)
      comm.running.remove_if([](const KernelPtr& kernel) {
        const bool over = std::all_of(kernel->ops.begin(), kernel->ops.end(), [](const Op& op) { return op.over; });
        if (over) end(*kernel);
        return over;
      });
  }
}

// Does on the rank's thread what NCCL does in the background.
void put_in_stream(Comm& comm) {
  if (!comm.launching || comm.owner != std::this_thread::get_id() || !connect(*comm.launching)) return;
  const KernelPtr kernel = std::exchange(comm.launching, nullptr);
  const c10::Stream stream(c10::Stream::UNSAFE, device(comm.device), kernel->ops.front().stream);
  kernel->before = outside_of(stream);
  std::vector<Access> accesses;
  for (const Op& op : kernel->ops)
    for (const Access& access : accesses_of(op)) accesses.push_back(access);
  launch(cat("nccl ", kNames[static_cast<int>(kernel->ops.front().kind)]), stream, accesses, kernel);
  kernel->in_stream = true;
  comm.running.push_back(kernel);
  comm.busy_questions = trouble.busy_questions;
  if (comm.busy_questions == 0) comm.state = kNcclSuccess;
  progress();
}

// Whether all ranks have ended the communicator or are gone.
bool all_end(const Comm& comm) {
  const auto ends = [](const Comm* member) { return member == nullptr || member->finalized; };
  return std::all_of(comm.group->members.begin(), comm.group->members.end(), ends);
}

void refresh(Comm& comm) {
  progress();
  if (comm.state != kNcclInProgress) return;
  put_in_stream(comm);
  if (comm.finalized && comm.running.empty() && all_end(comm)) comm.state = kNcclSuccess;
}

// ---- calls

int add(Op op, const char* text) {
  const Lock lock(library().mutex);
  note(text);
  if (op.kind == Kind::send && trouble.send_result != 0) return first_error = trouble.send_result;
  if (depth == 0) fault(cat(text, " outside a group"));
  if (!used(op.comm, text)) return kInvalidArgument;
  collected.push_back(op);
  return kNcclSuccess;
}

int collective(Kind kind, const void* from, void* to, size_t count, NcclType type, bool max, int root, void* comm,
               void* stream) {
  const std::string text = cat(kNames[static_cast<int>(kind)], " ", count, max ? " max" : "",
                               kind == Kind::broadcast ? cat(" root ", root) : "");
  const auto id = static_cast<c10::StreamId>(reinterpret_cast<uintptr_t>(stream));
  return add({kind, from, to, count, type, max, root, static_cast<Comm*>(comm), id}, text.c_str());
}

int message(Kind kind, const void* from, void* to, size_t count, NcclType type, int peer, void* comm, void* stream) {
  const std::string text =
      cat(kNames[static_cast<int>(kind)], " ", count, kind == Kind::send ? " to " : " from ", peer);
  const auto id = static_cast<c10::StreamId>(reinterpret_cast<uintptr_t>(stream));
  return add({kind, from, to, count, type, false, peer, static_cast<Comm*>(comm), id}, text.c_str());
}

// Registers the operation where it meets those of other ranks.
void meet(Op& op) {
  Comm& comm = *op.comm;
  const bool sends = op.kind == Kind::send;
  MeetingKey key{-1, -1, 0};
  if (is_message(op.kind))
    key = {sends ? comm.rank : op.peer, sends ? op.peer : comm.rank, comm.messages[{sends, op.peer}]++};
  else
    std::get<2>(key) = comm.collectives++;
  Meeting& meeting = comm.group->meetings[key];
  meeting.resize(is_message(op.kind) ? 2 : comm.size());
  meeting[is_message(op.kind) ? (sends ? 0 : 1) : comm.rank] = &op;
}

int group_start() {
  note("group(");
  if (depth++ == 0) {
    collected.clear();
    first_error = kNcclSuccess;
  }
  return kNcclSuccess;
}

void end_aborts();

int group_end() {
  if (depth == 1) end_aborts();
  const Lock lock(library().mutex);
  note(")");
  if (--depth > 0) return kNcclSuccess;
  if (collected.empty() || first_error != kNcclSuccess) return first_error;
  Comm& comm = *collected.front().comm;
  if (comm.state == kNcclInProgress) {
    fault("a launch on a communicator that is busy");
    return kInvalidArgument;
  }
  if (comm.state != kNcclSuccess) return comm.state;
  const auto kernel = std::make_shared<Kernel>();
  kernel->comm = &comm;
  kernel->ops = std::exchange(collected, {});
  for (Op& op : kernel->ops) {
    op.kernel = kernel.get();
    if (op.comm != &comm) fault("a group over several communicators");
    if (!trouble.stays_away) meet(op);
  }
  comm.launching = kernel;
  comm.state = kNcclInProgress;
  refresh(comm);
  return comm.state;
}

int init_rank(void** handle, int size, const NcclId* id, int rank) {
  const Lock lock(library().mutex);
  *handle = nullptr;
  if (trouble.init_result != 0) return trouble.init_result;
  Comm& comm = library().comms.emplace_back();
  auto& group = library().groups[*id];
  if (!group) group = std::make_shared<Group>();
  group->members.resize(size);
  comm.group = group;
  comm.rank = rank;
  comm.device = c10::impl::VirtualGuardImpl(nccl().device_type).getDevice().index();
  group->members[rank] = &comm;
  *handle = &comm;
  note(cat("init ", rank, " of ", size));
  if (std::find(group->members.begin(), group->members.end(), nullptr) != group->members.end()) return kNcclInProgress;
  for (const Comm* a : group->members)
    for (const Comm* b : group->members)
      if (a->rank < b->rank && a->device == b->device)
        break_group(
            *group, kInvalidUsage,
            cat("Duplicate GPU detected : rank ", a->rank, " and rank ", b->rank, " both on device ", a->device));
  for (Comm* member : group->members)
    if (member->state == kNcclInProgress) member->state = kNcclSuccess;
  return comm.state;
}

int split(void* handle, int color, int key, void** part) {
  const Lock lock(library().mutex);
  note(cat("split color ", color, " key ", key));
  Comm* comm = used(handle, "split");
  if (comm == nullptr || color < 0) return kInvalidArgument;
  if (comm->state != kNcclSuccess) fault("a split of a communicator that is not ready");
  comm->state = kNcclInProgress;
  auto& arrived = comm->group->splits[comm->splits++];
  arrived.push_back({comm, color, key, part});
  if (std::ssize(arrived) < comm->size()) return kNcclInProgress;
  std::sort(arrived.begin(), arrived.end(), [](const Split& a, const Split& b) {
    return std::tuple(a.color, a.key, a.comm->rank) < std::tuple(b.color, b.key, b.comm->rank);
  });
  std::shared_ptr<Group> group;
  for (size_t i = 0; i < arrived.size(); ++i) {
    if (i == 0 || arrived[i].color != arrived[i - 1].color) group = std::make_shared<Group>();
    Comm& made = library().comms.emplace_back();
    made.group = group;
    made.rank = group->members.size();
    made.device = arrived[i].comm->device;
    made.owner = arrived[i].comm->owner;
    made.state = kNcclSuccess;
    group->members.push_back(&made);
    *arrived[i].part = &made;
    arrived[i].comm->state = kNcclSuccess;
  }
  arrived.clear();
  return kNcclSuccess;
}

int async_error(void* handle, int* state) {
  const Lock lock(library().mutex);
  Comm* comm = used(handle, "async_error");
  if (comm == nullptr) return kInvalidArgument;
  refresh(*comm);
  *state = comm->state;
  const bool counts = comm->busy_questions > 0 && comm->owner == std::this_thread::get_id();
  if (counts && --comm->busy_questions == 0 && comm->state == kNcclInProgress) comm->state = kNcclSuccess;
  return kNcclSuccess;
}

const char* last_error(void* handle) {
  const Lock lock(library().mutex);
  if (handle == nullptr) return "the last error of the process";
  Comm* comm = used(handle, "last_error");
  return comm == nullptr ? "" : comm->error.c_str();
}

int finalize(void* handle) {
  const Lock lock(library().mutex);
  note("finalize");
  Comm* comm = used(handle, "finalize");
  if (comm == nullptr) return kInvalidArgument;
  if (comm->state != kNcclSuccess) fault("a communicator is finalized that is not ready");
  comm->finalized = true;
  comm->state = kNcclInProgress;
  return comm->state;
}

int destroy(void* handle) {
  const Lock lock(library().mutex);
  note("destroy");
  Comm* comm = used(handle, "destroy");
  if (comm == nullptr) return kInvalidArgument;
  if (!comm->finalized || comm->state != kNcclSuccess) fault("a communicator is destroyed that is not finalized");
  comm->freed = true;
  return kNcclSuccess;
}

void abort_one(Comm* comm) {
  for (const KernelPtr& kernel : comm->running) end(*kernel);
  for (auto& [key, meeting] : comm->group->meetings)
    for (Op*& op : meeting)
      if (op != nullptr && op->comm == comm) op = nullptr;
  for (auto& [number, arrived] : comm->group->splits)
    std::erase_if(arrived, [&](const Split& split) { return split.comm == comm; });
  comm->launching = nullptr;
  comm->running.clear();
  comm->freed = true;
  for (Comm*& member : comm->group->members)
    if (member == comm) member = nullptr;
  break_group(*comm->group, kRemoteError, "remote process exited or there was a network error");
}

// The mutex must not be locked, because this waits.
void end_aborts() {
  constexpr std::chrono::seconds kForEver{5};
  const auto begin = Clock::now();
  for (const Comm* comm : std::exchange(aborting, {})) {
    for (; !is_idle(*comm); std::this_thread::yield())
      if (Clock::now() - begin > kForEver) {
        const Lock lock(library().mutex);
        return fault("an abort waits for another communicator's operation");
      }
    waited_outside(device(comm->device));
  }
}

int abort_comm(void* handle) {
  {
    const Lock lock(library().mutex);
    note("abort");
    Comm* comm = used(handle, "abort");
    if (comm == nullptr) return kInvalidArgument;
    abort_one(comm);
    aborting.push_back(comm);
  }
  if (depth == 0) end_aborts();
  return kNcclSuccess;
}

NcclApi make_table() {
  NcclApi api{};
  api.device_type = c10::DeviceType::PrivateUse1;
  api.built_version = 22809;
  api.get_version = [](int* version) -> int {
    *version = trouble.version == 0 ? 22809 : trouble.version;
    return kNcclSuccess;
  };
  api.get_unique_id = [](NcclId* id) -> int {
    const Lock lock(library().mutex);
    id->fill(0);
    std::memcpy(id->data(), &++library().ids, sizeof(int));
    return trouble.unique_id_result;
  };
  api.init_rank = init_rank;
  api.split = split;
  api.async_error = async_error;
  api.last_error = last_error;
  api.finalize = finalize;
  api.destroy = destroy;
  api.abort = abort_comm;
  api.group_start = group_start;
  api.group_end = group_end;
  api.all_reduce = [](const void* from, void* to, size_t n, NcclType type, bool max, void* comm, void* stream) {
    return collective(Kind::all_reduce, from, to, n, type, max, 0, comm, stream);
  };
  api.reduce_scatter = [](const void* from, void* to, size_t n, NcclType type, bool max, void* comm, void* stream) {
    return collective(Kind::reduce_scatter, from, to, n, type, max, 0, comm, stream);
  };
  api.all_gather = [](const void* from, void* to, size_t n, NcclType type, void* comm, void* stream) {
    return collective(Kind::all_gather, from, to, n, type, false, 0, comm, stream);
  };
  api.broadcast = [](const void* from, void* to, size_t n, NcclType type, int root, void* comm, void* stream) {
    return collective(Kind::broadcast, from, to, n, type, false, root, comm, stream);
  };
  api.send = [](const void* from, size_t n, NcclType type, int peer, void* comm, void* stream) {
    return message(Kind::send, from, nullptr, n, type, peer, comm, stream);
  };
  api.recv = [](void* to, size_t n, NcclType type, int peer, void* comm, void* stream) {
    return message(Kind::recv, nullptr, to, n, type, peer, comm, stream);
  };
  return api;
}

}  // namespace

const NcclApi& nccl() {
  static const NcclApi api = make_table();
  return api;
}

NcclTrouble& nccl_trouble() {
  return trouble;
}

void break_nccl(int result, const std::string& text) {
  const Lock lock(library().mutex);
  for (Comm& comm : library().comms)
    if (comm.owner == std::this_thread::get_id()) break_comm(comm, result, text);
}

std::vector<std::string> take_nccl_calls() {
  return std::exchange(calls, {});
}

std::vector<std::string> take_nccl_faults() {
  const Lock lock(library().mutex);
  return std::exchange(library().faults, {});
}

int live_nccl_communicators() {
  const Lock lock(library().mutex);
  return std::count_if(library().comms.begin(), library().comms.end(), [](const Comm& comm) { return !comm.freed; });
}

int live_nccl_groups() {
  const Lock lock(library().mutex);
  int count = 0;
  for (const Comm& comm : library().comms)
    count += !comm.freed && comm.size() > 1 && comm.owner == std::this_thread::get_id();
  return count;
}

}  // namespace shardline::fake
