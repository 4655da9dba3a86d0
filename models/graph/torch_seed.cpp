#include "models/graph/torch_seed.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>

namespace shardline {
namespace {

std::mutex& generator_mutex() {
  static std::mutex mutex;
  return mutex;
}

at::Tensor state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_state(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

TorchSeed::TorchSeed(uint64_t seed) : alone_(generator_mutex()), before_(state()) {
  auto generator = at::detail::getDefaultCPUGenerator();
  {
    const std::scoped_lock lock(generator.mutex());
    generator.set_current_seed(seed);
  }
  restart();
}

TorchSeed::~TorchSeed() {
  set_state(before_);
}

bool TorchSeed::drawn() const {
  return !at::equal(start_, state());
}

void TorchSeed::restart() {
  start_ = state();
}

}  // namespace shardline
