#include "core/comm/mpi/engine.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <future>

#include "core/comm/mpi_communicator.h"
#include "core/comm/timeouts.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"

namespace shardline {

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string library(text, length);
  return library.substr(0, library.find_first_of(",\n"));
}

}  // namespace shardline

namespace shardline::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// How long to poll without pausing, and how long to sleep between polls after that.
constexpr microseconds kSpin{100};
constexpr microseconds kFirstSleep{20};
constexpr microseconds kLongestSleep{100};
constexpr std::chrono::milliseconds kBeat{kFlightBeatMilliseconds};

std::mutex process_mutex;
std::weak_ptr<Engine> engine_of_process;

// Blocks all signals on this thread; the program's own threads handle them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Containers often forbid the system call, and Open MPI notices this only in the middle of a message.
bool may_read_other_processes() {
  char from = 1, to = 0;
  const iovec source{&from, 1}, target{&to, 1};
  return process_vm_readv(getpid(), &target, 1, &source, 1, 0) == 1;
}

// Sets how messages are copied within a host, unless the environment does. If they cannot be copied in one piece, as
// many pieces as fit into the shared memory are in flight, because they advance only when the engine's thread polls.
void tune_open_mpi() {
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", may_read_other_processes() ? "cma" : "none", 0);
  setenv("OMPI_MCA_pml_ob1_send_pipeline_depth", "32", 0);
}

}  // namespace

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(text, length);
}

std::function<void(const std::string&)>& abort_handler() {
  static std::function<void(const std::string&)> handler;
  return handler;
}

std::shared_ptr<Engine> Engine::of_process() {
  std::lock_guard lock(process_mutex);
  std::shared_ptr<Engine> engine = engine_of_process.lock();
  if (!engine) {
    engine.reset(new Engine);
    engine->start();
    engine_of_process = engine;
  }
  return engine;
}

void Engine::start() {
  {
    SignalsBlocked blocked;
    thread_ = std::thread([this] { live(); });
  }
  call([this] { initialise(); }, "MPI_Init");
}

void Engine::initialise() {
  int finalized = 0, initialized = 0, level = 0;
  MPI_Finalized(&finalized);
  if (finalized) throw RunError("MPI was already finalised in this process; it cannot be started again");
  MPI_Initialized(&initialized);
  if (initialized) {
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED)
      throw ConfigError(
          "the program initialised MPI without support for threads; it must ask MPI_Init_thread for "
          "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, or leave the initialisation to shardline");
  } else {
    tune_open_mpi();
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    owns_mpi_ = true;
  }
  library_ = mpi_library();
}

Engine::~Engine() {
  // Otherwise peers would wait for this rank, in MPI_Finalize or for a message, until their limits expire.
  if (std::uncaught_exceptions() > 0 && owns_mpi_) abort("the rank stopped with an exception");
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  // This rank has finished its part; others may still be writing files.
  const TimeLimit limit = timeouts().collective;
  const auto begin = Clock::now();
  while (!ended_) {
    if (Clock::now() - begin > limit.time)
      abort(cat("MPI did not shut down within ", limit.time.count() / 1000.0, " s; some rank is missing",
                limit.advice()));
    std::this_thread::sleep_for(microseconds(200));
  }
  thread_.join();
}

void Engine::submit(OperationPtr operation) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back([this, operation = std::move(operation)] {
      active_.push_back(operation);
      ++operation->outstanding_;  // one for begin() itself, so that the operation cannot end during it
      operation->begin(*this);
      --operation->outstanding_;
      settle(*operation);
    });
  }
  wake_.notify_all();
}

void Engine::submit(WorkerPtr worker, std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back([this, worker = std::move(worker), job = std::move(job)] {
      job();
      if (std::find(workers_.begin(), workers_.end(), worker) == workers_.end()) workers_.push_back(worker);
    });
  }
  wake_.notify_all();
}

void Engine::call(const std::function<void()>& fn, const char* what) {
  auto task = std::make_shared<std::packaged_task<void()>>(fn);
  std::future<void> result = task->get_future();
  {
    std::lock_guard lock(mutex_);
    queue_.push_back([task] { (*task)(); });
  }
  wake_.notify_all();
  const TimeLimit limit = timeouts().start_up;
  if (result.wait_for(limit.time) != std::future_status::ready)
    abort(cat(what, " did not end within ", limit.time.count() / 1000.0, " s; some rank is missing", limit.advice()));
  result.get();
}

void Engine::abort(const std::string& reason) {
  if (abort_handler()) abort_handler()(reason);
  {
    std::lock_guard lock(mutex_);
    queue_.push_back([] { MPI_Abort(MPI_COMM_WORLD, 1); });
  }
  wake_.notify_all();
  // The thread may be stuck inside MPI. When this process ends, mpirun ends the others.
  std::this_thread::sleep_for(std::chrono::seconds(10));
  std::_Exit(1);
}

void Engine::post(Operation& operation, const Transfer& transfer, int expected, MPI_Request request, int code) {
  if (code != MPI_SUCCESS) return fail(operation, error_text(code));
  ++operation.outstanding_;
  requests_.push_back(request);
  pending_.push_back({&operation, transfer, expected});
}

