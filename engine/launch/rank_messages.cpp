#include "engine/launch/rank_messages.h"

#include <algorithm>
#include <charconv>
#include <ostream>
#include <regex>
#include <sstream>
#include <utility>

#include "core/error.h"

namespace shardline {
namespace {

// In characters: std::regex needs stack space for each of them.
constexpr size_t kLongestMatched = 1000;

// Lines of mpirun that are not about the ranks.
bool is_aside(const std::string& line) {
  static const std::regex aside(R"(mpirun: Forwarding signal|\[\S+:\d+\] (\d+ more process|Set MCA parameter))");
  return std::regex_search(line.substr(0, kLongestMatched), aside, std::regex_constants::match_continuous);
}

}  // namespace

std::string rank_error(std::optional<int> rank, const std::string& reason) {
  return cat("error: ", rank ? cat("rank ", *rank) : "all ranks", ": ",
             std::regex_replace(reason, std::regex("\n(?!  )"), "\n  "), "\n");
}

std::string lines_without_prefix(const std::string& failure) {
  std::istringstream lines(failure);
  std::string text;
  for (std::string line; std::getline(lines, line);)
    text += cat("  ", line.starts_with("error: ") ? line.substr(7) : line, '\n');
  return text;
}

void RankMessages::add(const std::string& bytes) {
  rest_ += bytes;
  while (const auto news = take_news(rest_)) news_.insert(*news);
  for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1))
    add_line(rest_.substr(0, end));
}

std::optional<RankMessages::Failure> RankMessages::failure_in(std::string_view line) {
  constexpr std::string_view kError = "error: ", kAll = "all ranks", kRank = "rank ", kEnd = ": ";
  if (!line.starts_with(kError)) return {};
  line.remove_prefix(kError.size());
  Failure failure;
  if (line.starts_with(kAll)) {
    line.remove_prefix(kAll.size());
  } else {
    if (!line.starts_with(kRank)) return {};
    line.remove_prefix(kRank.size());
    int rank = 0;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), rank);
    if (error != std::errc() || rank < 0) return {};
    failure.rank = rank;
    line.remove_prefix(rest - line.data());
  }
  if (!line.starts_with(kEnd)) return {};
  failure.reason = line.substr(kEnd.size());
  return failure;
}

void RankMessages::add_line(const std::string& line) {
  if (line.size() > 60 && line.find_first_not_of('-') == std::string::npos) {  // mpirun's frame
    in_notice_ = !in_notice_;
    continues_ = false;
    return;
  }
  if (is_aside(line)) return;
  if (auto failure = failure_in(line)) {
    failures_.push_back(std::move(*failure));
    continues_ = true;
  } else if (continues_ && line.starts_with("  ")) {
    failures_.back().reason += "\n" + line;
  } else if (in_notice_) {
    notices_ += line + "\n";
  } else {
    continues_ = false;
    said_error_ = said_error_ || line.starts_with("error: ");
    log_ << line << std::endl;
  }
}

std::optional<RankMessages::Killed> RankMessages::killed_rank() const {
  static const std::regex notice(
      R"(process rank (\d{1,9}) with PID (\d{1,9}) on node (\S{1,255})\s{1,9}exited on\s{1,9}signal (\d{1,9}) ?(\([^)]{0,99}\))?)");
  std::smatch match;
  if (!std::regex_search(notices_, match, notice)) return std::nullopt;
  const std::string process = match[2] == "0" ? "" : cat("process ", match[2].str(), " ");
  return Killed{std::stoi(match[1]), cat(process, "on ", match[3].str()), std::stoi(match[4]),
                cat("was killed by signal ", match[4].str(), " ", match[5].str())};
}

std::string RankMessages::failure(int exit_code, bool stopped, const std::string& explanation) {
  if (!rest_.empty()) add("\n");
  std::string text;
  std::vector<std::string> said;
  for (const auto& [rank, reason] : failures_) {
    if (std::find(said.begin(), said.end(), reason) != said.end()) continue;
    said.push_back(reason);
    text += stopped || !rank ? cat("error: ", reason, "\n") : rank_error(rank, reason);
  }
  if (stopped) {
    if (failures_.empty()) text += "error: stopped by a signal\n";
  } else if (!explanation.empty()) {
    text += explanation;
  } else if (const auto killed = killed_rank()) {
    text += cat("error: rank ", killed->rank, " (", killed->process, ") ", killed->how, "; the job ended\n");
  } else if (failures_.empty() && !said_error_) {
    text += cat(notices_, "error: mpirun ended with exit code ", exit_code, '\n');
  }
  return text;
}

}  // namespace shardline
