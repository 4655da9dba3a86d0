// `shardline serve`: answers requests over HTTP with a model, until a signal asks it to stop.
#pragma once
#include "engine/config/keys/options.h"
#include "engine/run/ranks.h"
#include "engine/serve/serve_options.h"

namespace shardline {

void check_serve(const Config& config);
void serve_job(const Config& config, const ServeOptions& options, RankContext& context);

}  // namespace shardline
