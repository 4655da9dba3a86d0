#include "engine/data/cache/ordered_work.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "core/error.h"

namespace shardline {
namespace {

struct Result {
  EncodedPiece piece;
  std::exception_ptr error;
};

class Pool {
 public:
  Pool(int64_t count, int threads, const std::function<EncodedPiece(int64_t)>& make)
      : count_(count), window_(int64_t{4} * threads), make_(make) {
    for (int i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }

  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }  // the threads are joined by their own destructors

  EncodedPiece take(int64_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_.count(index) > 0; });
    Result result = std::move(ready_[index]);
    ready_.erase(index);
    taken_ = index + 1;
    changed_.notify_all();
    if (result.error) std::rethrow_exception(result.error);
    return std::move(result.piece);
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopped_ || next_ == count_ || next_ < taken_ + window_; });
      if (stopped_ || next_ == count_) return;
      const int64_t index = next_++;
      lock.unlock();
      Result result;
      try {
        result.piece = make_(index);
      } catch (...) {
        result.error = std::current_exception();
      }
      lock.lock();
      ready_[index] = std::move(result);
      changed_.notify_all();
    }
  }

  const int64_t count_;
  const int64_t window_;
  const std::function<EncodedPiece(int64_t)>& make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_ = 0;   // next item to make
  int64_t taken_ = 0;  // items used
  bool stopped_ = false;
  std::map<int64_t, Result> ready_;
  std::vector<std::jthread> workers_;
};

}  // namespace

void ordered_work(int64_t count, int threads, const std::function<EncodedPiece(int64_t)>& make,
                  const std::function<void(int64_t, EncodedPiece)>& use) {
  SL_ASSERT(threads >= 1, "threads is ", threads);
  Pool pool(count, threads, make);
  for (int64_t i = 0; i < count; ++i) use(i, pool.take(i));
}

}  // namespace shardline
