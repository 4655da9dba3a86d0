// Measures what a rank does before its first step, without other ranks: planning the job, and drawing the initial
// values of the rank's share of the model. Prints one JSON line. Also answers how long a rank needs for a model whose
// ranks together do not fit into this machine's memory.
//
//   bench_setup CONFIG.json [--set path=value ...] [--rank 0] [--threads 0]
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/comm/clock.h"
#include "core/model/parameter_init.h"
#include "engine/config/config.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/plan/layout_search.h"
#include "engine/plan/plan.h"
#include "tools/bench_main.h"

using namespace shardline;

namespace {

// The parameters of the rank, each once: a tied one at its first use on the stage.
std::vector<Parameter> draw_share(const Config& config, const PlannedModel& planned, const Coordinates& place) {
  const ModelSpec& spec = planned.model.spec;
  const auto numbers = parameter_numbers(spec);
  std::vector<Parameter> share;
  std::set<std::string> held;
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    for (const auto& param : spec.layers[layer].params) {
      const std::string name = spec.layers[layer].full_name(param);
      if (planned.plan.stage_of_layer[layer] != place.p) continue;
      const std::string& shown = param.tied_to.empty() ? name : param.tied_to;
      if (!held.insert(shown).second) continue;
      const int t_degree = planned.plan.layout.mesh().t();
      Parameter parameter{.name = shown, .spec = &param};
      parameter.value = at::empty(param.local_shape(place.t, t_degree), number_types(config).values);
      init_parameter(parameter, numbers.at(shown), config.training.seed, place.t, t_degree);
      share.push_back(std::move(parameter));
    }
  }
  return share;
}

int run(int argc, char** argv) {
  std::string file;
  std::vector<std::string> overrides;
  int rank = 0, threads = 0;
  CLI::App app("Measures the set-up of one rank");
  app.add_option("config", file)->required();
  app.add_option("--set", overrides);
  app.add_option("--rank", rank);
  app.add_option("--threads", threads);
  CLI11_PARSE(app, argc, argv);
  if (threads > 0) at::set_num_threads(threads);

  const auto start = steady_seconds();
  const Config config = with_chosen_degrees(read_config(file, overrides));
  const PlannedModel planned = plan_model(config, configured_world_size(config));
  const auto made = steady_seconds();
  const Mesh mesh = planned.plan.layout.mesh();
  const Coordinates place = mesh.at(rank);
  const auto share = draw_share(config, planned, place);
  const auto drawn = steady_seconds();

  int64_t elements = 0, bytes = 0, all = 0;
  for (const auto& parameter : share) {
    elements += parameter.value.numel();
    bytes += parameter.value.nbytes();
  }
  for (const auto& layer : planned.model.spec.layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty()) all += param.numel();
  std::cout << nlohmann::json{{"ranks", mesh.size()},
                              {"rank", rank},
                              {"stage", place.p},
                              {"t", place.t},
                              {"parameters_of_model", all},
                              {"parameters_of_rank", elements},
                              {"bytes_of_rank", bytes},
                              {"threads", at::get_num_threads()},
                              {"plan_seconds", made - start},
                              {"initialise_seconds", drawn - made}}
                   .dump()
            << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, run);
}
