// What a head predicts, as programs see it.
#pragma once
#include "models/families/head_choice.h"
#include "models/program/program.h"

namespace shardline {

ProgramUse::Predicts predicts_of(HeadChoice::Kind kind);

}  // namespace shardline
