#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "core/comm/clock.h"
#include "core/comm/mpi_communicator.h"
#include "core/comm/nccl/nccl_api.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/plain_text.h"
#include "engine/commands/job.h"
#include "engine/commands/parts/evaluation.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/measured_profile.h"
#include "engine/commands/parts/open_data.h"
#include "engine/commands/parts/run_checkpoints.h"
#include "engine/commands/parts/run_checks.h"
#include "engine/commands/parts/used_model.h"
#include "engine/config/config.h"
#include "engine/config/rules/model_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/observe/format.h"
#include "engine/plan/replica_traffic.h"
#include "engine/run/flight_files.h"
#include "engine/run/launcher_news.h"
#include "engine/run/memory_room.h"
#include "engine/run/model_saver.h"
#include "engine/run/output_dir.h"
#include "engine/run/resuming_command.h"
#include "engine/run/run_records.h"
#include "engine/run/stop.h"
#include "engine/tasks/class_balance.h"
#include "engine/tasks/labels.h"
#include "engine/train/run_comparison.h"
#include "engine/train/step_callbacks.h"
#include "engine/train/step_timeline.h"
#include "partitioner/memory/device_bytes.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

std::string json_text(const nlohmann::json& value) {
  return value.dump(2) + '\n';
}

// Says why a build for GPUs computes on CPUs.
std::string no_gpu_note(const Config& config, at::Device device) {
  const bool wanted = has_nccl() && config.runtime.device != DeviceChoice::cpu;
  return wanted && !is_accelerator(device) ? cat(" (", no_gpu_reason(), ")") : "";
}

// The device that computes, and what carries messages.
std::string device_row(const Config& config, const RankContext& context) {
  const std::string values = word_of(resolved_communicator(config));
  const std::string start =
      cat(context.device.str(), no_gpu_note(config, context.device), ", ", describe_numbers(config), ", ");
  if (!is_accelerator(context.device))
    return cat(start, at::get_num_threads(), at::get_num_threads() == 1 ? " thread" : " threads",
               " a rank, products by ", products_in_use(), ", communicator ", values);
  return cat(start, "communicator ", context.uses_nccl() ? cat("nccl (host values: ", values, ')') : values);
}

// How the loss of a program adds up.
std::string loss_note(const ModelSource& model) {
  if (!model.exported) return "";
  return cat(", loss: ", model.exported->program->loss.text,
             model.spec.loss_of_samples ? ", which is treated as a mean over samples" : "");
}

// What transformers needs from the saved model but does not find there.
std::string padding_note(const ModelSource& model) {
  const bool reads_last_token = model.hf_config.value("model_type", "").starts_with("gpt");
  if (model.head.kind != HeadChoice::Kind::sequence_classification || !reads_last_token) return "";
  if (const auto pad = model.hf_config.find("pad_token_id"); pad != model.hf_config.end() && !pad->is_null()) return "";
  return "the saved config.json will have no pad_token_id, without which transformers refuses batches of several "
         "samples; set model.config.pad_token_id";
}

// The warning that the vocabulary grows to the tokenizer's size. Empty if it does not grow, or if the config sets a
// vocab_size beyond the number of tokens, such as a multiple of 8.
std::string new_tokens_warning(const Config& config, const ModelSource& model) {
  const std::string source = tokenizer_source(config);
  if (model.names.grown.empty() || (config.data.tokenizer.empty() && !has_tokenizer(source))) return "";
  if (open_tokenizer(config)->vocab_size() != model.spec.vocab_size) return "";
  ModelOptions own = config.model;
  own.config.erase("vocab_size");
  const auto before = described_model(own, head_choice(config));
  if (!before) return "";
  return cat("the vocabulary grows from the ", before->vocab_size, " words of the model in ", own.path, " to the ",
             model.spec.vocab_size, " of the tokenizer ", source,
             "; the new rows are random until they are trained, so use the model's own tokenizer unless you "
             "added tokens on purpose");
}

