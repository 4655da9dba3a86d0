#include "engine/launch/rank_messages.h"

#include <algorithm>
#include <ostream>
#include <regex>

#include "core/error.h"

namespace shardline {

std::string rank_error(std::optional<int> rank, const std::string& reason) {
  return cat("error: ", rank ? cat("rank ", *rank) : "all ranks", ": ",
             std::regex_replace(reason, std::regex("\n(?!  )"), "\n  "), "\n");
}

void RankMessages::add(const std::string& bytes) {
  rest_ += bytes;
  while (const auto news = take_news(rest_)) news_.insert(*news);
  for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1))
    add_line(rest_.substr(0, end));
}

void RankMessages::add_line(const std::string& line) {
  static const std::regex error("error: (?:rank (\\d+)|all ranks): (.*)");
  if (line.size() > 60 && line.find_first_not_of('-') == std::string::npos) {  // mpirun's frame
    in_notice_ = !in_notice_;
    continues_ = false;
    return;
  }
  static const std::regex aside(R"(mpirun: Forwarding signal.*|\[\S+:\d+\] (\d+ more process|Set MCA parameter).*)");
  if (std::regex_match(line, aside)) return;
  if (std::smatch match; std::regex_match(line, match, error)) {
    failures_.push_back({match[1].matched ? std::optional(std::stoi(match[1])) : std::nullopt, match[2]});
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
      R"(process rank (\d+) with PID (\d+) on node (\S+)\s+exited on\s+signal (\d+) ?(\([^)]*\))?)");
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
