/* A loop in C, on one rank, or with the argument "two" on two stages of a communicator of its own. */
#include <mpi.h>
#include <shardline/c.h>
#include <stdio.h>
#include <string.h>

#define CONFIG(stages, microbatches)                                                                                \
  "{\"model\": {\"config\": {\"model_type\": \"gpt2\", \"vocab_size\": 31, \"n_positions\": 16, \"n_embd\": 16, "     \
  "\"n_layer\": 2, \"n_head\": 2}}, \"data\": {\"sequence_length\": 16}, \"training\": {\"global_batch_size\": 4, "   \
  "\"max_steps\": 5, \"learning_rate\": 0.01, \"lr_scheduler_type\": \"constant\"}, \"smp_options\": "                \
  "{\"pipeline_parallel_degree\": " stages ", \"microbatches\": " microbatches "}, \"runtime\": {\"device\": \"cpu\"}}"

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, shardline_error());
  return 1;
}

int main(int argc, char** argv) {
  const char* argument = argc > 1 ? argv[1] : "";
  int64_t ids[4 * 16];
  int i;
  double loss, again;
  static double outputs[4 * 16 * 31];
  int64_t written = 0;
  MPI_Comm comm;
  shardline_samples samples;
  shardline_report first, report;
  shardline_place place;
  shardline_trainer* trainer;
  if (strcmp(argument, "broken") == 0) {
    if (shardline_create("{\"no\": 1}") != NULL) return 1;
    printf("refused: %s\n", shardline_error());
    return 0;
  }
  if (strcmp(argument, "two") == 0) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    trainer = shardline_create_on(CONFIG("2", "2"), &comm);
  } else {
    trainer = shardline_create(CONFIG("1", "1"));
  }
  if (trainer == NULL) return failed("create");
  for (i = 0; i < 4 * 16; ++i) ids[i] = (7 * i + i / 16) % 31;
  memset(&samples, 0, sizeof samples);
  samples.count = 4;
  samples.length = 16;
  samples.ids = ids;
  if (shardline_step(trainer, &samples, &first)) return failed("step");
  if (shardline_save(trainer, "saved_by_c")) return failed("save");
  for (i = 1; i < 5; ++i)
    if (shardline_step(trainer, &samples, &report)) return failed("step");
  loss = shardline_evaluate(trainer, &samples);
  if (!(loss < first.loss)) return failed("the loss does not fall");
  if (shardline_resume(trainer, "saved_by_c/checkpoint-1") || shardline_steps(trainer) != 1) return failed("resume");
  for (i = 1; i < 5; ++i)
    if (shardline_step(trainer, &samples, &report)) return failed("step");
  again = shardline_evaluate(trainer, &samples);
  if (again != loss) return failed("another loss after a resume");
  if (!shardline_predict(trainer, &samples, outputs, 4 * 16 * 31, &written)) return failed("logits that are not kept");
  if (strstr(shardline_error(), "use evaluate") == NULL) return failed("an error without advice");
  ids[3] = 31;
  if (!shardline_step(trainer, &samples, NULL)) return failed("an id beyond the vocabulary");
  if (strstr(shardline_error(), "31") == NULL) return failed("an error without the id");
  place = shardline_place_of(trainer);
  if (place.rank == 0)
    printf("%s: trained %d steps on %d ranks in %d stages\n", shardline_version(), (int)report.step, place.size,
           place.stages);
  shardline_destroy(trainer);
  if (strcmp(argument, "two") == 0) {
    MPI_Comm_free(&comm);
    MPI_Finalize();
  }
  return 0;
}
