// The one thread of this process that makes MPI calls, and the operations it runs. Internal to the mpi communicator.
#pragma once
#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace shardline::mpi {

class Engine;

// One message in progress. Two messages of equal (source, tag) arrive in the order in which both sides post them.
struct Transfer {
  static constexpr int kAgreement = -1;  // a peer's request: handled before other messages of the same poll

  int kind = 0;  // kAgreement, or a kind that the operation defines
  int peer = 0;  // rank in the group
  int64_t chunk = 0;
};

// An operation that consists of several messages. begin() and completed() run on the engine's thread and post
// transfers; the operation ends when none is left.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void begin(Engine& engine) = 0;
  virtual void completed(Engine& engine, const Transfer& transfer) = 0;
  // Called after success, before finished(), so that a waiting thread never finds the tensors still held.
  virtual void let_go() = 0;
  // Called once, on the engine's thread; `error` is "" on success.
  virtual void finished(const std::string& error) = 0;

 private:
  friend class Engine;
  int outstanding_ = 0;
  bool failed_ = false;
};
using OperationPtr = std::shared_ptr<Operation>;

// Work that needs no messages and advances step by step on the engine's thread.
class Worker {
 public:
  virtual ~Worker() = default;
  virtual bool advance() = 0;  // false if nothing could advance
  virtual bool idle() const = 0;
};
using WorkerPtr = std::shared_ptr<Worker>;

class Engine {
 public:
  // The engine of this process. Starts its thread and, unless it is already running, MPI. Exists as long as there are
  // references to it.
  static std::shared_ptr<Engine> of_process();
  ~Engine();

  const std::string& library() const { return library_; }

  void submit(OperationPtr operation);
  // Runs `job`, which gives the worker something to do, and advances the worker until it is idle.
  void submit(WorkerPtr worker, std::function<void()> job);
  // Runs fn on the engine's thread and waits for it, at most for the start-up limit. Rethrows exceptions of fn here.
  void call(const std::function<void()>& fn, const char* what);
  // Passes the reason to the handler, then ends the job. Does not return.
  [[noreturn]] void abort(const std::string& reason);

  // Operations call these three functions on the engine's thread.
  void send(Operation& operation, Transfer transfer, const void* data, size_t bytes, MPI_Comm comm, int to, int tag);
  void receive(Operation& operation, Transfer transfer, void* data, size_t bytes, MPI_Comm comm, int from, int tag);
  // Ends the operation with this error; messages that it has not yet received are dropped.
  void fail(Operation& operation, const std::string& reason);

 private:
  struct Pending {
    Operation* operation;
    Transfer transfer;
    int expected;  // bytes, -1 for a send
  };

  Engine() = default;
  void start();
  void live();
  void initialise();
  void start_queued();
  bool advance();
  bool advance_messages();
  bool advance_workers();
  bool is_idle() const { return requests_.empty() && workers_.empty(); }
  void settle(Operation& operation);
  void post(Operation& operation, const Transfer& transfer, int expected, MPI_Request request, int code);

  std::thread thread_;
  std::string library_;
  bool owns_mpi_ = false;

  std::mutex mutex_;  // guards queue_ and stopping_
  std::condition_variable wake_;
  std::vector<std::function<void()>> queue_;
  bool stopping_ = false;
  std::atomic<bool> ended_{false};

  // Used only by the engine's thread: parallel arrays, because MPI_Testsome needs an array of requests.
  std::vector<MPI_Request> requests_;
  std::vector<Pending> pending_;
  std::vector<OperationPtr> active_;

  std::vector<WorkerPtr> workers_;  // used only by the engine's thread
};

std::string error_text(int code);
std::function<void(const std::string&)>& abort_handler();

}  // namespace shardline::mpi
