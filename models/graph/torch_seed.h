// Torch's own modules take their initial values from torch's global generator. Training never uses it, but a module
// created under a seed has the same values on every rank.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>

namespace shardline {

// Seeds the CPU generator, and restores its state at the end. Only one exists at a time in a process; others wait.
class TorchSeed {
 public:
  explicit TorchSeed(uint64_t seed);
  ~TorchSeed();
  TorchSeed(const TorchSeed&) = delete;
  TorchSeed& operator=(const TorchSeed&) = delete;

  bool drawn() const;  // whether random numbers were drawn since construction or the last call of restart
  void restart();

 private:
  std::lock_guard<std::mutex> alone_;
  at::Tensor before_, start_;
};

}  // namespace shardline
