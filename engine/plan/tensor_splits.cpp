#include "engine/plan/tensor_splits.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "engine/config/keys/tensor_rules.h"
#include "engine/observe/format.h"
#include "partitioner/search/planned_layout.h"

namespace shardline {
namespace {

using Wish = TensorRule::Wish;

struct Member {
  size_t layer = 0, unit = 0;
};

// Units that share a parameter; usually one unit.
struct UnitGroup {
  std::vector<Member> members;
  std::string parts;
  int64_t count = 0;
  Wish wish = Wish::automatic;
  std::string asked;  // the pattern that names it; empty if none does
};

const SplitUnit& unit_at(const ModelSpec& spec, Member at) {
  return spec.layers[at.layer].units[at.unit];
}
std::string name_at(const ModelSpec& spec, Member at) {
  return spec.layers[at.layer].full_name(unit_at(spec, at));
}

// The names of the unit's parameters that are tied, or that other layers' parameters are tied to, each under the name
// that the tied parameters share.
std::set<std::string> shared_names(const ModelSpec& spec, Member at, const std::set<std::string>& tied) {
  std::set<std::string> names;
  const LayerSpec& layer = spec.layers[at.layer];
  for (const auto& param : layer.params) {
    if (!param.name.starts_with(layer.units[at.unit].name + ".")) continue;
    const std::string name = param.tied_to.empty() ? layer.full_name(param) : param.tied_to;
    if (tied.contains(name)) names.insert(name);
  }
  return names;
}

std::vector<UnitGroup> unit_groups(const ModelSpec& spec) {
  std::set<std::string> tied;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      if (!param.tied_to.empty()) tied.insert(param.tied_to);
  std::vector<UnitGroup> groups;
  std::map<std::string, size_t> group_of;  // by shared parameter
  for (size_t layer = 0; layer < spec.layers.size(); ++layer)
    for (size_t unit = 0; unit < spec.layers[layer].units.size(); ++unit) {
      const Member member{layer, unit};
      size_t group = groups.size();
      for (const auto& name : shared_names(spec, member, tied)) group = group_of.try_emplace(name, group).first->second;
      const SplitUnit& one = unit_at(spec, member);
      if (group == groups.size()) groups.push_back({.members = {}, .parts = one.parts, .count = one.count});
      groups[group].members.push_back(member);
    }
  return groups;
}

// Reads what the config wants for a group: a member that it does not name, or leaves to "auto", follows the others.
void read_wish(UnitGroup& group, const ModelSpec& spec, const std::map<std::string, TensorRule>& rules) {
  std::string decided;  // the member that decided
  for (const Member& member : group.members) {
    const auto found = rules.find(name_at(spec, member));
    if (found == rules.end()) continue;
    const TensorRule& rule = found->second;
    if (rule.wish == Wish::automatic && !group.asked.empty()) continue;
    if (!decided.empty() && rule.wish != group.wish)
      throw ConfigError(cat("/smp_options/tensor_parallel_layers: ", decided, " and ", found->first,
                            " have a parameter in common, but \"", group.asked, "\" and \"", rule.pattern,
                            "\" contradict each other; use the same setting for both, or untie them"));
    group.wish = rule.wish;
    group.asked = rule.pattern.text();
    if (rule.wish != Wish::automatic) decided = found->first;
  }
}

std::vector<UnitGroup> groups_with_wishes(const Config& config, const ModelSpec& spec) {
  const auto rules = tensor_rules_by_unit(config.smp.tensor_parallel_layers, spec);
  auto groups = unit_groups(spec);
  for (auto& group : groups) read_wish(group, spec, rules);
  return groups;
}

void choose(SplitChoices& choices, const UnitGroup& group, const ModelSpec& spec, bool split, const std::string& why) {
  for (const Member& member : group.members) choices[name_at(spec, member)] = {split, why};
}

std::string dealt(const UnitGroup& group, int ranks) {
  return cat(group.count, " ", group.parts, " over ", ranks, " ranks");
}

// Compares splitting a unit with keeping it whole, by the time that a rank spends on it in a step.
class PricedChoice {
 public:
  PricedChoice(const Config& config, const ModelSource& model, int world_size, const Assumptions& assumed)
      : config_(config),
        model_(model),
        run_(resolve(config, model.spec, world_size, assumed.precision)),
        machines_(planning_machines(config, run_.workload, world_size, assumed)),
        spans_(mesh_spans(run_.layout.mesh(), machines_.cluster.devices_per_node, run_.layout.sharding.degree)),
        pricing_(pricing_for(run_.workload, machines_)) {
    require_links(machines_.cluster, run_.layout);
  }

