// trainer_state.json of a checkpoint: an accepted file is written and read back unchanged.
#include <cmath>
#include <optional>

#include "engine/checkpoint/trainer_state.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::trainer_state_fuzz {

FUZZ_TARGET(trainer_state) {
  const std::string text = fuzz::text_of(data, size);
  std::optional<TrainerState> state;
  if (!fuzz::accepts(size, [&] { state = parse_trainer_state(text, "trainer_state.json"); })) return false;
  FUZZ_REQUIRE(std::isfinite(state->epoch), state->epoch);
  const std::string written = trainer_state_text(*state);
  const TrainerState again = parse_trainer_state(written, "written");
  FUZZ_REQUIRE(trainer_state_text(again) == written, "the state changes when it is written");
  FUZZ_REQUIRE(again.step == state->step && again.samples == state->samples && again.best == state->best &&
                   again.patience == state->patience && again.plateau_rate == state->plateau_rate,
               written);
  FUZZ_REQUIRE(again.log_history == state->log_history && again.curve == state->curve, written);
  return true;
}

}  // namespace shardline::trainer_state_fuzz
