#include "engine/observe/doctor/diagnosis_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "engine/observe/doctor/agreement.h"
#include "engine/observe/format.h"

namespace shardline {
namespace {

std::string seconds_text(double seconds) {
  return cat(format_decimals(seconds, 1), " s");
}

// "rank 3 (host a, stage 1)"
std::string name_of(const RankSituation& rank) {
  std::string place;
  if (!rank.host.empty()) place = "host " + rank.host;
  if (rank.stage >= 0) place += cat(place.empty() ? "" : ", ", "stage ", rank.stage);
  return cat("rank ", rank.rank, place.empty() ? "" : cat(" (", place, ")"));
}

// "0-3, 5"
std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += cat(text.empty() ? "" : ", ", ranks[i], last > i ? cat("-", ranks[last]) : "");
    i = last + 1;
  }
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return cat(ranks.size() == 1 ? "rank " : "ranks ", list_of(ranks));
}

// "backward_input of h.7, microbatch 1, chunk 0, step 12"; "" if nothing is known.
std::string place_text(const FlightPlace& place) {
  const std::string_view instruction = place.instruction;
  const size_t comma = std::min(instruction.find(','), instruction.size());
  std::string text(instruction.substr(0, comma));
  if (place.layer[0] != '\0') text += cat(text.empty() ? "" : " of ", place.layer);
  text += instruction.substr(comma);
  if (place.step > 0) text += cat(text.empty() ? "" : ", ", "step ", place.step);
  return text;
}

std::string last_place_text(const RankSituation& rank) {
  const std::string place = place_text(rank.place);
  return place.empty() ? "it was last seen before its first step"
                       : cat("last seen in ", place, " (for ", seconds_text(rank.seconds_there), ")");
}

std::string seen_text(const RankSituation& rank) {
  if (rank.end == FlightEnd::done) return "it has ended normally";
  const std::string place = last_place_text(rank);
  if (rank.silent_seconds == 0) return place;
  return cat(place, "; its process has shown no sign of life for ", seconds_text(rank.silent_seconds),
             ": it was stopped or has ended");
}

// The message with all lines but the first indented.
std::string in_lines(const std::string& message, const char* indentation) {
  std::string text;
  for (const char c : message) text += c == '\n' ? cat(c, indentation) : std::string(1, c);
  return text;
}

// "all_reduce number 41 of float32 [8, 16] in group 'dp' (for gradients of h.7)". members: the group's members, if
// known.
std::string operation_text(const FlightRecord& record, const std::vector<int>& members = {}) {
  std::string text = cat(record.op, " number ", record.sequence);
  if (record.dtype[0] != '\0') text += cat(" of ", record.dtype, " ", record.shape);
  if (record.peer >= 0 && std::cmp_less(record.peer, members.size()))
    text += cat(record.op == std::string_view("send") ? " to" : " from", " rank ", members[record.peer]);
  text += cat(" in group '", record.group, "'");
  if (!is_message(record) && !members.empty()) text += cat(" of ranks ", list_of(members));
  if (record.what[0] != '\0') text += cat(" (for ", record.what, ")");
  return text;
}

const std::vector<int>& members_of(const Diagnosis& diagnosis, const FlightRecord& operation) {
  static const std::vector<int> unknown;
  const auto& wait = diagnosis.ranks[operation.rank].wait;
  return wait && wait->operation.group_id == operation.group_id ? wait->members : unknown;
}

std::string lag_text(const Diagnosis& diagnosis) {
  const FlightRecord& operation = *diagnosis.operation;
  if (diagnosis.missing == 0) return "does not finish its part";
  const std::string_view op = operation.op;
  if (op == "recv")
    return diagnosis.missing == 1 ? "has not sent a message" : cat("has not sent ", diagnosis.missing, " messages");
  if (op == "send") return "does not receive a message";
  return cat("is ", diagnosis.missing, diagnosis.missing == 1 ? " collective" : " collectives", " behind on '",
             operation.group, "'");
}

