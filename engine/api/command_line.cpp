// shardline::run: reads the command line, starts the ranks, and turns errors into messages and exit codes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "core/comm/mpi_communicator.h"
#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/flight/flight_file.h"
#include "core/memory/caching_allocator.h"
#include "engine/api/registry.h"
#include "engine/api/serve_command.h"
#include "engine/commands/job.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/used_model.h"
#include "engine/commands/serve/serve_job.h"
#include "engine/commands/serve/server_attempts.h"
#include "engine/config/config.h"
#include "engine/config/key_help.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/config/schema.h"
#include "engine/import/container.h"
#include "engine/import/import_files.h"
#include "engine/launch/container_job.h"
#include "engine/launch/lifelines.h"
#include "engine/launch/start_ranks.h"
#include "engine/launch/stop_signals.h"
#include "engine/launch/stuck_threads.h"
#include "engine/launch/training_attempts.h"
#include "engine/observe/doctor/diagnosis_text.h"
#include "engine/observe/doctor/job_records.h"
#include "engine/plan/batch_size.h"
#include "engine/plan/layout_search.h"
#include "engine/report/report_job.h"
#include "engine/run/launcher_news.h"
#include "engine/run/output_dir.h"
#include "engine/run/ranks.h"
#include "engine/run/stop.h"
#include "engine/study/study_job.h"
#include "engine/tasks/labels.h"
#include "partitioner/layout/cluster.h"

