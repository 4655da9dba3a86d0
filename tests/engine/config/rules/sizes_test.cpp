#include "engine/config/rules/sizes.h"

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::sizes_test {

using Catch::Matchers::Contains;

namespace {

Config layout(int pipeline, int tensor, int microbatches) {
  Config config;
  config.smp.pipeline_parallel_degree = pipeline;
  config.smp.tensor_parallel_degree = tensor;
  config.smp.microbatches = microbatches;
  return config;
}

std::string error_of(const Config& config, int world_size) {
  try {
    resolve_sizes(config, world_size);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

void check_product(const Layout& sizes, const Config& config) {
  CHECK(sizes.microbatches_per_accumulation() == config.smp.microbatches);
  CHECK(sizes.microbatches == config.smp.microbatches * sizes.accumulation_steps);
  if (config.training.global_batch_size) CHECK(sizes.global_batch() == *config.training.global_batch_size);
}

}  // namespace

TEST_CASE("Sizes follow from the batch of a device", "[sizes]") {
  Config config = layout(2, 2, 4);
  config.training.per_device_train_batch_size = 8;
  config.training.gradient_accumulation_steps = 3;
  Layout sizes = resolve_sizes(config, 8);
  check_product(sizes, config);
  CHECK(sizes.replicas == 2);
  CHECK(sizes.replica_batch() == 16);  // each tensor-parallel rank contributes other samples
  CHECK(sizes.microbatch_size == 4);
  CHECK(sizes.accumulation_steps == 3);
  CHECK(sizes.loader_batches == 3);
  CHECK(sizes.global_batch() == 96);
  CHECK(sizes.eval_batch == 16);

  config.smp.prescaled_batch = true;
  sizes = resolve_sizes(config, 8);
  check_product(sizes, config);
  CHECK(sizes.replica_batch() == 8);
  CHECK(sizes.global_batch() == 48);
  CHECK(sizes.eval_batch == 8);
}

TEST_CASE("Sizes follow from the global batch", "[sizes]") {
  Config config = layout(2, 2, 4);
  config.training.global_batch_size = 64;
  Layout sizes = resolve_sizes(config, 8);
  check_product(sizes, config);
  CHECK(sizes.replica_batch() == 32);
  CHECK(sizes.accumulation_steps == 1);

  config.training.gradient_accumulation_steps = 2;
  sizes = resolve_sizes(config, 8);
  check_product(sizes, config);
  CHECK(sizes.microbatch_size == 4);

  config.training.gradient_accumulation_steps.reset();
  config.training.per_device_train_batch_size = 2;
  sizes = resolve_sizes(config, 8);
  check_product(sizes, config);
  CHECK(sizes.replica_batch() == 4);
  CHECK(sizes.accumulation_steps == 8);
  CHECK(sizes.loader_batches == 1);  // the samples of a step must not depend on how they are dealt to the ranks

  config.training.gradient_accumulation_steps = 8;
  CHECK(resolve_sizes(config, 8) == sizes);
  config.training.gradient_accumulation_steps = 4;
  CHECK_THAT(error_of(config, 8), Contains("training.global_batch_size: contradicts"));
}

TEST_CASE("Sizes that do not divide are refused, and the error suggests the nearest ones that do", "[sizes]") {
  CHECK_THAT(error_of(layout(2, 2, 1), 6),
             Contains("the world size 6 must be a multiple of P x T = 2 x 2 = 4; start 4 or 8"));
  CHECK_THAT(error_of(layout(2, 2, 1), 2), Contains("start 4 processes"));

  Config config = layout(1, 1, 4);
  config.training.per_device_train_batch_size = 10;
  CHECK_THAT(error_of(config, 1), Contains("change microbatches to 2 or 5, or per_device_train_batch_size to 8 or 12"));
  config.smp.tensor_parallel_degree = 2;  // the replica's batch is 20
  CHECK(error_of(config, 2) == "no error");
  config.smp.prescaled_batch = true;
  CHECK_THAT(error_of(config, 2), Contains("(per_device_train_batch_size 10 x 1, prescaled)"));

  config = layout(1, 1, 4);
  config.training.global_batch_size = 30;
  CHECK_THAT(error_of(config, 2),
             Contains("must be a multiple of D x microbatches = 2 x 4 = 8; change it to 24 or 32"));
  config.training.gradient_accumulation_steps = 3;
  CHECK_THAT(error_of(config, 2), Contains("2 x 4 x gradient_accumulation_steps 3 = 24; change it to 24 or 48"));
  config.training.global_batch_size = 5;
  CHECK_THAT(error_of(config, 2), Contains("change it to 24"));
}

TEST_CASE("Products that are too large to compute with are refused", "[sizes]") {
  Config config = layout(1, 1, 65536);
  config.training.per_device_train_batch_size = 65536;
  config.training.gradient_accumulation_steps = 65536;
  CHECK_THAT(error_of(config, 1), Contains("65536 x 65536 accumulation steps = 4294967296 microbatches"));
  config.training.gradient_accumulation_steps = 16;
  CHECK(resolve_sizes(config, 1).microbatches == 1 << 20);

  Config by_global = layout(1, 1, 1);
  by_global.training.global_batch_size = 2147483647;
  by_global.training.per_device_train_batch_size = 1;
  CHECK_THAT(error_of(by_global, 1), Contains("1 x 2147483647 accumulation steps = 2147483647 microbatches"));
  by_global.training.per_device_train_batch_size.reset();
  CHECK_THAT(error_of(by_global, 1), Contains("2147483647 samples x data.sequence_length 1024 = 2199023254528 tokens"));
}

TEST_CASE("Every advised neighbour is accepted", "[sizes]") {
  for (int tensor : {1, 2, 3})
    for (int microbatches = 1; microbatches <= 12; ++microbatches)
      for (int batch = 1; batch <= 24; ++batch) {
        Config config = layout(1, tensor, microbatches);
        config.training.per_device_train_batch_size = batch;
        const std::string message = error_of(config, tensor);
        CHECK((message == "no error") == (batch * tensor % microbatches == 0));
        if (message == "no error") continue;
        const auto number_after = [&](const std::string& text) {
          return std::stoi(message.substr(message.find(text) + text.size()));
        };
        Config other = config;
        other.smp.microbatches = number_after("change microbatches to ");
        CHECK(error_of(other, tensor) == "no error");
        other = config;
        other.training.per_device_train_batch_size = number_after("or per_device_train_batch_size to ");
        CHECK(error_of(other, tensor) == "no error");
      }
}

TEST_CASE("The world size follows from the hosts, or else from the degrees", "[sizes]") {
  Config config = layout(3, 2, 1);
  CHECK(configured_world_size(config) == 6);
  config.mpi.processes_per_host = 12;
  CHECK(configured_world_size(config) == 12);
  config.mpi.hosts = {"a", "b"};
  CHECK(configured_world_size(config) == 24);
  config.smp.ddp = false;
  CHECK_THAT(error_of(config, 24), Contains("smp_options.ddp: must be true with 4 replicas"));
}

}  // namespace shardline::sizes_test
