#include "engine/config/rules/allocation.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/comm/mpi_communicator.h"
#include "core/error.h"

namespace shardline {
namespace {

constexpr int kMostHosts = 1 << 20;
constexpr const char* kAdvice = "; name the hosts in mpi_options.hosts";

[[noreturn]] void refuse(const std::string& list) {
  throw ConfigError(cat("\"", list, "\" is not a list of hosts in Slurm's format", kAdvice));
}

// Splits the list at commas that are not in brackets.
std::vector<std::string> pieces_of(const std::string& list) {
  std::vector<std::string> pieces(1);
  int depth = 0;
  for (const char c : list) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0)
      pieces.emplace_back();
    else
      pieces.back() += c;
  }
  return pieces;
}

int host_number(const std::string& digits, const std::string& list) {
  int number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stop != end || number < 0) refuse(list);
  return number;
}

// "08-10" -> 08, 09, 10
std::vector<std::string> host_numbers(const std::string& range, const std::string& list) {
  const auto dash = range.find('-');
  const std::string first = range.substr(0, dash), last = dash == std::string::npos ? first : range.substr(dash + 1);
  const int begin = host_number(first, list), end = host_number(last, list);
  if (begin > end || end - begin >= kMostHosts) refuse(list);
  std::vector<std::string> numbers;
  for (int number = begin; number <= end; ++number) {
    std::string digits = std::to_string(number);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    numbers.push_back(digits);
  }
  return numbers;
}

// "rack[1-2]n[1-2]" -> rack1n1, rack1n2, rack2n1, rack2n2
std::vector<std::string> expanded(const std::string& piece, const std::string& list) {
  const auto open = piece.find('['), close = piece.find(']');
  if (open == std::string::npos && close == std::string::npos) return {piece};
  if (open == std::string::npos || close == std::string::npos || close < open) refuse(list);
  const auto tails = expanded(piece.substr(close + 1), list);
  std::vector<std::string> names;
  for (const auto& range : pieces_of(piece.substr(open + 1, close - open - 1)))
    for (const auto& number : host_numbers(range, list))
      for (const auto& tail : tails) {
        if (std::ssize(names) >= kMostHosts) refuse(list);
        names.push_back(piece.substr(0, open) + number + tail);
      }
  return names;
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// The first word of each line; a host may have a line for each of its slots.
std::vector<std::string> hosts_in_file(const char* variable, const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> hosts;
  std::string line, host;
  while (std::getline(file, line))
    if (std::istringstream(line) >> host) add_once(hosts, host);
  if (hosts.empty()) throw ConfigError(cat(variable, " is \"", path, "\", which contains no host names", kAdvice));
  return hosts;
}

}  // namespace

std::vector<std::string> expanded_host_list(const std::string& list) {
  std::vector<std::string> hosts;
  for (const auto& piece : pieces_of(list))
    for (const auto& name : expanded(piece, list)) {
      if (name.empty()) refuse(list);
      add_once(hosts, name);
    }
  return hosts;
}

std::vector<std::string> allocated_hosts() {
  const auto value = [](const char* variable) {
    const char* text = std::getenv(variable);
    return std::string(text ? text : "");
  };
  if (const auto list = value(kHostsOfLauncher); !list.empty()) return expanded_host_list(list);
  if (mpi_is_launched()) {
    const bool by_mpirun = !value("OMPI_COMM_WORLD_SIZE").empty();  // mpirun's daemons run in a step of Slurm, too
    const auto list = by_mpirun ? "" : value("SLURM_STEP_NODELIST");
    return list.empty() ? std::vector<std::string>{} : expanded_host_list(list);
  }
  if (const auto list = value("SLURM_JOB_NODELIST"); !list.empty()) return expanded_host_list(list);
  for (const char* variable : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE"})
    if (const auto path = value(variable); !path.empty()) return hosts_in_file(variable, path);
  return {};
}

}  // namespace shardline
