#ifdef SHARDLINE_MPI
#include <mpi.h>
#endif

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/comm/mpi_communicator.h"
#include "core/error.h"
#include "include/shardline/c.h"
#include "include/shardline/shardline.h"

struct shardline_trainer {
  shardline::Trainer trainer;
};

namespace shardline {
namespace {

thread_local std::string last_error;

// No exception may leave a C function.
template <class Result, class Work>
Result guarded(Result failed, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an unknown exception";
  }
  return failed;
}

const char* required(const char* text, const char* what) {
  if (!text) throw ConfigError(cat(what, " is a null pointer"));
  return text;
}

Samples samples_of(const shardline_samples* samples) {
  if (!samples) return {};  // the caller is not the first rank of a replica
  return {.count = samples->count,
          .length = samples->length,
          .ids = samples->ids,
          .labels = samples->labels,
          .features = samples->features,
          .width = samples->width,
          .classes = samples->classes,
          .targets = samples->targets,
          .outputs = samples->outputs};
}

shardline_trainer* create(const char* config, const void* mpi_comm) {
  return guarded<shardline_trainer*>(nullptr, [&] {
    Trainer::Options options;
    options.mpi_comm = mpi_comm;
    return new shardline_trainer{Trainer(required(config, "config"), {}, options)};
  });
}

}  // namespace
}  // namespace shardline

using namespace shardline;

shardline_trainer* shardline_create(const char* config) {
  return create(config, nullptr);
}

shardline_trainer* shardline_create_on(const char* config, const void* mpi_comm) {
  return create(config, mpi_comm);
}

shardline_trainer* shardline_create_on_fortran(const char* config, int32_t mpi_comm) {
#ifdef SHARDLINE_MPI
  const MPI_Comm comm = MPI_Comm_f2c(mpi_comm);
  return create(config, &comm);
#else
  return guarded<shardline_trainer*>(nullptr, [&]() -> shardline_trainer* {
    require_mpi();
    return nullptr;
  });
#endif
}

void shardline_destroy(shardline_trainer* trainer) {
  delete trainer;
}

int shardline_step(shardline_trainer* trainer, const shardline_samples* samples, shardline_report* report) {
  return guarded(1, [&] {
    const StepReport step = trainer->trainer.step(samples_of(samples));
    if (report) *report = {step.step, step.loss, step.grad_norm, step.learning_rate, step.step_seconds, step.tokens};
    return 0;
  });
}

double shardline_evaluate(shardline_trainer* trainer, const shardline_samples* samples) {
  return guarded(std::numeric_limits<double>::quiet_NaN(),
                 [&] { return trainer->trainer.evaluate(samples_of(samples)); });
}

int shardline_predict(shardline_trainer* trainer, const shardline_samples* samples, double* outputs, int64_t capacity,
                      int64_t* written) {
  return guarded(1, [&] {
    const std::vector<double> values = trainer->trainer.predict(samples_of(samples));
    if (written) *written = std::ssize(values);
    if (std::ssize(values) > capacity)
      throw ConfigError(cat("there are ", values.size(), " outputs, but room for only ", capacity));
    std::ranges::copy(values, outputs);
    return 0;
  });
}

int shardline_save(shardline_trainer* trainer, const char* directory) {
  return guarded(1, [&] {
    trainer->trainer.save(required(directory, "directory"));
    return 0;
  });
}

int shardline_resume(shardline_trainer* trainer, const char* checkpoint) {
  return guarded(1, [&] {
    trainer->trainer.resume(required(checkpoint, "checkpoint"));
    return 0;
  });
}

shardline_place shardline_place_of(const shardline_trainer* trainer) {
  const RankPlace& place = trainer->trainer.place();
  return {place.rank,     place.size,   place.replica,  place.stage,      place.t,
          place.replicas, place.stages, place.t_degree, place.local_rank, place.local_size};
}

int64_t shardline_steps(const shardline_trainer* trainer) {
  return trainer->trainer.steps();
}

const char* shardline_error(void) {
  return last_error.c_str();
}

const char* shardline_version(void) {
  static const std::string kVersion = version();
  return kVersion.c_str();
}
