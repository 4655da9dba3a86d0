#include "engine/run/launcher_news.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "core/comm/mpi_communicator.h"

namespace shardline {
namespace {

constexpr std::string_view kMark = "shardline-rank: ";
// The lines, in the order of News.
constexpr std::array<std::string_view, 6> kLines = {"shardline-rank: started\n",       "shardline-rank: trains\n",
                                                    "shardline-rank: saved\n",         "shardline-rank: stops\n",
                                                    "shardline-rank: out of memory\n", "shardline-rank: finished\n"};

}  // namespace

bool has_launcher() {
  static const bool has = mpi_is_launched() && std::getenv(kLifelineVariable) != nullptr;
  return has;
}

void tell_launcher(News news) {
  if (!has_launcher()) return;
  const std::string_view line = kLines[static_cast<size_t>(news)];
  // A single call, so that no text of other ranks comes in between.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::optional<News> take_news(std::string& text) {
  for (size_t at = 0; (at = text.find(kMark, at)) != std::string::npos; at += kMark.size())
    for (size_t kind = 0; kind < kLines.size(); ++kind)
      if (text.compare(at, kLines[kind].size(), kLines[kind]) == 0) {
        text.erase(at, kLines[kind].size());
        return static_cast<News>(kind);
      }
  return {};
}

}  // namespace shardline