// weights: where they come from.
std::string settings_text(const Config& config, const ModelSource& model, const JobData& data, int64_t steps,
                          const std::string& weights, const RankContext& context) {
  const auto& t = config.training;
  std::vector<TableRow> rows = {
      {"model", cat(model.spec.family, ", ", format_count(model.spec.parameter_count()), " parameters, ", weights,
                    loss_note(model))},
      {"device", device_row(config, context)},
      {"data", cat(data.train->describe(), ", ", data.train->steps_per_epoch(),
                   data.train->steps_per_epoch() == 1 ? " step an epoch" : " steps an epoch")},
      {"steps", cat(steps, ", ", word_of(t.optim), ", ", word_of(t.lr_scheduler_type), " from ", t.learning_rate,
                    ", weight decay ", t.weight_decay, ", clip ", t.max_grad_norm,
                    t.max_grad_value > 0 ? cat(" and +-", t.max_grad_value, " an element") : "", ", seed ", t.seed)},
      {"output", config.output_dir}};
  if (const auto labels = labels_text(model.head); !labels.empty()) rows.insert(rows.begin() + 3, {"labels", labels});
  if (data.validation) rows.insert(rows.begin() + 3, {"validation", data.validation->describe()});
  if (!data.label_counts.empty())
    rows.insert(rows.begin() + 3, {"label counts", describe_labels(data.label_counts, model.head.names)});
  for (size_t part = config.data.train_weights.size(); part > 0; --part)
    rows.insert(rows.begin() + 3,
                {"mixture", cat(config.data.train[part - 1], ": ", data.train->mixture()->describe(part - 1))});
  return table({}, rows);
}

std::string traffic_text(const Config& config, const JobParts& parts, at::Device device) {
  std::vector<TableRow> rows;
  const auto add = [&](const char* what, const std::string& text) {
    if (!text.empty()) rows.push_back({what, text});
  };
  add("gradients", reduction_text(config, parts.plan));
  add("sharded values", gathering_text(parts.plan, parts.groups.host_of, device));
  return rows.empty() ? "" : table({}, rows) + '\n';
}

// Why a run ends before its last step, and whether a checkpoint is being written; agreed upon by all ranks.
struct StepFlags {
  int64_t signal = 0, out_of_time = 0, stop_file = 0, writes_checkpoint = 0;

  bool stops() const { return signal != 0 || out_of_time != 0 || stop_file != 0; }
};

StepFlags agree(Communicator& world, const StepFlags& mine) {
  auto flags = at::tensor({mine.signal, mine.out_of_time, mine.stop_file, mine.writes_checkpoint}, at::kLong);
  world.all_reduce(flags, {.op = ReduceOp::max, .what = "stop?"})->wait();
  const auto* all = flags.const_data_ptr<int64_t>();
  return {all[0], all[1], all[2], all[3]};
}

// Saves a checkpoint and returns its directory. stop: why the run stops, for errors.
std::string saved_before_stop(RunCheckpoints& checkpoints, const std::string& stop) {
  try {
    return checkpoints.save_now();
  } catch (const DistributedError&) {  // the failure of another rank has its own reason
    throw;
  } catch (const AllRanks<RunError>& error) {
    throw AllRanks<RunError>(cat(stop, ", but: ", error.what()));
  } catch (const RunError& error) {
    throw RunError(cat(stop, ", but: ", error.what()));
  }
}

void require_validation(const Config& config) {
  const DataOptions& data = config.data;
  if (data.validation.empty() && (data.train.empty() || data.validation_split_percentage == 0))
    throw ConfigError(
        "/data/validation: no data to evaluate on; name files, e.g. --set data.validation=FILE, or set "
        "data.validation_split_percentage");
}

}  // namespace

void check_train(const Config& config) {
  const auto planned = plan_model(config, configured_world_size(config));
  check_resume(config);
  check_run(config, planned, RunMoment::starting);
  check_output_dir(config, planned.model.spec);
}

