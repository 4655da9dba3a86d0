#include "engine/launch/mpirun_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.h"
#include "engine/launch/child_process.h"
#include "engine/launch/exit_codes.h"
#include "engine/launch/fewer_hosts.h"
#include "engine/launch/lifelines.h"
#include "engine/launch/stop_signals.h"
#include "engine/run/ranks.h"
#include "engine/run/stop.h"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr const char* kMpirunAdvice = "install Open MPI, or use runtime.communicator=threads";
constexpr auto kTimeToEnd = 5s;      // for an mpirun whose ranks end or are lost, before it is killed
constexpr auto kTimeToRelease = 5s;  // for ranks whose mpirun has ended
constexpr auto kTimeToAnswer = 20s;  // for a host

std::atomic<bool> asked_again{false};
void count_request(int signal, siginfo_t*, void*) {
  if (request_stop(signal)) asked_again = true;
}

// Ends what a finished mpirun has left on this host: programs with which it reaches other hosts, and ranks that are
// stopped. They have the launcher's address in their environment.
void end_left_over_processes() {
  namespace fs = std::filesystem;
  const std::string variable = cat('\0', kLifelineVariable, '=', std::getenv(kLifelineVariable), '\0');
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/ns/uts", error);
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const pid_t process = std::atoi(entry->path().filename().c_str());
    std::error_code ignored;
    if (process <= 0 || process == getpid() || fs::read_symlink(entry->path() / "ns/uts", ignored) != here) continue;
    std::ifstream file(entry->path() / "environ", std::ios::binary);
    const std::string environment = '\0' + std::string(std::istreambuf_iterator<char>(file), {});
    if (environment.find(variable) != std::string::npos) kill(process, SIGKILL);
  }
}

// mpirun and its daemons notice a lost connection as soon as the launcher does, instead of after eight minutes.
void probe_daemons(std::chrono::seconds limit) {
  const auto set = [](const char* name, int64_t value) { setenv(name, std::to_string(value).c_str(), 0); };
  set("OMPI_MCA_oob_tcp_keepalive_time", std::max<int64_t>(1, limit.count() / 3));
  set("OMPI_MCA_oob_tcp_keepalive_intvl", std::max<int64_t>(1, limit.count() / 6));
  set("OMPI_MCA_oob_tcp_keepalive_probes", 4);
}

// A running mpirun, from its start to its end.
class Mpirun {
 public:
  Mpirun(pid_t process, int errors, Lifelines& lifelines, RankMessages& messages, Clock::time_point begin_by,
         std::ostream& log)
      : process_(process),
        errors_(errors),
        lifelines_(lifelines),
        messages_(messages),
        begin_by_(begin_by),
        log_(log) {}

  // Returns its status.
  int wait() {
    while (true) {
      const auto status = status_if_ended(process_);
      pass_on_messages(status.has_value());
      if (status) return *status;
      lifelines_.attend();
      end_where_needed();
    }
  }

  bool is_out_of_time() const { return out_of_time_; }

 private:
  void pass_on_messages(bool ended) {
    pollfd readable{.fd = errors_, .events = POLLIN, .revents = 0};
    char bytes[4096];
    ssize_t count = -1;
    while (poll(&readable, 1, ended ? 0 : 200) > 0 && (count = read(errors_, bytes, sizeof bytes)) > 0) {
      messages_.add({bytes, static_cast<size_t>(count)});
      if (!ended) return;
    }
    if (count == 0 && !ended) std::this_thread::sleep_for(20ms);
  }

  // mpirun passes SIGUSR1 on to the ranks, which finish their step. When ranks end, mpirun ends the others and itself,
  // unless it waits for a host that does not answer. It may also wait for one before any rank has begun, when there is
  // nothing to finish.
  void end_where_needed() {
    const int requests = stop_requests();
    const auto now = Clock::now();
    has_ranks_ = has_ranks_ || messages_.news().contains(News::started) || lifelines_.connected() > 0;
    if (requests > 0) begin_by_ = std::min(begin_by_, now + kTimeToEnd);
    out_of_time_ = !has_ranks_ && now >= begin_by_;
    if (requests == 1 && has_ranks_ && !std::exchange(has_said_stop_, true))
      log_ << "received a signal: the run stops after its current step; a second signal ends it immediately"
           << std::endl;
    if (requests > 1) end_ranks();
    if (requests > 1 || !lifelines_.silent_hosts().empty()) kill_at_ = std::min(kill_at_, now + kTimeToEnd);
    if (out_of_time_ || now >= kill_at_) kill(process_, SIGKILL);
    if (requests != 1 || now < signal_at_) return;
    kill(process_, SIGUSR1);
    signal_at_ = now + 1s;
  }

  void end_ranks() {
    lifelines_.let_go();
    if (!std::exchange(has_said_end_, true)) log_ << "received a second signal: the ranks end now" << std::endl;
  }