namespace shardline {
namespace {

struct CommandLine {
  std::string config;  // a file, or for eval, predict and generate a model directory
  std::vector<std::string> overrides;
  bool json = false;
  std::string profile;
  PlanOptions plan;
  std::string cluster, measured, precision;
  std::optional<int> nodes;
  GenerateOptions generate;
  std::string output_dir;
  std::string predictions;
  StudyOptions study;
};

struct ImportLine {
  std::vector<std::string> files, channels;
  std::string to;
  ImportOptions options;
};

// Reads the config, adds the length of samples that are tensors, labels from the data if it gives none and, for
// training, the vocab_size of a larger tokenizer, and replaces "auto" by numbers, which are added to the command line's
// overrides. on_ranks: a process that mpirun has started is a rank, and the first rank determines all of this for the
// others (completed_config).
Config load(CommandLine& line, bool on_ranks, bool trains) {
  const Purpose purpose = trains ? Purpose::training : Purpose::other;
  const auto read = [&] {
    return std::filesystem::is_directory(line.config) ? config_of_directory(line.config, line.overrides)
                                                      : read_config(line.config, line.overrides, purpose);
  };
  const Config written = read();
  if (on_ranks && is_started_rank(written)) return written;
  const auto completed = [&](const Config& config) {
    return with_labels_of_data(with_sample_length(trains ? with_new_tokens(config) : config));
  };
  const Config config = completed(written);
  const Config numbered = with_chosen_degrees(config, line.plan.assumed);
  const Config fitting = trains ? with_fitting_batch(numbered, line.plan.assumed) : numbered;
  if (fitting != numbered) std::cerr << "auto_find_batch_size: " << batch_changes(numbered, fitting) << std::endl;
  const auto chosen = settings_between(config, fitting);
  if (chosen.empty()) return config;
  if (leaves_degrees_open(config)) line.plan.written = config;
  line.overrides.insert(line.overrides.end(), chosen.begin(), chosen.end());
  return completed(read());
}

// The arguments, with the settings that `load` has added to the command line.
std::vector<std::string> with_settings(std::vector<std::string> arguments, const CommandLine& line, size_t given) {
  for (size_t i = given; i < line.overrides.size(); ++i)
    arguments.insert(arguments.end(), {"--set", line.overrides[i]});
  return arguments;
}

// Whether the length of samples is the user's. A config without one has the default; for a directory, this is limited
// to the model's positions.
bool states_length(const CommandLine& line) {
  return !std::filesystem::is_directory(line.config) ||
         std::ranges::any_of(line.overrides,
                             [](const std::string& setting) { return setting.starts_with("data.sequence_length="); });
}

using Check = std::function<void(const Config&)>;
using RankCommand = std::function<void(const Config&, RankContext&)>;

void run_on_these_ranks(const Config& config, const RankCommand& command) {
  run_on_ranks(config, std::cout, console_of_job(), [&](RankContext& context) {
    run_with_end([&] { command(config, context); });
    if (context.first()) tell_launcher(News::finished);
  });
}

// Runs a command on all ranks. If ranks must be started first, `check` is called before that.
int on_ranks(CommandLine& line, const std::vector<std::string>& arguments, const Check& check,
             const RankCommand& command, bool trains = false) {
  const size_t given = line.overrides.size();
  const Config config = load(line, /*on_ranks=*/true, trains);
  if (!mpi_is_launched()) check(config);
  if (needs_mpirun(config)) return start_ranks(config, with_settings(arguments, line, given), std::cerr);
  run_on_these_ranks(config, command);
  return 0;
}

// Trains. The ranks may be started several times.
int run_training(CommandLine& line, const std::vector<std::string>& arguments) {
  const std::vector<std::string> given = line.overrides;
  const auto job_with = [&](const std::vector<std::string>& settings) {
    line.overrides = given;
    line.overrides.insert(line.overrides.end(), settings.begin(), settings.end());
    const Config config = load(line, /*on_ranks=*/true, /*trains=*/true);
    if (!mpi_is_launched()) check_train(config);
    return TrainingJob{config, with_settings(arguments, line, given.size())};
  };
  TrainingJob job = job_with({});
  if (!mpi_is_launched()) forget_earlier_request(job.config, std::cerr);
  if (needs_mpirun(job.config)) return train_on_ranks({job, line.plan.written.has_value(), job_with}, std::cerr);
  std::vector<std::string> changes;
  while (true) {
    std::optional<std::vector<std::string>> half;
    try {
      run_on_these_ranks(job.config, train_job);
      return 0;
    } catch (const OutOfMemory& error) {
      if (job.config.training.auto_find_batch_size && !mpi_is_launched()) half = settings_for_half_batch(job.config);
      if (!half) throw;
      std::cerr << error.what() << '\n';
    }
    changes.insert(changes.end(), half->begin(), half->end());
    const bool is_own = run_phase() != RunPhase::preparing || !job.config.training.overwrite_output_dir;
    if (is_own && resume_source(job.config).kind == ResumeSource::Kind::fresh)
      changes.push_back("training.resume_from_checkpoint=auto");
    enter_phase(RunPhase::preparing);
    const Config before = std::move(job.config);
    job = job_with(changes);
    std::cerr << "starting again with " << batch_changes(before, job.config) << std::endl;
  }
}

// `train` without a config: runs the job that a container's platform describes under /opt/ml.
int run_training_of_container(CommandLine& line) {
  const std::string folder = container_folder(environment_variables());
  if (!has_container_job(folder))
    throw ConfigError(cat("train needs a config file; it may be left out only in a container, where ", folder,
                          "/input/config describes the job (docs/sagemaker.md)"));
  const auto train = [&](const std::string& config) {
    line.config = config;
    line.overrides.clear();  // the config already contains them
    return run_training(line, {"train", config});
  };
  return run_container_job(folder, line.overrides, train, std::cerr);
}

void add_generate_options(CLI::App& app, CommandLine& line) {
  app.add_option("--prompt", line.generate.prompts, "Prompt to continue; may be repeated");
  app.add_option("--prompts", line.generate.prompts_file, "File with one prompt per line");
  app.add_option("--max-new-tokens", line.generate.max_new_tokens, "Maximum number of new tokens")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  // CLI11's own checks accept NaN.
  const CLI::Validator finite(
      [](const std::string& text) { return std::isfinite(std::atof(text.c_str())) ? "" : "must be a finite number"; },
      "");
  app.add_option("--temperature", line.generate.temperature, "Sampling temperature; 0: always the most likely token")
      ->capture_default_str()
      ->check(finite)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-k", line.generate.top_k, "Sample from the k most likely tokens; 0: from all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-p", line.generate.top_p, "Sample from the most likely tokens with this total probability")
      ->capture_default_str()
      ->check(finite)
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", line.generate.seed, "Seed of the random numbers")->capture_default_str();
}

void add_plan_options(CLI::App& app, CommandLine& line) {
  app.add_option("--svg", line.plan.svg, "Write a picture of the schedule to this file");
  app.add_option("--from-run", line.plan.from_run,
                 "Plan the run in this directory again and compare the plan with its measurements");
  app.add_option("--html", line.plan.html,
                 "Write an HTML page with the memory, the predicted step and the candidates to this file");
  app.add_option(
      "--cluster", line.cluster,
      "File that describes the machines (see configs/clusters), or local for this machine; adds times and memory");
  app.add_option("--profile", line.measured,
                 "File written by `shardline profile`; uses its measured times, implies --cluster local");
  app.add_option("--nodes", line.nodes, "Number of nodes; overrides the cluster file")
      ->check(CLI::Range(1, Cluster::kMostNodes));
  app.add_option("--precision", line.precision, "Precision to assume (default: the config's)")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}));
  app.add_option("--search", line.plan.search, "Rank other layouts by time, cost or memory")
      ->check(CLI::IsMember({"time", "cost", "memory"}));
  app.add_flag("--instructions", line.plan.instructions,
               "With --cluster and --json: include every instruction of the schedule");
}

