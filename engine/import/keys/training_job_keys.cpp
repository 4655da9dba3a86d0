// The output of describe-training-job.
#include <string>

#include "core/error.h"
#include "engine/import/keys/job_facts.h"
#include "engine/import/keys/values.h"
#include "engine/import/keys/vocabulary.h"

namespace shardline {
namespace {

using Keys = std::vector<ForeignKey>;

// "InputDataConfig", "0", ...: the name of the channel that a key belongs to.
std::string channel_of(const Given& given) {
  return plain_text(given.at({given.steps.at(0), given.steps.at(1), "ChannelName"}));
}

std::string folder_of(const Given& given) {
  return cat(kContainerFolder, "/input/data/", channel_of(given));
}

Outcome read_restarts(const Given& given, Draft& draft) {
  return draft.give("mpi_options.max_restarts", given.value, given.name);
}

Keys channel_keys() {
  const std::string channel = "InputDataConfig.*.", s3 = channel + "DataSource.S3DataSource.",
                    system = channel + "DataSource.FileSystemDataSource.";
  return {
      ignores(channel + "ChannelName", "the location determines where its files go"),
      reads_channel(s3 + "S3Uri",
                    "by the name of the channel: /opt/ml/input/data/NAME, or the path of --channel NAME=PATH",
                    channel_of, folder_of),
      ignores(s3 + "S3DataType", "nothing is read from S3"),
      reads(s3 + "S3DataDistributionType", "", "FullyReplicated; others are refused", read_replication),
      refuses(s3 + "AttributeNames", "augmented manifests are not read; give the files"),
      ignores(s3 + "InstanceGroupNames", "each host has all files"),
      ignores(s3 + "ModelAccessConfig", "nothing is downloaded"),
      ignores(s3 + "HubAccessConfig", "nothing is downloaded"),
      ignores(system + "FileSystemId", "the channel's folder has the files"),
      ignores(system + "FileSystemType", "the channel's folder has the files"),
      ignores(system + "FileSystemAccessMode", "data is only read"),
      reads_channel(system + "DirectoryPath", "as S3Uri", channel_of, folder_of),
      ignores(channel + "ContentType", "data.format depends on the files"),
      refuses(channel + "CompressionType", "unpack the files", "None"),
      refuses(channel + "RecordWrapperType", "files are read as they are; leave it out", "None"),
      reads(channel + "InputMode", "", "File and FastFile; Pipe is refused", read_input_mode),
      maps(channel + "ShuffleConfig.Seed", "training.data_seed"),
  };
}

// Keys that do not describe the work.
Keys keys_of_job_service() {
  Keys keys;
  const auto add = [&](const std::string& reason, const std::vector<const char*>& names) {
    for (const char* name : names) keys.push_back(ignores(name, reason));
  };
  add("output_dir names the run", {"TrainingJobName"});
  add("describes the finished job, not the next one", {"TrainingJobArn",
                                                       "TuningJobArn",
                                                       "LabelingJobArn",
                                                       "AutoMLJobArn",
                                                       "ModelArtifacts",
                                                       "TrainingJobStatus",
                                                       "SecondaryStatus",
                                                       "FailureReason",
                                                       "CreationTime",
                                                       "TrainingStartTime",
                                                       "TrainingEndTime",
                                                       "LastModifiedTime",
                                                       "SecondaryStatusTransitions",
                                                       "FinalMetricDataList",
                                                       "TrainingTimeInSeconds",
                                                       "BillableTimeInSeconds",
                                                       "DebugRuleEvaluationStatuses",
                                                       "ProfilerRuleEvaluationStatuses",
                                                       "ProfilingStatus",
                                                       "WarmPoolStatus",
                                                       "OutputModelPackageArn",
                                                       "ModelPackageConfig",
                                                       "ServerlessJobConfig",
                                                       "MlflowDetails",
                                                       "MlflowConfig",
                                                       "ProgressInfo",
                                                       "ResponseMetadata"});
  add("no service is called, so no permissions are needed", {"RoleArn"});
  add("shardline is the program",
      {"AlgorithmSpecification.TrainingImage", "AlgorithmSpecification.AlgorithmName",
       "AlgorithmSpecification.ContainerEntrypoint", "AlgorithmSpecification.ContainerArguments",
       "AlgorithmSpecification.TrainingImageConfig"});
  add("metrics.jsonl has all numbers of a run; the output of the job is not searched for them",
      {"AlgorithmSpecification.MetricDefinitions", "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries"});
  add("nothing is copied to or from S3", {"OutputDataConfig.S3OutputPath", "OutputDataConfig.KmsKeyId",
                                          "OutputDataConfig.CompressionType", "TensorBoardOutputConfig.S3OutputPath"});
  add("the machines' own disks are used", {"ResourceConfig.VolumeSizeInGB", "ResourceConfig.VolumeKmsKeyId"});
  add("shardline does not rent machines",
      {"ResourceConfig.KeepAlivePeriodInSeconds", "ResourceConfig.TrainingPlanArn",
       "ResourceConfig.InstancePlacementConfig", "StoppingCondition.MaxWaitTimeInSeconds",
       "StoppingCondition.MaxPendingTimeInSeconds"});
  add("the machines' own networks are used", {"VpcConfig.SecurityGroupIds", "VpcConfig.Subnets",
                                              "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption"});
  add("use the timeline of a run (runtime.timeline_steps)",
      {"DebugHookConfig", "DebugRuleConfigurations", "ProfilerConfig", "ProfilerRuleConfigurations"});
  add("TensorBoard's events are in output_dir (report_to)", {"TensorBoardOutputConfig.LocalPath"});
  add("set variables where shardline is started; `-x NAME` in custom_mpi_options passes them to other hosts",
      {"Environment"});
  add("has no meaning here",
      {"ExperimentConfig", "Tags", "InfraCheckConfig", "RemoteDebugConfig", "SessionChainingConfig"});
  return keys;
}

}  // namespace

const Vocabulary& training_job_keys() {
  static const Vocabulary keys = [] {
    Vocabulary all{
        .title = "describe-training-job",
        .introduction = "The JSON that `aws sagemaker describe-training-job` prints.",
        .keys = {
            holds("HyperParameters", hyperparameter_keys),
            reads("AlgorithmSpecification.TrainingInputMode", "", "File and FastFile; Pipe is refused",
                  read_input_mode),
            reads_instance_type("ResourceConfig.InstanceType"),
            reads_instance_count("ResourceConfig.InstanceCount"),
            refuses("ResourceConfig.InstanceGroups", "all hosts have the same number of ranks; give one type of them"),
            maps("StoppingCondition.MaxRuntimeInSeconds", "training.max_run_seconds"),
            reads("EnableManagedSpotTraining", "training.resume_from_checkpoint", "auto", read_spot).in_phase(1),
            reads("CheckpointConfig.LocalPath", "training.checkpoint_dir", "", read_local_checkpoints).in_phase(1),
            reads("CheckpointConfig.S3Uri", "training.checkpoint_dir", "/opt/ml/checkpoints unless LocalPath is given",
                  read_stored_checkpoints)
                .in_phase(2),
            reads("RetryStrategy.MaximumRetryAttempts", "mpi_options.max_restarts", "", read_restarts),
        }};
    for (const auto& group : {channel_keys(), keys_of_job_service()})
      all.keys.insert(all.keys.end(), group.begin(), group.end());
    return all;
  }();
  return keys;
}

}  // namespace shardline
