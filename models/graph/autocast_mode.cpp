#include "models/graph/autocast_mode.h"

#include <ATen/autocast_mode.h>

namespace shardline {

AutocastMode::AutocastMode(c10::DeviceType device, std::optional<c10::ScalarType> half)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      former_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_enabled(device, half.has_value());
  if (half) at::autocast::set_autocast_dtype(device, *half);
  at::autocast::increment_nesting();
}

AutocastMode::~AutocastMode() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, former_);
}

}  // namespace shardline