// Serves until a signal arrives. `serve` holds the options of the command line.
int run_serve(CommandLine& line, std::vector<std::string> arguments, const ServeCommand& serve) {
  const ServedPlace place(line.config, serve, arguments);
  line.config = place.config();
  if (const auto task = serve.task(std::filesystem::is_directory(line.config)))
    line.overrides.push_back("task=" + *task);
  const size_t given = line.overrides.size();
  const Config config = load(line, /*on_ranks=*/true, /*trains=*/false);
  const bool is_served_here = is_serving_process();
  if (is_served_here ? !mpi_is_launched() : needs_mpirun(config)) check_serve(config);
  if (!is_served_here) return serve_on_processes(config, with_settings(arguments, line, given), std::cerr);
  run_on_these_ranks(config, [&](const Config& used, RankContext& context) {
    if (context.first()) std::cerr << used_model_line(used) << std::endl;
    serve_job(used, place.options(), context);
  });
  return 0;
}

std::string run_plan(CommandLine& line) {
  if (line.config.empty() == line.plan.from_run.empty())
    throw ConfigError("plan needs either a config file or --from-run OUTPUT_DIR");
  if (line.config.empty()) line.config = line.plan.from_run + "/config.resolved.json";
  if (line.cluster.empty() && !line.measured.empty()) line.cluster = "local";
  if (!line.cluster.empty()) line.overrides.push_back("cluster=" + line.cluster);
  if (!line.measured.empty()) line.overrides.push_back("profile=" + line.measured);
  line.plan.json = line.json;
  line.plan.width = console_of_job().columns;
  line.plan.assumed.nodes = line.nodes;
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16})
    if (line.precision == to_string(precision)) line.plan.assumed.precision = precision;
  const Config config = load(line, /*on_ranks=*/false, /*trains=*/true);
  const bool predicts = !config.cluster.empty() || !line.plan.search.empty() || !line.plan.html.empty();
  if (line.nodes && !predicts)
    throw ConfigError("--nodes: has no effect without --cluster; name the machines, or leave it out");
  return plan_job(config, line.plan);
}

void add_import_options(CLI::App& app, ImportLine& line) {
  app.add_option(
         "file", line.files,
         "Files that describe the job: describe-training-job or an estimator's arguments as JSON, a command line, "
         "a config of DeepSpeed or accelerate")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--to", line.to, "Write the config to this file, which must not exist; default: print it");
  app.add_option("--set", line.options.settings, "path=value: replace a value of the job");
  app.add_option("--channel", line.channels, "NAME=PATH: path of the files of a data channel");
  app.add_option("--hosts", line.options.hosts, "Names of the machines, separated by commas")->delimiter(',');
  app.add_option("--ranks", line.options.ranks, "Total number of processes, if the files do not contain it")
      ->check(CLI::PositiveNumber);
}