namespace {

// Runs before anything is created. Returns a note for the user about a run that has enough memory, if there is one.
std::string check_devices(const JobParts& parts, const RankContext& context) {
  if (!is_accelerator(context.device)) return "";
  const auto rooms = gather_rooms(*context.world, context.device);
  const auto hosts = gather_host_rooms(*context.world, context.host_of);
  if (!context.first()) return "";
  const PlacedLayers placed = placed_layers(parts.plan);
  auto planned = tensor_bytes_by_rank(placed);
  for (size_t rank = 0; context.uses_nccl() && rank < planned.size(); ++rank)
    planned[rank].communication += device_bytes(placed, placed.layout.mesh().at(rank).p).later;
  check_rooms(rooms, planned);
  check_host_rooms(hosts, planned);
  return sharing_note(rooms);
}

// steady_seconds() at the end of each phase before the first step.
struct SetUp {
  double begin = 0, planned = 0, opened_data = 0;
};

std::string text_of(const SetUp& times, double end) {
  return cat("set up in ", format_duration(end - times.begin), ": plan ", format_duration(times.planned - times.begin),
             ", data ", format_duration(times.opened_data - times.planned), ", model ",
             format_duration(end - times.opened_data));
}

// All ranks have the same numbers of samples.
void check_filled(const char* key, const EpochSource* source, int64_t most_steps, int microbatches,
                  const JobParts& parts) {
  if (!source) return;
  const auto samples = [&](int64_t step) { return source->samples_in_step(step); };
  try {
    check_filled({key, std::min(most_steps, source->steps_per_epoch()), samples, microbatches}, parts.model.spec,
                 parts.plan.layout.replicas);
  } catch (const ConfigError& error) {
    throw AllRanks<ConfigError>(error.what());
  }
}

void check_filled_evaluation(const JobParts& parts, const JobData& data) {
  for (const auto* source : {data.validation.get(), data.mismatched.get()})
    check_filled("/data/validation", source, std::numeric_limits<int64_t>::max(), parts.plan.forward.microbatches,
                 parts);
}

// Returns why all ranks have stopped before the last step, if they have.
std::optional<StoppedAfterSaving> train(const Config& config, RankContext& context, JobParts& parts, SetUp times) {
  const at::Device device = context.device;
  std::string shared = check_devices(parts, context);
  std::vector<OutputLock> locks;  // until the end of the run
  if (context.first()) {
    // The launcher has already checked the run, but ranks may be started without it.
    check_run(config, {parts.model, *parts.machines, parts.plan}, RunMoment::starting);
    check_resume(config);
    locks = lock_output_dir(config, parts.model.spec);
    if (mpi_is_launched() && !has_launcher()) forget_earlier_request(config, *context.out);
  }
  context.world->barrier({.what = "output directory"});
  const Stores stores = find_stores(checkpoint_directory(config), *context.world);
  if (config.training.save_strategy != SaveStrategy::no)
    require_checkpoints_for_all(stores, checkpoint_directory(config));
  const bool leads_other_store =
      stores.leads(context.world->rank()) && stores.all[stores.mine].obstacle.empty() && !context.first();
  if (leads_other_store) locks.push_back(lock_checkpoint_directory(config));
  const std::optional<ResumePoint> point = find_resume_point(config, parts.model.spec, stores, context);
  const auto resumed = point && point->is_own ? std::optional(point->state.step) : std::nullopt;
  ModelSaver saver(config.output_dir, parts.model, number_types(config).exact, tokenizer_source(config), parts.groups);
  keep_flight_records(config, context, parts.plan.layout.mesh());
  JobData data = open_data(config, parts.model, parts.plan.layout, context, /*with_train=*/true);
  std::optional<PredictedData> predicted;
  if (config.training.do_predict) predicted = open_predicted_data(config, parts.model, parts.plan.layout, context);
  const int64_t steps = count_steps(config, data.train->steps_per_epoch());
  times.opened_data = steady_seconds();
  check_filled("/data/train", data.train.get(), steps, parts.plan.train.microbatches, parts);
  const TrainingOptions& training = config.training;
  if (training.eval_strategy != EvalStrategy::no || training.do_eval || training.eval_on_start)
    check_filled_evaluation(parts, data);
  if (measures_before_training(config, parts.plan, parts.model)) {
    place_by_measured_times(config, parts, context);
    shared = check_devices(parts, context);
  }

  std::optional<Forecast> forecast;
  nlohmann::json plan;
  std::string resolved_config;
  if (context.out) {
    plan = plan_json(parts.plan);
    const std::string weights = point ? "weights of " + point->path : weights_text(config.model);
    if (const auto warning = point ? std::string() : new_tokens_warning(config, parts.model); !warning.empty())
      *context.out << "warning: " << warning << "\n\n";
    *context.out << settings_text(config, parts.model, data, steps, weights, context) << '\n'
                 << plan_text(parts.plan, context.console.columns) << '\n'
                 << traffic_text(config, parts, device);
    if (!config.cluster.empty()) {
      try {
        forecast = make_forecast(config, *parts.machines, parts.plan);
        add_forecast(plan, *forecast);
        *context.out << forecast_text(*forecast, parts.plan) << '\n';
      } catch (const std::exception& error) {  // a run must not fail for lack of a forecast
        *context.out << "note: the run has no forecast: " << error.what() << '\n';
      }
    }
    if (!shared.empty()) *context.out << "warning: " << shared << '\n';
    for (const auto& note : notes(config, is_accelerator(device))) *context.out << "note: " << note << '\n';
    if (const auto note = padding_note(parts.model); !note.empty()) *context.out << "note: " << note << '\n';
    if (!point)
      for (const auto& note : parts.model.names.notes(parts.model.spec)) *context.out << "note: " << note << '\n';
    nlohmann::json derived = {
        {"sizes", plan["sizes"]}, {"tensor_parallel_units", plan["tensor_parallel_units"]}, {"total_steps", steps}};
    if (!data.label_counts.empty())
      derived["label_counts"] = label_counts_json(data.label_counts, parts.model.head.names);
    resolved_config = json_text(resolved(config, derived));
  }

  // This comes before the memory is allocated: running out of it would start the run again with a smaller batch.
  if (point) {
    const auto comparison = comparison_of_run(config, data.validation.get(), data.mismatched.get());
    check_curve(*point, curve_of_run(config, parts, *data.train, steps, comparison), config, context);
  }

  const auto start = std::chrono::steady_clock::now();
  RankTrainer trainer({config, parts.plan, parts.model, parts.groups, device}, steps);
  const RunSteps run{.total = steps, .per_epoch = data.train->steps_per_epoch()};
  RunRecords records(config, context, run);
  RunCheckpoints checkpoints({config, parts, context, stores, trainer, *data.train, data.validation.get(),
                              data.mismatched.get(), run, resolved_config},
                             records);
  const auto show = records.show("bytes of the model read");
  if (!point) {
    load_parameters(config, parts, trainer.parameters(), show);
  } else {
    with_plain_errors([&] {
      load_checkpoint_parameters(point->path, point->state.step, parts, trainer.parameters(), show);
      checkpoints.continue_from(*point);
    });
    if (context.out) {
      *context.out << "continues " << point->path << " after step " << point->state.step << std::endl;
      if (checkpoints.first_step() > steps)
        *context.out << "note: " << (steps == 1 ? "the only step was" : cat("all ", steps, " steps were"))
                     << " already done, so nothing is left to train; the model of the checkpoint is saved" << std::endl;
    }
  }

  checkpoints.prepare();
  if (context.out) *context.out << text_of(times, steady_seconds()) << std::endl;

  const int64_t first = checkpoints.first_step();
  double epoch = point ? point->state.epoch : 0;
  const auto evaluated = [&](int64_t step) { return evaluate(trainer, data, *context.world, step, epoch).metrics; };
  std::optional<EvaluationMetrics> at_start;
  if (data.validation && config.training.eval_on_start && first == 1) at_start = evaluated(0);

  // A signal that comes before the next line ends the run at once; a later one is handled in end_if_asked(). From
  // the end of end_if_asked(0) on, only a failure keeps the run from its first step, so it may replace an earlier
  // one.
  enter_phase(RunPhase::training);
  context.world->barrier({.what = "everything that can refuse the run"});
  const auto end_if_asked = [&](int64_t step) -> std::optional<StoppedAfterSaving> {
    const auto limit = config.training.max_run_seconds;
    // A run with little time left still trains one step, so that a chain of resumed runs reaches its end.
    const bool late = step > 0 && limit && std::chrono::steady_clock::now() - start >= std::chrono::seconds(*limit);
    const StepFlags flags = agree(*context.world, {.signal = stop_signal(),
                                                   .out_of_time = context.first() && late,
                                                   .stop_file = context.first() && is_asked_by_file(config),
                                                   .writes_checkpoint = checkpoints.is_writing()});
    if (checkpoints.is_pending() && !flags.writes_checkpoint) checkpoints.proceed();
    if (!flags.stops()) return std::nullopt;
    const std::string why = flags.signal      ? "a signal"
                            : flags.stop_file ? "the file " + stop_file(config).string()
                                              : cat("training.max_run_seconds ", limit.value_or(0));
    if (context.first()) {
      tell_launcher(News::stops);  // before the request is removed
      remove_stop_file(config);
    }
    records.finish();
    if (step == 0 && !point)
      throw AllRanks<Interrupted>(cat("stopped by ", why, " before the first step; there is nothing to save"));
    if (step == 0)
      return StoppedAfterSaving(cat("stopped by ", why, " before the first step; no step has been trained since ",
                                    point->path, " was saved\nto continue:\n  ",
                                    resuming_command(point->is_own ? point->path : "")));
    const std::string stop = cat("stopped by ", why, " after step ", step, " of ", steps);
    const std::string path = saved_before_stop(checkpoints, stop);
    const auto gaps = records.gaps();
    return StoppedAfterSaving(cat(stop, " and saved ", path, gaps.empty() ? "" : cat("; ", gaps), "\nto continue:\n  ",
                                  resuming_command(path)));
  };
  if (auto stopped = end_if_asked(0)) return stopped;
  // Checkpoints come first, on all hosts: if the run is killed here, the next one must not continue from a checkpoint
  // whose records are gone.
  const int superseded = context.first() || leads_other_store ? set_aside_checkpoints(config, resumed) : 0;
  context.world->barrier({.what = "checkpoints set aside"});
  if (context.out) {
    if (superseded > 0)
      *context.out << "note: renamed " << superseded << (superseded == 1 ? " checkpoint" : " checkpoints") << " in "
                   << checkpoint_directory(config) << " to *.superseded, because this run does not continue from "
                   << (superseded == 1 ? "it" : "them") << "; remove what you do not need\n";
    replace_earlier_run(config, resumed);
    if (const auto earlier = previous_model(config); fs::exists(earlier))
      *context.out << "note: the earlier model is kept in " << earlier.string() << " until the new one is saved\n";
    write_file(config.output_dir + "/config.resolved.json", resolved_config);
    write_file(config.output_dir + "/plan.json", json_text(plan));
    write_schedule_picture(parts.plan, config.output_dir + "/schedule.svg");
    sync_directory(config.output_dir);  // without this config, records would not be recognized as this run's
  }
  records.open(config);
  StepTimelines timelines(config, parts.plan, context, records);
  const auto record_evaluation = [&](const EvaluationMetrics& metrics) {
    records.evaluation(metrics);
    checkpoints.observe(metrics);
  };
  forget_earlier_flight_records(config, context);
  const auto is_evaluated = [&](int64_t step) {
    return data.validation && evaluates_after(config.training, step, run);
  };
  if (at_start) record_evaluation(*at_start);
  if (context.first()) tell_launcher(News::trains);
  int64_t last = steps;
  if (checkpoints.is_out_of_patience()) last = first - 1;
  for (int64_t step = first; step <= last; ++step) {
    timelines.begin(step);
    const StepMetrics metrics = trainer.train_step(*data.train, step);
    timelines.finish(step, trainer.last_step());
    epoch = metrics.epoch;
    for (const auto& lock : locks) lock.require_held();
    records.step(metrics);
    call_step_callbacks(metrics);
    checkpoints.observe(metrics);
    if (step == steps) break;
    if (is_evaluated(step)) record_evaluation(evaluated(step));
    checkpoints.save_if_due(is_evaluated(step));
    if (checkpoints.is_out_of_patience()) {
      last = step;
      break;
    }
    if (auto stopped = end_if_asked(step)) return stopped;
  }

  // The trained weights are saved first, so that nothing that follows can lose them.
  const auto save_model = [&] {
    for (const auto& lock : locks) lock.require_held();
    saver.save(trainer.parameters(), records.show("bytes of the model written"), trainer.trained_steps());
    enter_phase(RunPhase::saved);
  };
  save_model();
  std::string model = config.training.load_best_model_at_end ? "the model of the last step" : "the model";
  try {
    if (context.first()) remove_previous_model(config);
    if (last == steps && first <= steps && is_evaluated(steps)) record_evaluation(evaluated(steps));
    if (last < steps && context.out)
      *context.out << "stopped early after step " << last << " of " << steps << ": " << checkpoints.patience_text()
                   << std::endl;
    if (first <= last) checkpoints.save_if_due(is_evaluated(last), /*ends=*/true);
    checkpoints.finish();
    if (config.training.load_best_model_at_end) {
      if (const auto best = checkpoints.best_checkpoint(); !best.empty()) {
        if (fs::path(best).filename() != checkpoint_name(std::max(first - 1, last))) {  // otherwise, there is nothing
                                                                                        // to load
          const int64_t steps_of_best = step_of_checkpoint(fs::path(best).filename()).value_or(last);
          load_checkpoint_parameters(best, steps_of_best, parts, trainer.parameters(), show);
          trainer.set_trained_steps(steps_of_best);
          save_model();
        }
        model = "the best model";
        if (context.out) *context.out << "the best model is that of " << best << std::endl;
      }
    }
    if (predicted) write_predictions(trainer, *predicted, predictions_file(config), context);
    records.finish();
    if (forecast)
      records.attempt("comparison with the forecast", [&] {
        *context.out << comparison_text(*forecast, measured_run(config.output_dir), std::nullopt) << '\n';
      });
    if (const auto gaps = records.gaps(); !gaps.empty()) {
      tell_launcher(News::finished);  // another attempt would not fill the gaps, and would not report them
      throw RunError(gaps);
    }
  } catch (const std::exception& error) {
    if (run_phase() != RunPhase::saved) throw;
    throw RunError(cat(model, " is saved in ", config.output_dir, ", but: ", error.what()));
  }
  if (!context.out) return std::nullopt;
  remove_stop_file(config);  // a request that came too late
  if (const auto warning = records.warning(); !warning.empty()) *context.out << "warning: " << warning << '\n';
  *context.out << "saved the model in " << config.output_dir << '\n';
  return std::nullopt;
}

}  // namespace