// The rank that the others wait for.
std::string behind_text(const Diagnosis& diagnosis) {
  const RankSituation& first = diagnosis.ranks[diagnosis.culprits.front()];
  const FlightRecord& operation = *diagnosis.operation;
  std::string text =
      cat(name_of(first), " ", lag_text(diagnosis), ": rank ", operation.rank, " waited ",
          seconds_text(diagnosis.waited), " for ", operation_text(operation, members_of(diagnosis, operation)), "; ",
          first.wait ? cat("it waits for ", operation_text(first.wait->operation, first.wait->members), ", ") : "",
          seen_text(first));
  if (diagnosis.culprits.size() > 1)
    text += cat(" (the same applies to ", ranks_text({diagnosis.culprits.begin() + 1, diagnosis.culprits.end()}), ")");
  return text;
}

std::string disagreement_text(const Diagnosis& diagnosis) {
  const FlightRecord &one = *diagnosis.operation, &other = *diagnosis.other;
  const auto side = [&](const FlightRecord& record) {
    const std::string place = place_text(record.place);
    return cat(name_of(diagnosis.ranks[record.rank]), " asks for ", record.op, " of ", record.dtype, " ", record.shape,
               record.what[0] != '\0' ? cat(" (for ", record.what, ")") : "", place.empty() ? "" : cat(" in ", place));
  };
  std::string text = cat("the ranks disagree about number ", one.sequence, " of group '", one.group, "': ", side(one),
                         ", ", side(other));
  if (one.elements != other.elements)
    text += cat("; sizes differ: ", one.elements, " on rank ", one.rank, ", ", other.elements, " on rank ", other.rank);
  if (std::count(diagnosis.culprits.begin(), diagnosis.culprits.end(), one.rank) == 0)
    text += cat("; ", ranks_text(diagnosis.culprits), diagnosis.culprits.size() == 1 ? " differs" : " differ");
  return text;
}

std::string skipped_text(const Diagnosis& diagnosis) {
  const RankSituation& culprit = diagnosis.ranks[diagnosis.culprits.front()];
  const FlightRecord& operation = *diagnosis.operation;
  std::string text = cat(name_of(culprit), " has skipped ", operation_text(operation, members_of(diagnosis, operation)),
                         ", which rank ", operation.rank, " began in ", place_text(operation.place));
  if (diagnosis.other && diagnosis.other->rank == culprit.rank)
    text += cat(": it continued with ", operation_text(*diagnosis.other));
  return cat(text, "; ", seen_text(culprit));
}

std::string undelivered_text(const Diagnosis& diagnosis) {
  const FlightRecord& operation = *diagnosis.operation;
  const RankSituation& rank = diagnosis.ranks[operation.rank];
  return cat(name_of(rank), " waited ", seconds_text(diagnosis.waited), " for ",
             operation_text(operation, members_of(diagnosis, operation)),
             is_message(operation) ? ", which the other rank has begun, too: the message is stuck between them"
                                   : ", which all its ranks have begun, but it does not end: check the network");
}

std::string circle_text(const Diagnosis& diagnosis) {
  std::string text = cat(ranks_text(diagnosis.culprits), " wait for each other");
  for (const int rank : diagnosis.culprits) {
    const Wait& wait = *diagnosis.ranks[rank].wait;
    text += cat(rank == diagnosis.culprits.front() ? ": " : "; ", name_of(diagnosis.ranks[rank]), " waited ",
                seconds_text(wait.seconds), " for ", operation_text(wait.operation, wait.members), ", which ",
                ranks_text(wait.not_begun), wait.not_begun.size() == 1 ? " has" : " have", " not begun");
  }
  return text;
}

std::set<std::string> hosts_without_records(const Diagnosis& diagnosis) {
  std::set<std::string> hosts, there;
  for (const RankSituation& rank : diagnosis.ranks) (rank.has_records ? there : hosts).insert(rank.host);
  for (const std::string& host : there) hosts.erase(host);
  hosts.erase("");
  return hosts;
}

std::string unreachable_text(const Diagnosis& diagnosis) {
  const FlightRecord& operation = *diagnosis.operation;
  std::string names;
  for (const int rank : diagnosis.culprits) names += cat(names.empty() ? "" : ", ", name_of(diagnosis.ranks[rank]));
  return cat(name_of(diagnosis.ranks[operation.rank]), " waited ", seconds_text(diagnosis.waited), " for ",
             operation_text(operation, members_of(diagnosis, operation)), ", in which ", names,
             diagnosis.culprits.size() == 1 ? " takes part but has" : " take part but have", " no records here");
}

