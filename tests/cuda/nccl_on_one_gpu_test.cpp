// NCCL itself, as far as one GPU allows: a world of one rank starts, splits, runs each operation on a stream, and ends.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>

#include "core/comm/local_communicator.h"
#include "core/comm/nccl/nccl_communicator.h"
#include "core/device/accelerator.h"
#include "core/error.h"

#include "tests/catch.h"

namespace shardline::nccl_on_one_gpu_test {
namespace {

TEST_CASE("NCCL works on one GPU") {
  const at::Device gpu = accelerator(0);
  const c10::DeviceGuard on_gpu(gpu);
  set_current_rank(0);
  const CommunicatorPtr world = make_nccl_world(make_local_world(), 0);
  for (const auto& comm : {world, world->split(3, "tp")}) {
    CAPTURE(comm->name());
    const at::Tensor values = at::arange(1 << 20, at::TensorOptions(at::kFloat).device(gpu)), copy = values.clone();
    comm->all_reduce(values)->wait();
    CHECK(at::equal(values, copy));
    comm->broadcast(values, 0)->wait();
    const at::Tensor gathered = at::zeros_like(values), scattered = at::zeros_like(values),
                     exchanged = at::zeros_like(values), received = at::zeros_like(values);
    comm->all_gather(gathered, values)->wait();
    comm->reduce_scatter(scattered, values)->wait();
    comm->all_to_all(exchanged, values)->wait();
    const WorkPtr sent = comm->send(values, 0), message = comm->recv(received, 0);
    message->wait();
    sent->wait();
    for (const auto& result : {gathered, scattered, exchanged, received}) CHECK(at::equal(result, copy));
    comm->barrier();
  }
  CHECK(waited_seconds() >= 0);
}

}  // namespace
}  // namespace shardline::nccl_on_one_gpu_test
