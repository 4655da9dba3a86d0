// How a run continues when some of its hosts do not answer (mpi_options.elastic).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"

namespace shardline {

// Settings, as for --set, with which the run uses these hosts: P and T stay, D shrinks, the global batch stays, and
// microbatches do not grow because there are more accumulation steps. Throws ConfigError if the numbers do not divide.
// config: of the run on all its hosts.
std::vector<std::string> settings_on_hosts(const Config& config, const std::vector<std::string>& hosts);

// Throws ConfigError if an epoch of `fewer`, the run on some of the hosts of `all`, would have different samples.
void check_same_samples(const Config& all, const Config& fewer);

struct FewerHosts {
  std::vector<std::string> hosts, settings;
  std::string why_not_more;  // why a larger number of hosts is not used, a clause for each; empty if all are used
};
// The largest number of these hosts, counted from the first, with which the run can continue. settings: for a number of
// hosts; check: throws ConfigError for settings with which the run cannot start. Throws ConfigError with all reasons if
// no number works.
FewerHosts choose_hosts(const std::vector<std::string>& answering,
                        const std::function<std::vector<std::string>(const std::vector<std::string>& hosts)>& settings,
                        const std::function<void(const std::vector<std::string>& settings)>& check);

// The hosts on which ranks of the config run; empty if mpirun chooses.
std::vector<std::string> hosts_of_ranks(const Config& config);

// "a, b"
std::string host_list(const std::vector<std::string>& hosts);
// The settings for these hosts, with as many ranks on each as `config` has.
std::vector<std::string> host_settings(const Config& config, const std::vector<std::string>& hosts);

}  // namespace shardline
