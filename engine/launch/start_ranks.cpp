#include "engine/launch/start_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>

#include "core/comm/communicator_base.h"
#include "core/comm/mpi_communicator.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "engine/config/rules/shell_words.h"
#include "engine/launch/exit_codes.h"
#include "engine/launch/fewer_hosts.h"
#include "engine/launch/hang_report.h"
#include "engine/launch/rank_messages.h"
#include "engine/observe/doctor/job_records.h"
#include "engine/run/launcher_news.h"
#include "engine/run/ranks.h"
#include "engine/run/resuming_command.h"
#include "engine/run/stop.h"

namespace shardline {
namespace {

constexpr const char* kConsole = "SHARDLINE_CONSOLE_COLUMNS";  // 0: not a terminal

void set_environment_of_ranks() {
  // If there are more ranks than cores, waiting ranks yield theirs. Open MPI refuses root by default.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // mpirun gives its ranks a terminal of their own; they should format their output for this process's.
  const Console console = console_of(1);
  setenv(kConsole, console.terminal ? std::to_string(console.columns).c_str() : "0", 1);
  pass_command_to_ranks();
  if (geteuid() == 0) {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  }
}

// The rank to name in messages about the exception that is being handled; unset if all ranks have the same one.
std::optional<int> rank_to_name() {
  try {
    if (std::current_exception()) throw;
  } catch (const OfAllRanks&) {
    return {};
  } catch (...) {
  }
  return current_rank();
}

// After a failed attempt to start ranks: names the hosts on which mpirun cannot start a program.
std::string missing_hosts(const Config& config) {
  const auto hosts = hosts_of_ranks(config);
  const auto answering = hosts_that_answer(config, hosts);
  std::vector<std::string> missing;
  for (const auto& host : hosts)
    if (std::ranges::find(answering, host) == answering.end()) missing.push_back(host);
  if (missing.empty() || stop_requests() > 0) return "";
  return cat("error: mpirun cannot start a program on ", host_list(missing),
             "; check that it can be reached from here without a password, or remove it from mpi_options.hosts\n");
}

}  // namespace

MpirunEnd run_ranks_of(const Config& config, const std::vector<std::string>& arguments, std::ostream& log) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const auto command = mpirun_command(config, program, arguments);
  log << "$";
  for (const auto& word : command) log << ' ' << shell_quoted(word);
  log << std::endl;
  set_environment_of_ranks();
  const std::set<std::string> before = recorded_jobs(flight_folder(config.output_dir));
  MpirunEnd end =
      run_mpirun(command, std::chrono::seconds(config.mpi.host_timeout), start_limit(config), log,
                 [&](const auto& killed) { return report_of_ended_job(config.output_dir, before, killed); });
  if (end.out_of_time) end.failure += missing_hosts(config);
  return end;
}

int start_ranks(const Config& config, const std::vector<std::string>& arguments, std::ostream& log) {
  count_stop_requests();
  const MpirunEnd end = run_ranks_of(config, arguments, log);
  log << end.failure << std::flush;
  return exit_code_of_program(end);
}

int exit_code_of_program(const MpirunEnd& end) {
  return end.exit_code == kExitBadData ? kExitFailed : end.exit_code;
}

int exit_code_of(const std::exception& error) {
  // mpirun ends the other ranks after the first code that is not 0, so only the first rank has the code of a stop.
  if (dynamic_cast<const StoppedAfterSaving*>(&error)) return current_rank() > 0 ? 0 : kExitStopped;
  return dynamic_cast<const ConfigError*>(&error) ? kExitConfig : kExitFailed;
}

int report_error(const std::exception& error, std::ostream& log) {
  if (dynamic_cast<const StoppedAfterSaving*>(&error)) {
    if (current_rank() <= 0) log << error.what() << std::endl;
    return exit_code_of(error);
  }
  log << "error: " << error.what() << '\n';
  if (dynamic_cast<const DistributedError*>(&error)) log << report_of_threads();
  log << std::flush;
  return exit_code_of(error);
}

Console console_of_job() {
  if (!mpi_is_launched()) return console_of(1);
  // An mpirun that the user started gives ranks a terminal, whatever its own output is.
  const char* columns = std::getenv(kConsole);
  if (!columns) return Console{};
  const int width = std::atoi(columns);
  return width > 0 ? Console{true, width} : Console{};
}

void end_job_with_message_of_failed_rank() {
  set_mpi_abort_handler([](const std::string& reason) {
    flight_ring().end_rank(current_rank(), FlightEnd::gave_up, reason);  // unless the rank has said more
    std::cerr << rank_error(rank_to_name(), reason) << std::flush;
    if (!has_launcher()) report_failing_rank(std::cerr);  // otherwise the launcher makes the report
    try {
      if (std::current_exception()) throw;
    } catch (const ConfigError&) {
      std::_Exit(kExitConfig);  // mpirun ends the other ranks and returns this code
    } catch (const DataError&) {
      if (has_launcher()) std::_Exit(kExitBadData);
    } catch (...) {
    }
  });
}

}  // namespace shardline