// Throws what `plan` would throw for the config of an import, unless that depends on files of another machine, such as
// those of a container.
void check_imported(const std::string& text) {
  Config config = parse_config(text, "the config");
  const auto is_here = [](const std::string& path) {
    std::error_code ignored;
    return path.empty() || std::filesystem::exists(path, ignored);
  };
  const std::string& tokenizer = config.data.tokenizer;
  if (!is_here(config.model.path) || (tokenizer != "bytes" && !is_here(tokenizer))) return;
  const bool has_data =
      std::ranges::all_of(config.data.train, is_here) && std::ranges::all_of(config.data.validation, is_here);
  if (leaves_labels_open(config) && !config.data.task_name && !has_data) return;
  if (config.smp.offload_path && !is_here(*config.smp.offload_path)) config.smp.offload_path.reset();
  config = with_labels_of_data(with_sample_length(with_new_tokens(config)));
  plan_job(with_fitting_batch(with_chosen_degrees(config)), {});
}

int run_import(ImportLine& line) {
  for (const auto& channel : line.channels) {
    const auto equals = channel.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == channel.size())
      throw ConfigError(cat("--channel ", channel, ": must be NAME=PATH, as in train=data/train.jsonl"));
    line.options.channels[channel.substr(0, equals)] = channel.substr(equals + 1);
  }
  if (!line.to.empty() && std::filesystem::exists(line.to))
    throw ConfigError(cat("--to ", line.to, ": this file exists; remove it, or name another"));
  const ImportedFiles text = import_files(line.files, line.options);
  if (line.to.empty()) std::cout << text.config << std::flush;
  (line.to.empty() ? std::cerr : std::cout) << text.table << std::flush;
  if (!text.mistakes.empty()) throw ConfigError(text.mistakes);
  check_imported(text.config);
  if (!line.to.empty()) write_file(line.to, text.config);
  return 0;
}

void check_command(const CLI::App& app, int argc, char** argv) {
  std::string known;
  for (const auto* sub : app.get_subcommands({})) {
    if (argc < 2 || argv[1][0] == '-' || sub->get_name() == argv[1]) return;
    known += cat(known.empty() ? "" : ", ", sub->get_name());
  }
  throw ConfigError(cat("\"", argv[1], "\" is not a command; use one of ", known));
}

// Help for a key of the config or a command; some names belong to both.
std::string help_text(const CLI::App& app, const std::string& name) {
  if (name.empty()) return sections_help();
  const CLI::App* command = nullptr;
  for (const auto* sub : app.get_subcommands({}))
    if (sub->get_name() == name) command = sub;
  if (!command) return key_help(name);
  if (!is_key_or_section(name)) return command->help();
  return cat(key_help(name), "\nshardline ", name, " --help describes the command of this name.\n");
}

void print_flights(const std::filesystem::path& output_dir) {
  const auto folder = flight_folder(output_dir);
  if (!std::filesystem::is_directory(folder))
    throw ConfigError(cat(folder.string(), " is not a folder; give the output_dir of a training run"));
  const FlightFiles newest = newest_flight_files(folder);
  for (const auto& [path, file] : newest.files) {
    std::cout << path.filename().string() << '\n';
    print_flight(std::cout, file->records);
  }
  std::cout << left_out_text(newest.left_out, newest.damaged);
}

