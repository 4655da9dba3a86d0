// The messages of a pipeline over NCCL.
#include "pipeline/run/messages.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <vector>

#include "core/device/accelerator.h"
#include "tests/core/comm/communicator_suite.h"
#include "tests/fake_nccl/device_ranks.h"

#include "tests/catch.h"

namespace shardline::messages_test {
namespace {

using namespace std::chrono_literals;

bool sends(const Instruction& instruction) {
  return instruction.op == Op::send_activation;
}

}  // namespace

TEST_CASE("a message leaves without further calls while NCCL is still busy with the one before") {
  const testing::Limits limits(2s);
  const Schedule schedule = forward_schedule(2, 3);
  testing::run_over_nccl(2, [&](CommunicatorPtr world, CommunicatorPtr control) {
    const auto options = at::TensorOptions(at::kFloat).device(fake::device(world->rank()));
    Messages messages(*world, options);
    messages.begin(
        schedule, [](const Instruction&) { return std::vector<std::vector<int64_t>>{{4}}; }, true);
    fake::nccl_trouble().busy_questions = 10;
    for (const Instruction& instruction : schedule.instructions[world->rank()]) {
      if (sends(instruction)) messages.send({at::full({4}, instruction.microbatch, options)}, instruction);
      if (instruction.op != Op::recv_activation) continue;
      const at::Tensor received = on_host(messages.receive(instruction).at(0), "a test looks");
      EXPECT(received[0].item<float>() == static_cast<float>(instruction.microbatch));
    }
    // Until the other rank has received all messages, the first rank's host does nothing that NCCL notices.
    const at::Tensor token = at::zeros({1});
    (world->rank() == 0 ? control->recv(token, 1) : control->send(token, 0))->wait();
    messages.finish();
  });
  CHECK(fake::take_faults().empty());
  CHECK(fake::take_nccl_faults().empty());
}

// NCCL connects with the first message of a channel, and may then wait for everything that runs on the device.
TEST_CASE("each channel has carried a message before a run begins") {
  const Schedule schedule = forward_schedule(2, 3);
  std::vector<std::string> calls[2];
  testing::run_over_nccl(2, [&](CommunicatorPtr world, CommunicatorPtr) {
    fake::take_nccl_calls();
    Messages messages(*world, at::TensorOptions(at::kFloat).device(fake::device(world->rank())));
    messages.begin(
        schedule, [](const Instruction&) { return std::vector<std::vector<int64_t>>{{4}}; }, false);
    for (const auto& call : fake::take_nccl_calls())
      if (call.starts_with("send") || call.starts_with("recv")) calls[world->rank()].push_back(call);
    world->barrier();
  });
  CHECK(calls[0] == std::vector<std::string>{"send 1 to 1", "recv 1 from 1"});
  CHECK(calls[1] == std::vector<std::string>{"recv 1 from 0", "send 1 to 0"});
  CHECK(fake::take_faults().empty());
  CHECK(fake::take_nccl_faults().empty());
}

// The first step posts nothing ahead; anything more that the second step needs would be allocated while receives wait.
TEST_CASE("receives take as much memory whether they are posted ahead or not") {
  const Schedule schedule = forward_schedule(2, 3);
  std::vector<int64_t> allocated[2];  // on the second stage, after each instruction
  testing::run_over_nccl(2, [&](CommunicatorPtr world, CommunicatorPtr) {
    const at::Device device = fake::device(world->rank());
    const auto options = at::TensorOptions(at::kFloat).device(device);
    Messages messages(*world, options);
    const int64_t before = device_memory(device).allocated;
    for (const bool posts_ahead : {false, true}) {
      messages.begin(
          schedule, [](const Instruction&) { return std::vector<std::vector<int64_t>>{{1000}}; }, posts_ahead);
      for (const Instruction& instruction : schedule.instructions[world->rank()]) {
        if (sends(instruction)) messages.send({at::full({1000}, 1, options)}, instruction);
        Border border;
        if (instruction.op == Op::recv_activation) border = messages.receive(instruction);
        if (world->rank() == 1) allocated[posts_ahead].push_back(device_memory(device).allocated - before);
      }
      messages.finish();
    }
    world->barrier();
  });
  CHECK(allocated[0] == allocated[1]);
  CHECK(fake::take_faults().empty());
  CHECK(fake::take_nccl_faults().empty());
}

}  // namespace shardline::messages_test