// Describes the operation that the rank waits for; "" if it waits for none.
std::string own_wait_text(const RankSituation& rank) {
  return rank.wait ? cat(", waiting for ", operation_text(rank.wait->operation, rank.wait->members)) : "";
}

std::string ended_text(const Diagnosis& diagnosis) {
  const RankSituation& first = diagnosis.ranks[diagnosis.culprits.front()];
  const bool is_one = diagnosis.culprits.size() == 1;
  const std::string who = is_one ? name_of(first) : ranks_text(diagnosis.culprits);
  const std::string seen = cat("; ", is_one ? "" : name_of(first) + ": ", last_place_text(first), own_wait_text(first));
  if (first.end == FlightEnd::cut_off)
    return cat(who, " ended because the launcher had ended, ended the job, or could not be reached", seen);
  if (diagnosis.before_others == 0)
    return cat(who, " ended without a message when the whole job ended: a user or a batch system killed it, or ",
               "its host failed", seen);
  std::string text = cat(who, " ended without a message ", seconds_text(diagnosis.before_others),
                         " before the others, as after kill -9 or when memory runs out", seen);
  if (diagnosis.operation) {
    const FlightRecord& operation = *diagnosis.operation;
    text += cat("; rank ", operation.rank, " waited ", seconds_text(diagnosis.waited), " for its part of ",
                operation_text(operation, members_of(diagnosis, operation)));
  }
  return text;
}

std::string nothing_text(const Diagnosis& diagnosis) {
  const RankSituation* longest = nullptr;
  for (const RankSituation& rank : diagnosis.ranks)
    if (rank.wait && (!longest || rank.wait->seconds > longest->wait->seconds)) longest = &rank;
  const bool done = std::all_of(diagnosis.ranks.begin(), diagnosis.ranks.end(),
                                [](const RankSituation& rank) { return rank.end == FlightEnd::done; });
  if (done) return "no fault: all ranks ended normally";
  return cat("no fault: no operation between ranks has failed, and no rank ",
             diagnosis.is_running ? "is waiting" : "was waiting when the records ended",
             longest ? cat(" for longer than ", seconds_text(longest->wait->seconds)) : "");
}

std::string situation_text(const RankSituation& rank) {
  if (!rank.has_records) return cat(name_of(rank), ": no records here");
  if (rank.end == FlightEnd::failed) return cat(name_of(rank), ": failed: ", in_lines(rank.reason, "      "));
  if (!rank.wait) return cat(name_of(rank), ": waits for no other rank; ", seen_text(rank));
  const Wait& wait = *rank.wait;
  std::string text = cat(name_of(rank), ": waited ", seconds_text(wait.seconds), " for ",
                         operation_text(wait.operation, wait.members));
  if (!wait.not_begun.empty())
    text += cat(", which ", ranks_text(wait.not_begun), wait.not_begun.size() == 1 ? " has" : " have", " not begun");
  return cat(text, "; ", seen_text(rank));
}

}  // namespace

std::string verdict(const Diagnosis& diagnosis) {
  const auto culprit = [&]() -> const RankSituation& { return diagnosis.ranks[diagnosis.culprits.front()]; };
  switch (diagnosis.cause) {
    case Cause::none:
      return nothing_text(diagnosis);
    case Cause::killed:
      return cat(name_of(culprit()), " ", diagnosis.how,
                 culprit().has_records ? cat("; ", last_place_text(culprit()), own_wait_text(culprit())) : "");
    case Cause::failed:
      return cat(diagnosis.culprits.size() == 1 ? name_of(culprit()) : ranks_text(diagnosis.culprits),
                 " failed: ", in_lines(culprit().reason, "  "));
    case Cause::disagrees:
      return disagreement_text(diagnosis);
    case Cause::skipped:
      return skipped_text(diagnosis);
    case Cause::behind:
      return behind_text(diagnosis);
    case Cause::unreachable:
      return unreachable_text(diagnosis);
    case Cause::undelivered:
      return undelivered_text(diagnosis);
    case Cause::circle:
      return circle_text(diagnosis);
    case Cause::silent:
      return cat(ranks_text(diagnosis.culprits), " ended or stopped before the others: ", name_of(culprit()), ", ",
                 seen_text(culprit()));
    case Cause::ended:
      return ended_text(diagnosis);
  }
  return "";
}

