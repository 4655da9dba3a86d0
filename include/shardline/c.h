/* shardline's Trainer (shardline/shardline.h) for C, Fortran and other languages that can call C. All ranks make the
 * same calls in the same order. After an error, shardline_create* return a null pointer, shardline_evaluate returns
 * NaN, and functions that return int return 1 instead of 0; the others cannot fail. shardline_error() is the text of
 * this thread's last error, valid until its next call of one of them. No exception leaves these functions. A trainer
 * argument must not be null, except for shardline_destroy. */
#ifndef SHARDLINE_C_H
#define SHARDLINE_C_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shardline_trainer shardline_trainer;

/* See Samples in shardline/shardline.h: the samples of the caller's replica, read on its first rank. */
typedef struct {
  int64_t count, length;
  const int64_t* ids;
  const int64_t* labels;
  const double* features;
  int64_t width;
  const int64_t* classes;
  const double* targets;
  int64_t outputs;
} shardline_samples;

typedef struct {
  int64_t step;
  double loss, grad_norm, learning_rate, step_seconds;
  int64_t tokens;
} shardline_report;

typedef struct {
  int32_t rank, size, replica, stage, t, replicas, stages, t_degree, local_rank, local_size;
} shardline_place;

/* config: path of a config file, or its text, which begins with "{". */
shardline_trainer* shardline_create(const char* config);
/* The same on the ranks of a communicator: a pointer to an MPI_Comm. */
shardline_trainer* shardline_create_on(const char* config, const void* mpi_comm);
/* The same for a communicator of Fortran (an INTEGER, or MPI_VAL of a type(MPI_Comm)). */
shardline_trainer* shardline_create_on_fortran(const char* config, int32_t mpi_comm);
void shardline_destroy(shardline_trainer* trainer);

/* report may be null. */
int shardline_step(shardline_trainer* trainer, const shardline_samples* samples, shardline_report* report);
/* The mean loss. */
double shardline_evaluate(shardline_trainer* trainer, const shardline_samples* samples);
/* Writes the outputs for the samples of all replicas, in their order. capacity: the size of `outputs`. written: how
 * many outputs there are. */
int shardline_predict(shardline_trainer* trainer, const shardline_samples* samples, double* outputs, int64_t capacity,
                      int64_t* written);

/* Saves directory/checkpoint-STEP. */
int shardline_save(shardline_trainer* trainer, const char* directory);
int shardline_resume(shardline_trainer* trainer, const char* checkpoint);

shardline_place shardline_place_of(const shardline_trainer* trainer);
int64_t shardline_steps(const shardline_trainer* trainer);

const char* shardline_error(void);
const char* shardline_version(void);

#ifdef __cplusplus
}
#endif
#endif