  SplitChoice choice(const UnitGroup& group) {
    const ModelSpec& split_spec = made_with({});
    SplitChoices whole;
    std::set<std::string> kinds;
    for (const Member& member : group.members) kinds.insert(unit_at(split_spec, member).name);
    for (const auto& layer : split_spec.layers)
      for (const auto& unit : layer.units)
        if (kinds.contains(unit.name)) whole[layer.full_name(unit)] = {.split = false, .why = ""};
    const ModelSpec& whole_spec = made_with(whole);
    StepShares split, kept;
    for (const Member& member : group.members) {
      split += shares(split_spec, member);
      kept += shares(whole_spec, member);
    }
    const double saved = kept.work - split.work, paid = split.collectives - kept.collectives;
    const auto text = [](double seconds) { return format_duration(std::max(0.0, seconds)); };
    const std::string why = cat("in a step its communication takes ", text(paid), " more and its work ", text(saved),
                                " less than if it were whole");
    return {saved > paid, cat(saved > paid ? "splitting pays: " : "splitting would not pay: ", why)};
  }

  // Empty if a plan with these choices fits on the devices, or if splitting every unit would not fit either.
  std::string why_too_large(const SplitChoices& choices) {
    const auto fit = [&](const ModelSpec& spec) {
      Workload workload = run_.workload;
      workload.spec = spec;
      return plan_layout(workload, machines_, run_.layout).fit;
    };
    const MemoryFit chosen = fit(made_with(choices));
    return chosen.fits || !fit(made_with({})).fits ? "" : chosen.why;
  }

 private:
  const ModelSpec& made_with(const SplitChoices& choices) {
    std::string key;
    for (const auto& [name, choice] : choices)
      if (!choice.split) key += name + " ";
    const auto [entry, is_new] = specs_.try_emplace(key);
    if (is_new) entry->second = make_spec(config_, model_, choices);
    return entry->second;
  }

  StepShares shares(const ModelSpec& spec, Member member) const {
    Workload workload = run_.workload;
    workload.spec = spec;
    return step_shares(workload, run_.layout, pricing_, spans_, member.layer);
  }

