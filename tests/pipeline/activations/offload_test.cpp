#include "pipeline/activations/offload.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::offload_test {

TEST_CASE("tensors come back from the file as they went, in any order, and leave no file behind") {
  const auto directory = std::filesystem::temp_directory_path() / "shardline-offload-test";
  std::filesystem::create_directories(directory);
  const auto space = offload_to_file(directory);
  std::vector<at::Tensor> tensors;
  for (const int64_t rows : {1, 700, 0, 3, 700})
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) tensors.push_back(at::randn({rows, 33}).to(type));
  tensors.push_back(at::randn({40, 50}).t());  // not contiguous
  for (int round = 0; round < 3; ++round) {    // space is reused
    std::vector<std::unique_ptr<Away>> away;
    for (const auto& tensor : tensors) away.push_back(space->store({tensor, tensor}));
    for (size_t i = tensors.size(); i-- > 0;) CHECK(away[i]->fetch() == 2 * static_cast<int64_t>(tensors[i].nbytes()));
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto both = away[i]->take();
      REQUIRE(both.size() == 2);
      for (const auto& back : both) {
        CHECK(back.scalar_type() == tensors[i].scalar_type());
        CHECK(at::equal(back, tensors[i]));
      }
    }
    space->store({tensors[1]})->fetch();  // never taken
  }
  CHECK(std::filesystem::is_empty(directory));
  std::filesystem::remove(directory);
}

TEST_CASE("a missing directory is an error in the config, and the error about a full disk states what to do") {
  CHECK_THROWS_WITH(offload_to_file("/nowhere/at/all"), Catch::Contains("/smp_options/offload_path") &&
                                                            Catch::Contains("/nowhere/at/all") &&
                                                            Catch::Contains("No such file"));
  const auto space = offload_to_file(std::filesystem::temp_directory_path());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 10000;
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    space->store({at::full({100, 100}, 1.0)});
  } catch (const RunError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  CHECK_THAT(message, Catch::Contains("could not be written") && Catch::Contains("smp_options.offload_path"));
}

}  // namespace shardline::offload_test