std::string situations_text(const Diagnosis& diagnosis, int most) {
  std::vector<const RankSituation*> order;
  for (const RankSituation& rank : diagnosis.ranks) order.push_back(&rank);
  const auto key = [&](const RankSituation* rank) {
    const bool culprit = std::count(diagnosis.culprits.begin(), diagnosis.culprits.end(), rank->rank) > 0;
    return std::pair(!culprit, rank->wait ? -rank->wait->seconds : 0);
  };
  const bool all = std::cmp_less_equal(order.size(), most);
  if (!all) std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) { return key(a) < key(b); });
  std::string text;
  for (size_t i = 0; i < order.size() && (all || std::cmp_less(i + 1, most)); ++i)
    text += cat("  ", situation_text(*order[i]), "\n");
  if (!all) text += cat("  and ", order.size() - most + 1, " more ranks\n");
  if (const auto hosts = hosts_without_records(diagnosis); !hosts.empty()) {
    std::string names;
    for (const std::string& host : hosts) names += cat(names.empty() ? "" : ", ", host);
    text += cat("  no records of these hosts here: ", names, "\n");
  }
  for (const auto& [host, reference, seconds] : diagnosis.clocks)
    text += cat("  the clock of host ", host, " is ", seconds_text(std::abs(seconds)),
                seconds > 0 ? " ahead of" : " behind", " that of host ", reference, "; these times are corrected\n");
  return text + left_out_text(diagnosis.left_out, diagnosis.damaged);
}

std::string left_out_text(int of_other_jobs, const std::vector<std::string>& damaged) {
  std::string text;
  if (of_other_jobs > 0)
    text = cat("  left out: ", of_other_jobs, of_other_jobs == 1 ? " file" : " files", " of other jobs\n");
  for (const std::string& file : damaged) text += cat("  left out, because it is damaged: ", file, '\n');
  return text;
}

nlohmann::json diagnosis_json(const Diagnosis& diagnosis) {
  const auto operation_json = [](const FlightRecord& record) {
    nlohmann::json json = {{"rank", record.rank},         {"op", record.op},       {"group", record.group},
                           {"sequence", record.sequence}, {"dtype", record.dtype}, {"shape", record.shape},
                           {"elements", record.elements}, {"what", record.what},   {"place", place_text(record.place)}};
    if (record.peer >= 0) json["peer"] = record.peer;
    return json;
  };
  nlohmann::json ranks = nlohmann::json::array();
  for (const RankSituation& rank : diagnosis.ranks) {
    nlohmann::json json = {{"rank", rank.rank}, {"has_records", rank.has_records}};
    if (!rank.host.empty()) json["host"] = rank.host;
    if (rank.stage >= 0) json["stage"] = rank.stage;
    if (rank.has_records) {
      static constexpr const char* ends[] = {"", "done", "failed", "gave_up", "cut_off"};
      json["place"] = place_text(rank.place);
      json["seconds_there"] = rank.seconds_there;
      json["silent_seconds"] = rank.silent_seconds;
      if (rank.end != FlightEnd::none) json["end"] = ends[static_cast<int>(rank.end)];
      if (!rank.reason.empty()) json["reason"] = rank.reason;
    }
    if (rank.wait) {
      json["waits_for"] = operation_json(rank.wait->operation);
      json["waits_for"]["members"] = rank.wait->members;
      json["waits_for"]["not_begun_by"] = rank.wait->not_begun;
      json["waited_seconds"] = rank.wait->seconds;
    }
    ranks.push_back(std::move(json));
  }
  nlohmann::json json = {{"cause", to_string(diagnosis.cause)},
                         {"verdict", verdict(diagnosis)},
                         {"culprits", diagnosis.culprits},
                         {"running", diagnosis.is_running},
                         {"files_of_other_jobs", diagnosis.left_out},
                         {"damaged_files", diagnosis.damaged},
                         {"hosts_without_records", hosts_without_records(diagnosis)},
                         {"ranks", std::move(ranks)}};
  for (const auto& [host, reference, seconds] : diagnosis.clocks)
    json["clocks"].push_back({{"host", host}, {"reference", reference}, {"seconds_ahead", seconds}});
  if (diagnosis.operation) json["operation"] = operation_json(*diagnosis.operation);
  if (diagnosis.other) json["other_operation"] = operation_json(*diagnosis.other);
  if (diagnosis.cause == Cause::behind) json["behind"] = diagnosis.missing;
  return json;
}

}  // namespace shardline