void Engine::send(Operation& operation, Transfer transfer, const void* data, size_t bytes, MPI_Comm comm, int to,
                  int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(data, bytes, MPI_BYTE, to, tag, comm, &request);
  post(operation, transfer, -1, request, code);
}

void Engine::receive(Operation& operation, Transfer transfer, void* data, size_t bytes, MPI_Comm comm, int from,
                     int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(data, bytes, MPI_BYTE, from, tag, comm, &request);
  post(operation, transfer, bytes, request, code);
}

void Engine::fail(Operation& operation, const std::string& reason) {
  if (operation.failed_) return;
  operation.failed_ = true;
  for (size_t i = 0; i < pending_.size(); ++i)
    if (pending_[i].operation == &operation && pending_[i].expected >= 0) MPI_Cancel(&requests_[i]);
  operation.finished(reason);
}

// Completes and releases the operation if it has no transfer in progress.
void Engine::settle(Operation& operation) {
  if (operation.outstanding_ > 0) return;
  if (!operation.failed_) {
    operation.let_go();
    operation.finished("");
  }
  const auto place = std::find_if(active_.begin(), active_.end(), [&](const auto& p) { return p.get() == &operation; });
  std::swap(*place, active_.back());
  active_.pop_back();
}

void Engine::start_queued() {
  std::vector<std::function<void()>> jobs;
  {
    std::lock_guard lock(mutex_);
    jobs.swap(queue_);
  }
  for (const auto& job : jobs) job();
}

// Returns whether anything advanced.
bool Engine::advance() {
  const bool messages = advance_messages(), workers = advance_workers();
  return messages || workers;
}

bool Engine::advance_workers() {
  bool moved = false;
  for (const WorkerPtr& worker : workers_) moved |= worker->advance();
  std::erase_if(workers_, [](const WorkerPtr& worker) { return worker->idle(); });
  return moved;
}

// Tests all messages in progress once. Returns whether any has completed.
bool Engine::advance_messages() {
  if (requests_.empty()) return false;
  const int n = requests_.size();
  std::vector<int> indices(n);
  std::vector<MPI_Status> statuses(n);
  int count = 0;
  const int code = MPI_Testsome(n, requests_.data(), &count, indices.data(), statuses.data());
  if (count == MPI_UNDEFINED || count == 0) return false;

  struct Over {
    Pending pending;
    std::string error;
  };
  std::vector<Over> over;
  for (int i = 0; i < count; ++i) {
    Over done{pending_[indices[i]], ""};
    int bytes = 0;
    if (code != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_SUCCESS) {
      done.error = error_text(statuses[i].MPI_ERROR);
    } else if (done.pending.expected >= 0) {
      MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
      if (bytes != done.pending.expected)
        done.error = cat("rank ", done.pending.transfer.peer, " of the group sent ", bytes, " bytes where ",
                         done.pending.expected, " were expected: the ranks disagree about this operation");
    }
    over.push_back(std::move(done));
  }
  // Remove completed entries before operations post more.
  std::sort(indices.begin(), indices.begin() + count, std::greater<int>());
  for (int i = 0; i < count; ++i) {
    requests_[indices[i]] = requests_.back();
    pending_[indices[i]] = pending_.back();
    requests_.pop_back();
    pending_.pop_back();
  }
  // If ranks disagree, comparing their requests explains more than the sizes of their messages.
  std::stable_partition(over.begin(), over.end(),
                        [](const Over& one) { return one.pending.transfer.kind == Transfer::kAgreement; });
  for (const Over& done : over) {
    Operation& operation = *done.pending.operation;
    if (!done.error.empty()) fail(operation, done.error);
    if (!operation.failed_) operation.completed(*this, done.pending.transfer);
    --operation.outstanding_;
    settle(operation);
  }
  return true;
}

void Engine::live() {
  prctl(PR_SET_TIMERSLACK, 1000);  // sleeps take 20 us, not 70
  Clock::time_point last_progress = Clock::now();
  microseconds sleep = kFirstSleep;
  for (;;) {
    start_queued();
    if (advance()) {
      last_progress = Clock::now();
      sleep = kFirstSleep;
      continue;
    }
    std::unique_lock lock(mutex_);
    const auto has_work = [&] { return !queue_.empty() || (stopping_ && is_idle()); };
    if (is_idle()) {
      flight_ring().beat();
      if (!wake_.wait_for(lock, kBeat, has_work)) continue;
      if (queue_.empty()) break;  // stopping_ is set
      last_progress = Clock::now();
    } else if (Clock::now() - last_progress < kSpin) {
      lock.unlock();
      std::this_thread::yield();
    } else {
      flight_ring().beat();
      if (wake_.wait_for(lock, sleep, [&] { return !queue_.empty(); })) last_progress = Clock::now();
      sleep = std::min(2 * sleep, kLongestSleep);
    }
  }
  if (owns_mpi_) MPI_Finalize();
  ended_ = true;
}

}  // namespace shardline::mpi