// Returns the exit code of the program. Throws what the command throws.
int run_command_line(int argc, char** argv) {
  CommandLine line;
  CLI::App app("shardline: model-parallel training of transformers from one JSON file");
  app.set_version_flag("--version", SHARDLINE_VERSION);
  app.require_subcommand(1);
  const auto command = [&](const char* name, const char* what, bool takes_directory = false) {
    auto* sub = app.add_subcommand(name, what);
    sub->add_option(
           "config", line.config,
           cat("Config file (shardline help explains its keys)", takes_directory ? ", or directory of a model" : ""))
        ->required()
        ->check(takes_directory ? CLI::Validator(CLI::ExistingPath) : CLI::Validator(CLI::ExistingFile));
    sub->add_option("--set", line.overrides, "path=value: replace a value of the config, e.g. training.max_steps=10");
    return sub;
  };
  auto* train = command("train", "Train a model and save it in output_dir");
  train->get_option("config")->required(false)->description(
      "Config file; if omitted, run the job of a SageMaker container");
  auto* eval = command("eval", "Compute the loss and the task's metrics on the validation data", true);
  auto* predict =
      command("predict", "Predict labels, scores, tags, answers or masked words for the rows of a data file", true);
  auto* generate = command("generate", "Generate text that continues prompts", true);
  auto* profile = command("profile", "Time the model's layers and the links between its ranks, for the planner");
  auto* check = command("check", "Compare the layout's training with one process in float64");
  int64_t check_steps = 3;
  check->add_option("--steps", check_steps, "Optimizer steps to compare")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  auto* plan = command("plan", "Show what would run where, without starting anything");
  auto* info = command("info", "Show the versions, devices and links of this host, and what a config would use");
  ImportLine imported;
  auto* import =
      app.add_subcommand("import", "Convert a job of SageMaker, DeepSpeed, accelerate or a script into a config");
  add_import_options(*import, imported);
  auto* flight = app.add_subcommand("flight", "Show the last communication calls of each rank of a training run");
  auto* doctor = app.add_subcommand("doctor", "Show why a training run ended or hangs, from the records of its ranks");
  for (auto* sub : {flight, doctor})
    sub->add_option("output_dir", line.output_dir, "output_dir of the run")->required();
  auto* study =
      app.add_subcommand("study", "Run a study: many runs, with tables and figures of their times, costs and scores");
  study->add_option("study", line.config, "Study file (see docs/study.md)")->required()->check(CLI::ExistingFile);
  study->add_option("--cluster", line.study.cluster, "Cluster file for planning the runs that do not fit this machine")
      ->check(CLI::ExistingFile);
  study
      ->add_option("--at-once", line.study.at_once,
                   "Maximum number of simultaneous runs; default: as many as the cores allow")
      ->check(CLI::PositiveNumber);
  std::vector<std::string> reported;
  std::string report_file;
  auto* report = app.add_subcommand("report", "Write a page with the curves of a run, of several runs, or of a study");
  report->add_option("output_dir", reported, "output_dir of each run, or of one study")
      ->required()
      ->check(CLI::ExistingDirectory);
  report->add_option("--output", report_file, "File to write; default: OUTPUT_DIR/report.html");
  std::string checkpoint_path;
  auto* checkpoint = app.add_subcommand("checkpoint", "Inspect, verify or merge checkpoints");
  checkpoint->require_subcommand(1);
  auto* inspect = checkpoint->add_subcommand("inspect", "Show what a checkpoint contains");
  auto* verify = checkpoint->add_subcommand("verify", "Compare every byte of a checkpoint with its checksums");
  for (auto* sub : {inspect, verify})
    sub->add_option("path", checkpoint_path, "A checkpoint, or a directory of checkpoints, of which the newest is used")
        ->required()
        ->check(CLI::ExistingDirectory);
  std::vector<std::string> parts;
  auto* merge =
      checkpoint->add_subcommand("merge", "Merge the parts that different hosts saved into a complete checkpoint");
  merge->add_option("part", parts, "Directories of the parts")->required()->check(CLI::ExistingDirectory);
  merge->add_option("--output", checkpoint_path, "Directory of the complete checkpoint, which must not exist")
      ->required();
  ServeCommand serve(*command("serve", "Answer requests over HTTP with a model", true));
  auto* pack =
      app.add_subcommand("pack", "Pack a model directory into an archive in the form that hosting platforms use");
  PackCommand packed(*pack);
  std::string asked;
  auto* help = app.add_subcommand("help", "Explain a key of the config");
  help->add_option("key", asked,
                   "A key, such as smp_options.microbatches, a section or a command; default: all sections");
  auto* schema = app.add_subcommand("schema", "Print the JSON schema of configs, for completion and checks in editors");
  app.footer(
      "shardline COMMAND --help lists the options of a command, shardline help KEY explains a key of the config.");
  add_generate_options(*generate, line);
  predict->add_option("--output", line.predictions, "File to write; default: OUTPUT_DIR/predictions.jsonl");
  for (auto* sub : {generate, plan, info, doctor}) sub->add_flag("--json", line.json, "Print JSON");
  profile->add_option("--output", line.profile, "File to write; default: OUTPUT_DIR/profile.json");
  for (auto* sub : {plan, info}) sub->get_option("config")->required(false);
  add_plan_options(*plan, line);
  std::vector<const char*> words(argv, argv + argc);
  // A container's platform may start the program by the name of one of these commands.
  const std::string name = std::filesystem::path(argv[0]).filename();
  if (argc == 1 && (name == "train" || name == "serve")) words.push_back(name.c_str());
  check_command(app, argc, argv);
  try {
    app.parse(std::ssize(words), words.data());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  const std::vector<std::string> arguments(words.begin() + 1, words.end());
  handle_stop_signals(
      *train ? "error: stopped by a signal before the first step; there is nothing to save\n"
      : *study
          ? "error: stopped by a signal; run the same command again to continue with the runs that have not finished\n"
          : "error: stopped by a signal\n",
      *study ? kExitStopped : kExitFailed);
  // A run and a server continue if the reader of their output exits.
  if (*train || serve.is_given()) std::signal(SIGPIPE, SIG_IGN);
  if (*train && line.config.empty()) return run_training_of_container(line);
  if (*train) return run_training(line, arguments);
  if (*eval)
    return on_ranks(line, arguments, check_evaluate, [&](const Config& config, RankContext& context) {
      if (context.first())
        std::cerr << used_model_line(config) << '\n' << samples_line(config, states_length(line)) << std::endl;
      evaluate_job(config, context);
    });
  if (*predict) {
    const auto check_it = [&](const Config& config) { check_predict(config, line.predictions); };
    return on_ranks(line, arguments, check_it, [&](const Config& config, RankContext& context) {
      if (context.first())
        std::cerr << used_model_line(config) << '\n' << samples_line(config, states_length(line)) << std::endl;
      predict_job(config, line.predictions, context);
    });
  }
  if (*generate) {
    line.generate.json = line.json;
    return on_ranks(
        line, arguments, [&](const Config& config) { check_generate(config, line.generate); },
        [&](const Config& config, RankContext& context) {
          if (context.first()) std::cerr << used_model_line(config) << std::endl;
          generate_job(config, line.generate, context);
        });
  }
  if (*profile) {
    line.overrides.push_back("profile=");  // a measurement must neither depend on an earlier profile nor require one
    return on_ranks(
        line, arguments, check_profile,
        [&](const Config& config, RankContext& context) { profile_job(config, line.profile, context); },
        /*trains=*/true);
  }
  if (*import) return run_import(imported);
  if (serve.is_given()) return run_serve(line, arguments, serve);
  if (*pack) packed.run(std::cout);
  if (*check)
    return on_ranks(
        line, arguments, check_layout,
        [&](const Config& config, RankContext& context) { layout_job(config, check_steps, context); },
        /*trains=*/true);
  if (*flight) print_flights(line.output_dir);
  if (*doctor) std::cout << doctor_text(line.output_dir, line.json);
  if (*inspect) std::cout << checkpoint_text(checkpoint_path);
  if (*merge) std::cout << merge_checkpoint(parts, checkpoint_path);
  if (*verify) std::cout << verified_text(checkpoint_path);
  if (*plan) std::cout << run_plan(line);
  if (*help) std::cout << help_text(app, asked);
  if (*schema) std::cout << config_schema().dump(2) << std::endl;
  if (*study) return study_job(line.config, line.study, std::cout);
  if (*report) std::cout << "wrote " << report_job(reported, report_file) << std::endl;
  if (*info)
    std::cout << info_text(
        line.config.empty() ? std::nullopt : std::optional(load(line, /*on_ranks=*/false, /*trains=*/true)), line.json);
  return 0;
}

}  // namespace

int run(int argc, char** argv, const Registry& registry) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error with a message
  use_caching_allocator();
  end_job_with_message_of_failed_rank();
  end_with_launcher();
  try {
    use(registry);
    const int code = run_command_line(argc, argv);
    if (!std::cout.flush()) throw RunError(cat("standard output cannot be written: ", std::strerror(errno)));
    return code;
  } catch (const std::exception& error) {
    return report_end(error);
  }
}

std::string version() {
  return SHARDLINE_VERSION;
}

}  // namespace shardline