void train_job(const Config& written, RankContext& context) {
  SetUp times{.begin = steady_seconds()};
  const Config config = completed_config(written, *context.world, /*trains=*/true);
  auto parts = std::make_unique<JobParts>(make_parts(config, context));
  times.planned = steady_seconds();
  note_end_of_rank([&] {
    std::optional<StoppedAfterSaving> stopped;
    explain_memory(*parts, context, /*trains=*/true, [&] { stopped = train(config, context, *parts, times); });
    if (!stopped) return;
    parts.reset();  // now, because NCCL groups that end while an exception propagates are aborted, as after a failure
    throw std::move(*stopped);
  });
}

void check_evaluate(const Config& config) {
  require_weights(config);
  require_validation(config);
  const Config used = in_evaluation_precision(config);
  const PlannedModel planned = plan_model(used, configured_world_size(used));
  require_whole(planned.model);
  check_fixed_sizes(used, planned.model, planned.plan.layout, /*trains=*/false);
  check_validation_data(used, planned);
}

void evaluate_job(const Config& written, RankContext& context) {
  require_weights(written);
  require_validation(written);
  const Config config = completed_config(in_evaluation_precision(written), *context.world, /*trains=*/false);
  JobParts parts = make_parts(config, context);
  require_whole(parts.model);
  check_fixed_sizes(config, parts.model, parts.plan.layout, /*trains=*/false);
  JobData data = open_data(config, parts.model, parts.plan.layout, context, /*with_train=*/false);
  check_filled_evaluation(parts, data);
  Evaluation evaluation;
  explain_memory(parts, context, /*trains=*/false, [&] {
    RankTrainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, 0);
    load_parameters(config, parts, trainer.parameters());
    evaluation = evaluate(trainer, data, *context.world, 0, 0);
  });
  if (!context.out) return;
  nlohmann::json result = {{"eval_samples", data.validation->samples()}};
  if (!data.task) {
    result["eval_tokens"] = std::llround(evaluation.loss.weight);
    result["eval_dropped_tokens"] = data.validation->dropped_tokens();
  }
  for (const auto& [name, value] : evaluation.metrics.values) result[name] = value;
  *context.out << result.dump() << '\n';
}

}  // namespace shardline
