// Learning-rate schedules: those of transformers, with its names and formulas, and the annealing of SageMaker's
// examples. All but one are functions of the step.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace shardline {

enum class RateSchedule {
  linear,
  cosine,
  cosine_with_restarts,
  polynomial,
  constant,
  constant_with_warmup,
  inverse_sqrt,
  cosine_with_min_lr,
  cosine_warmup_with_min_lr,
  warmup_stable_decay,
  annealing,
  reduce_lr_on_plateau,  // the peak times the share of a PlateauRate, which follows evaluations
  added,                 // by a user's program
};

enum class RateShape { linear, cosine, one_minus_sqrt, exponential, plateau, constant };

// The learning rate of a step as a fraction of the peak; steps count from 1.
using RateFormula = std::function<double(int64_t step, int64_t warmup_steps, int64_t total_steps)>;

// Adds a user-defined schedule; must be called before a config is read. Throws ConfigError if the name is
// taken.
void add_rate_schedule(const std::string& name, RateFormula formula);
const std::map<std::string, RateFormula>& added_rate_schedules();

struct LearningRateOptions {
  RateSchedule type = RateSchedule::linear;
  double peak = 5e-5;
  double warmup_steps = 0;  // a whole number, except for annealing
  int64_t total_steps = 0;

  // Each applies only to the types named here; the defaults are transformers'.
  double cycles = 0.5;       // cosine*, warmup_stable_decay: waves; cosine_with_restarts: falls
  double power = 1;          // polynomial
  double floor = 0;          // fraction of the peak: cosine*_min_lr, end of polynomial, warmup_stable_decay, annealing
  double timescale = 10000;  // inverse_sqrt
  double warmup_start = -1;  // cosine_warmup_with_min_lr: fraction of the peak at step 1; -1: that of one warm-up step
  int64_t stable_steps = 0, decay_steps = 0;   // warmup_stable_decay; annealing: decay_steps alone
  RateShape warmup_shape = RateShape::linear;  // warmup_stable_decay: linear, cosine, one_minus_sqrt
  RateShape decay_shape = RateShape::cosine;   // warmup_stable_decay: as above; annealing: all others
  double plateau_steps = 0;                    // annealing: after warm-up
  RateFormula formula = nullptr;               // added
};

// The learning rate of optimizer step `step`, counted from 1; for reduce_lr_on_plateau, the peak. As in HF, the first
// step of a warm-up from zero has learning rate 0.
double learning_rate(const LearningRateOptions& options, int64_t step);

}  // namespace shardline