  const Config& config_;
  const ModelSource& model_;
  const ResolvedRun run_;
  const Machines machines_;
  const MeshSpans spans_;
  const Pricing pricing_;
  std::map<std::string, ModelSpec> specs_;  // by the units that stay whole
};

}  // namespace

SplitChoices splits_of(const ModelSpec& spec) {
  SplitChoices choices;
  for (const auto& layer : spec.layers)
    for (const auto& unit : layer.units) choices[layer.full_name(unit)] = {unit.split, unit.why};
  return choices;
}

SplitChoices asked_splits(const Config& config, const ModelSpec& spec) {
  SplitChoices choices;
  for (const auto& group : groups_with_wishes(config, spec))
    if (group.wish != Wish::automatic)
      choose(choices, group, spec, group.wish == Wish::split, cat("asked for by \"", group.asked, "\""));
  return choices;
}

SplitChoices splits_by_rule(const Config& config, const ModelSpec& spec) {
  const int tensor = config.smp.tensor_parallel_degree;
  SplitChoices choices = asked_splits(config, spec);
  if (tensor == 1) return {};
  for (const auto& group : groups_with_wishes(config, spec))
    if (group.wish == Wish::automatic && group.count < tensor)
      choose(choices, group, spec, false, cat(dealt(group, tensor), ": some would have none"));
  return choices;
}

TensorRules rules_without_prices(const Config& config, const ModelSpec& spec) {
  const TensorRules& given = config.smp.tensor_parallel_layers;
  if (config.smp.tensor_parallel_degree == 1) return given;
  const SplitChoices choices = splits_by_rule(config, spec);
  const auto rule_of_unit = tensor_rules_by_unit(given, spec);
  TensorRules rules;
  for (const TensorRule& rule : given.entries) {
    rules.entries.push_back(rule);
    if (rule.wish != Wish::automatic) continue;
    bool splits_some = false;
    std::vector<TensorRule> exceptions;
    for (const auto& [unit, deciding] : rule_of_unit) {
      if (deciding != rule) continue;
      const auto choice = choices.find(unit);
      const bool split = choice == choices.end() || choice->second.split;
      if (!split) exceptions.push_back({unit, Wish::whole});
      splits_some = splits_some || split;
    }
    rules.entries.back().wish = splits_some ? Wish::split : Wish::whole;
    if (splits_some) rules.entries.insert(rules.entries.end(), exceptions.begin(), exceptions.end());
  }
  return rules;
}

SplitChoices decide_splits(const Config& config, const ModelSource& model, int world_size, const Assumptions& assumed) {
  const int tensor = config.smp.tensor_parallel_degree;
  SplitChoices choices = splits_by_rule(config, model.spec);
  if (tensor == 1) return choices;
  const bool has_prices = !config.cluster.empty() || !config.profile.empty() || assumed.profile;
  std::optional<PricedChoice> prices;
  std::vector<const UnitGroup*> kept_whole;
  const auto groups = groups_with_wishes(config, model.spec);
  for (const auto& group : groups) {
    if (group.wish != Wish::automatic || group.count < tensor) continue;
    const bool priced = !group.asked.empty() && has_prices;
    if (priced) {
      if (!prices) prices.emplace(config, model, world_size, assumed);
      const auto [split, why] = prices->choice(group);
      choose(choices, group, model.spec, split, why);
      if (!split) kept_whole.push_back(&group);
    } else {
      const char* unpriced = "; \"auto\" needs a cluster or a profile to decide";
      choose(choices, group, model.spec, true, cat(dealt(group, tensor), group.asked.empty() ? "" : unpriced));
    }
  }
  if (kept_whole.empty()) return choices;
  if (const auto why = prices->why_too_large(choices); !why.empty())
    for (const auto* group : kept_whole)
      choose(choices, *group, model.spec, true, cat("whole would be faster, but does not fit: ", why));
  return choices;
}

std::string splits_text(const std::vector<SplitUnit>& units) {
  struct Row {
    const SplitUnit* unit;
    std::string kind, first, last;
    int count;
  };
  std::vector<Row> rows;
  for (const auto& unit : units) {
    const std::string kind = unit.name.substr(unit.name.rfind('.') + 1);
    const auto same = std::find_if(rows.rbegin(), rows.rend(), [&](const Row& row) { return row.kind == kind; });
    if (same != rows.rend() && same->unit->split == unit.split && same->unit->why == unit.why) {
      same->last = unit.name;
      ++same->count;
    } else {
      rows.push_back({&unit, kind, unit.name, unit.name, 1});
    }
  }
  std::vector<TableRow> cells;
  for (const auto& row : rows)
    cells.push_back({row.count == 1 ? row.first : cat(row.first, " ... ", row.last, " (", row.count, ")"),
                     row.unit->split ? "split" : "whole", row.unit->why});
  return table({"unit", "over T", "because"}, cells);
}

}  // namespace shardline
