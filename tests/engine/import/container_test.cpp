#include "engine/import/container.h"

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "engine/import/import.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::container_test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using nlohmann::json;

class Tree {
 public:
  Tree() { fs::create_directories(folder() / "input/config"); }
  void write(const std::string& name, const json& value) {
    std::ofstream(folder() / "input/config" / (name + ".json")) << value.dump();
  }
  fs::path folder() const { return fs::path(scratch_.path()) / "ml"; }
  Import import(const Variables& variables = {}) const {
    const auto job = read_container_job(folder().string(), variables);
    return import_job({job.file}, {}, [](const std::string& path) -> std::string { throw ConfigError(path); });
  }

 private:
  ScratchFolder scratch_;
};

}  // namespace

TEST_CASE("a container's files become a config") {
  Tree tree;
  tree.write("hyperparameters", {{"model_type", "\"gpt2\""}, {"max_steps", "3"}, {"learning_rate", "1e-3"}});
  tree.write("resourceconfig", {{"current_host", "algo-1"},
                                {"hosts", {"algo-1"}},
                                {"network_interface_name", "eth0"},
                                {"current_instance_type", "ml.p3.8xlarge"}});
  tree.write(
      "inputdataconfig",
      {{"train",
        {{"TrainingInputMode", "File"}, {"S3DistributionType", "FullyReplicated"}, {"RecordWrapperType", "None"}}}});
  const Import import = tree.import();
  INFO(refusals_text(import));
  CHECK(import.refused().empty());
  const std::string folder = tree.folder().string();
  CHECK(import.config["output_dir"] == folder + "/model");
  CHECK(import.config["data"]["train"] == folder + "/input/data/train");
  CHECK(import.config["training"]["checkpoint_dir"] == folder + "/checkpoints");
  CHECK(import.config["training"]["resume_from_checkpoint"] == "auto");
  CHECK(import.config["training"]["max_steps"] == 3);
  CHECK(import.config["mpi_options"] == json{{"processes_per_host", 4}});
  CHECK(read_container_job(folder, {}).output_data == folder + "/output/data");
}

TEST_CASE("variables that a toolkit has set take precedence over the files") {
  Tree tree;
  tree.write("hyperparameters", {{"learning-rate", "1e-3"}, {"max_steps", "3"}, {"seed", "1"}});
  tree.write("inputdataconfig", {{"train", {{"TrainingInputMode", "File"}}}});
  const Import import = tree.import({{"SM_HPS", R"({"max_steps": 5, "model_name_or_path": null})"},
                                     {"SM_HP_MODEL_NAME_OR_PATH", ""},
                                     {"SM_HP_LEARNING_RATE", "0.002"},
                                     {"SM_HP_MP_PARAMETERS", R"({"partitions": 2, "microbatches": 2})"},
                                     {"SM_FRAMEWORK_PARAMS", R"({"sagemaker_mpi_num_of_processes_per_host": 2})"},
                                     {"SM_CHANNEL_TRAIN", "/data/here"},
                                     {"SM_CHANNEL_VALIDATION", "/data/there"},
                                     {"SM_MODEL_DIR", "/models/1"},
                                     {"SM_OUTPUT_DATA_DIR", "/output/data"}});
  INFO(import_table(import));
  CHECK(import.refused().empty());
  CHECK(import.config["training"]["max_steps"] == 5);
  CHECK_FALSE(import.config.contains("model"));
  CHECK(import.config["training"]["learning_rate"] == 0.002);
  CHECK(import.config["training"]["seed"] == 1);
  CHECK(import.config["smp_options"]["pipeline_parallel_degree"] == 2);
  CHECK(import.config["mpi_options"]["processes_per_host"] == 2);
  CHECK(import.config["data"]["train"] == "/data/here");
  CHECK(import.config["data"]["validation"] == "/data/there");
  CHECK(import.config["output_dir"] == "/models/1");
  const auto job = read_container_job(tree.folder().string(), {{"SM_OUTPUT_DATA_DIR", "/output/data"}});
  CHECK(job.output_data == "/output/data");
}

TEST_CASE("hosts are in the same order on each host, and the first one starts the ranks") {
  Tree tree;
  tree.write(
      "resourceconfig",
      {{"current_host", "algo-2"}, {"hosts", {"algo-10", "algo-2", "algo-1"}}, {"network_interface_name", "eth0"}});
  const auto job = read_container_job(tree.folder().string(), {});
  CHECK(job.hosts == std::vector<std::string>{"algo-1", "algo-2", "algo-10"});
  CHECK(!job.is_first());
  CHECK(read_container_job(tree.folder().string(), {{"SM_CURRENT_HOST", "algo-1"}}).is_first());
  const json mpi = tree.import().config["mpi_options"];
  CHECK(mpi["hosts"] == json{"algo-1", "algo-2", "algo-10"});
  CHECK(mpi["processes_per_host"] == 1);
  CHECK(mpi["custom_mpi_options"] == "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0");
  CHECK(read_container_job(tree.folder().string(), {{"SM_HOSTS", R"(["algo-2"])"}}).is_first());
  CHECK_THROWS_WITH(read_container_job(tree.folder().string(), {{"SM_CURRENT_HOST", "algo-3"}}),
                    Contains("must be one of the hosts"));
}

TEST_CASE("pipe mode is refused by name") {
  Tree tree;
  tree.write("inputdataconfig", {{"train", {{"TrainingInputMode", "Pipe"}}}});
  CHECK_THAT(refusals_text(tree.import()), Contains("inputdataconfig.train.TrainingInputMode") && Contains("\"Pipe\""));
}

TEST_CASE("a file that is not JSON is refused, and the error states the place") {
  Tree tree;
  std::ofstream(tree.folder() / "input/config/hyperparameters.json") << "{";
  CHECK_THROWS_WITH(tree.import(), Contains("hyperparameters.json:1"));
  tree.write("hyperparameters", {1});
  CHECK_THROWS_WITH(tree.import(), Contains("must be an object"));
  tree.write("hyperparameters", json::object());
  CHECK_THROWS_WITH(tree.import({{"SM_HPS", "x"}}), Contains("SM_HPS"));
}

}  // namespace shardline::container_test