  pid_t process_;
  int errors_;
  Lifelines& lifelines_;
  RankMessages& messages_;
  Clock::time_point begin_by_, signal_at_ = Clock::now(), kill_at_ = Clock::time_point::max();
  bool has_ranks_ = false, out_of_time_ = false;
  std::ostream& log_;
  bool has_said_stop_ = false, has_said_end_ = false;
};

}  // namespace

void count_stop_requests() {
  set_stop_handler(count_request);
}

int stop_requests() {
  return stop_signal() == 0 ? 0 : asked_again ? 2 : 1;
}

MpirunEnd run_mpirun(const std::vector<std::string>& command, std::chrono::seconds host_timeout, const TimeLimit& limit,
                     std::ostream& log, const ExplainFailure& explain) {
  probe_daemons(host_timeout);
  Lifelines lifelines(host_timeout);
  setenv(kLifelineVariable, lifelines.address().c_str(), 1);
  int errors[2];
  if (pipe2(errors, O_CLOEXEC) != 0) throw RunError(cat("cannot create a pipe: ", std::strerror(errno)));
  const pid_t process = start_child(command, errors[1], kMpirunAdvice);
  close(errors[1]);
  RankMessages messages(log);
  Mpirun mpirun(process, errors[0], lifelines, messages, Clock::now() + limit.time, log);
  const int status = mpirun.wait();
  close(errors[0]);
  const auto out_of_reach = lifelines.release(kTimeToRelease);
  if (!out_of_reach.empty())
    log << "ranks on " << host_list(out_of_reach) << " cannot be reached; they will exit on their own within "
        << host_timeout.count() << " s" << std::endl;
  end_left_over_processes();

  MpirunEnd end{.exit_code = kExitFailed,
                .failure = "",
                .news = messages.news(),
                .asked_to_stop = stop_requests() > 0 || messages.news().contains(News::stops),
                .out_of_time = mpirun.is_out_of_time() && stop_requests() == 0};
  auto killed = messages.killed_rank();
  if (killed && asks_to_stop(killed->signal)) {  // before it could handle the signal
    end.asked_to_stop = true;
    killed.reset();
  }
  const auto& silent = lifelines.silent_hosts();
  const bool was_hurried = stop_requests() > 1;  // whatever happens then is what the user asked for
  if (end.out_of_time)
    end.failure =
        cat("error: mpirun did not start a rank within ", limit.time.count() / 1000.0, " s", limit.advice(), '\n');
  else if (!silent.empty() && !was_hurried)
    end.failure = cat("error: ", host_list(silent), silent.size() > 1 ? " have" : " has", " not answered for ",
                      host_timeout.count(), " s (mpi_options.host_timeout)\n");
  else if (WIFSIGNALED(status) && !was_hurried && !mpirun.is_out_of_time())
    end.failure = cat("error: mpirun was ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")\n");
  if (!end.failure.empty()) return end;

  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  // An mpirun that is asked to stop while it starts the ranks ends with 0.
  if (end.exit_code == 0 && end.asked_to_stop && !end.news.contains(News::finished)) end.exit_code = kExitFailed;
  if (end.exit_code == 0 || end.exit_code == kExitStopped) return end;  // rank 0 has said why it stopped
  if (end.exit_code != kExitConfig && end.exit_code != kExitBadData) end.exit_code = kExitFailed;
  const bool stopped = end.asked_to_stop && (!killed || was_hurried);
  const bool explains = end.exit_code == kExitFailed && !stopped;
  end.failure = messages.failure(end.exit_code, stopped, explains ? explain(killed) : "");
  return end;
}

TimeLimit start_limit(const Config& config) {
  return timeouts_with(std::chrono::seconds(config.training.ddp_timeout)).start_up;
}

std::vector<std::string> hosts_that_answer(const Config& config, const std::vector<std::string>& hosts) {
  const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  std::map<pid_t, std::string> asked;
  for (const auto& host : hosts) {
    Config one = config;
    one.mpi.hosts = {host};
    one.mpi.processes_per_host = 1;
    asked[start_child(mpirun_command(one, "true", {}), nothing, kMpirunAdvice)] = host;
  }
  if (nothing >= 0) close(nothing);
  std::vector<std::string> found;
  const auto limit = std::min<Clock::duration>(kTimeToAnswer, start_limit(config).time);
  for (const auto deadline = Clock::now() + limit; !asked.empty(); std::this_thread::sleep_for(20ms)) {
    const bool over = Clock::now() >= deadline || stop_requests() > 0;
    std::erase_if(asked, [&](const auto& question) {
      const auto& [process, host] = question;
      if (over) kill(process, SIGKILL);
      const auto status = status_if_ended(process, over ? 0 : WNOHANG);
      if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0) found.push_back(host);
      return status.has_value();
    });
  }
  end_left_over_processes();
  // Keeps the order of the config, which determines where ranks are placed.
  std::vector<std::string> answering;
  for (const auto& host : hosts)
    if (std::ranges::find(found, host) != found.end()) answering.push_back(host);
  return answering;
}

}  // namespace shardline
