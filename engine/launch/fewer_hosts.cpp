#include "engine/launch/fewer_hosts.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/config/rules/sizes.h"

namespace shardline {

std::vector<std::string> hosts_of_ranks(const Config& config) {
  auto hosts = hosts_of(config);
  if (std::ssize(hosts) > used_hosts(config)) hosts.resize(used_hosts(config));
  return hosts;
}

std::string host_list(const std::vector<std::string>& hosts) {
  std::string text;
  for (const auto& host : hosts) text += cat(text.empty() ? "" : ", ", host);
  return text;
}

std::vector<std::string> host_settings(const Config& config, const std::vector<std::string>& hosts) {
  std::vector<std::string> settings = {"mpi_options.hosts=" + nlohmann::json(hosts).dump(),
                                       cat("mpi_options.processes_per_host=", config.mpi.processes_per_host)};
  // The launcher keeps the user's setting; the ranks on one host would note that it has no effect.
  if (hosts.size() == 1) settings.push_back("mpi_options.elastic=false");
  return settings;
}

std::vector<std::string> settings_on_hosts(const Config& config, const std::vector<std::string>& hosts) {
  const Layout all = resolve_sizes(config, configured_world_size(config));
  const int world = config.mpi.processes_per_host * static_cast<int>(hosts.size()), degrees = all.pipeline * all.tensor;
  if (world % degrees != 0)
    throw ConfigError(cat(world, " ranks are not a multiple of P x T = ", all.pipeline, " x ", all.tensor));
  const int replicas = world / degrees;
  const int64_t batch = all.global_batch();
  if (batch % replicas != 0) throw ConfigError(cat("D = ", replicas, " does not divide the global batch ", batch));
  // Begins with the fewest accumulation steps for which a microbatch is no larger than before.
  const int64_t least = (int64_t{all.accumulation_steps} * all.replicas + replicas - 1) / replicas;
  for (int64_t steps = least; steps * config.smp.microbatches <= batch / replicas; ++steps)
    if (batch % (replicas * steps * config.smp.microbatches) == 0) {
      auto settings = host_settings(config, hosts);
      settings.insert(settings.end(),
                      {"training.per_device_train_batch_size=null", cat("training.global_batch_size=", batch),
                       cat("training.gradient_accumulation_steps=", steps)});
      return settings;
    }
  throw ConfigError(cat("the global batch ", batch, " cannot be divided among D = ", replicas, " x ",
                        config.smp.microbatches, " microbatches x at least ", least, " accumulation steps"));
}

void check_same_samples(const Config& all, const Config& fewer) {
  if (!all.training.dataloader_drop_last) return;
  const auto loader_batch = [](const Config& config) {
    const Layout layout = resolve_sizes(config, configured_world_size(config));
    return layout.global_batch() / layout.loader_batches;
  };
  const int64_t before = loader_batch(all), now = loader_batch(fewer);
  if (before != now)
    throw ConfigError(cat("training.dataloader_drop_last would leave out other samples, because batches of the data ",
                          "loader would have ", now, " samples instead of ", before,
                          "; a run with training.global_batch_size ", now, " can continue on fewer hosts"));
}

FewerHosts choose_hosts(const std::vector<std::string>& answering,
                        const std::function<std::vector<std::string>(const std::vector<std::string>& hosts)>& settings,
                        const std::function<void(const std::vector<std::string>& settings)>& check) {
  FewerHosts chosen{answering, {}, ""};
  for (; !chosen.hosts.empty(); chosen.hosts.pop_back()) {
    try {
      chosen.settings = settings(chosen.hosts);
      check(chosen.settings);
      return chosen;
    } catch (const ConfigError& error) {
      chosen.why_not_more +=
          cat(chosen.why_not_more.empty() ? "" : "; ", "on ", chosen.hosts.size(), ": ", error.what());
    }
  }
  throw ConfigError(cat("the run cannot continue on any number of the ", answering.size(),
                        " hosts that answer: ", chosen.why_not_more));
}

}  // namespace shardline
