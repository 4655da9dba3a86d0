// The learning rate of torch's ReduceLROnPlateau, which is reduced after evaluations without a gain.
#pragma once
#include <cstdint>
#include <optional>

namespace shardline {

enum class PlateauMode { min, max };    // whether smaller or larger metrics are better
enum class ThresholdMode { rel, abs };  // the threshold is a share of the best metric, or a difference

// The defaults are torch's.
struct PlateauOptions {
  PlateauMode mode = PlateauMode::min;
  double factor = 0.1;      // by which a reduction multiplies the rate
  int64_t patience = 10;    // successive evaluations without a gain that are tolerated; one more reduces the rate
  double threshold = 1e-4;  // a gain is more than this
  ThresholdMode threshold_mode = ThresholdMode::rel;
  int64_t cooldown = 0;     // evaluations after a reduction that are not counted as evaluations without a gain
  double floor = 0;         // share of the peak below which the rate does not fall
  double least_change = 0;  // share of the peak; smaller or equal reductions are skipped
};

class PlateauRate {
 public:
  explicit PlateauRate(const PlateauOptions& options) : options_(options) {}

  double share() const { return state_.share; }  // the learning rate as a share of the peak
  // Takes the metric of the next evaluation and returns whether the rate has fallen. A metric that is not a finite
  // number is not a gain.
  bool observe(double metric);

  // Everything that changes from evaluation to evaluation.
  struct State {
    double share = 1;
    std::optional<double> best;
    int64_t spent = 0;     // evaluations since the last improvement, reduction or cooldown
    int64_t cooldown = 0;  // evaluations left of the cooldown
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  bool is_gain(double metric) const;

  PlateauOptions options_;
  State state_;
};

}  // namespace shardline
