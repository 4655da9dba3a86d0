// A diagnosis for people, and for programs.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

// The cause in one line: "rank 5 (host b, stage 1) is 2 collectives behind on 'dp': it has not begun ...".
std::string verdict(const Diagnosis& diagnosis);

// Returns an indented line for each rank that says what it was doing: at most `most` lines, with the ranks first to
// which the verdict applies and those that wait longest; the last of these lines counts the ranks that are left out.
// Further lines name the hosts without records and count the files of other jobs, if there are any.
std::string situations_text(const Diagnosis& diagnosis, int most);

// "  left out: 2 files of other jobs", and the end of the line; "" for none.
std::string left_out_text(int files);

// cause, verdict, culprits, operation, hosts without records, files of other jobs, and every rank.
nlohmann::json diagnosis_json(const Diagnosis& diagnosis);

}  // namespace shardline
