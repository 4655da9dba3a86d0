// Learning-rate schedules by Hugging Face's names and formulas.
#pragma once
#include <cstdint>
#include <string>

namespace shardline {

struct LearningRateOptions {
  std::string type = "linear";  // linear, cosine, constant, constant_with_warmup
  double peak = 5e-5;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
};

// Of optimizer step `step`, counted from 1. As in HF, the first step of a warm-up has learning rate 0.
double learning_rate(const LearningRateOptions& options, int64_t step);

}  // namespace shardline
