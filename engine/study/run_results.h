// The result of a run that has ended.
#pragma once
#include <string>

#include "engine/study/prices.h"
#include "engine/study/run_config.h"
#include "engine/study/run_pool.h"
#include "engine/study/run_record.h"

namespace shardline {

// The file with what `plan --json` has printed for a run.
std::string plan_of(const StudyFile& study, const std::string& run);

// Reads what the run has written. If it failed, or its files cannot be read, the record contains the reason.
RunRecord record_of_run(const StudyFile& study, const StudyRun& run, const Prices& prices, const ProgramEnd& end);

// Whether a measured run has no value of the study's metric.
bool lacks_metric(const StudyFile& study, const RunRecord& record);

// Sets what follows from the study, not from the run's results: names, factors, sizes, the cost.
void describe_run(const StudyRun& run, const Prices& prices, RunRecord& record);

}  // namespace shardline
