// What `pliant report` shows of a run: as text, JSON and a figure.
#pragma once

#include <string>

#include "pliant/report.hpp"

namespace pliant::cli {

/// "start", "resume", "loss", "leave", "join", "fault" or "unknown".
const char* word_of(GroupCause cause);
/// Groups that were formed for `cause`.
int64_t count_of(const RunReport& report, GroupCause cause);
/// Surviving steps whose loss is not finite.
int64_t losses_not_finite(const RunReport& report);

std::string report_text(const RunReport& report);
/// One line, schema pliant.report/1.
std::string report_json(const RunReport& report);
/// An SVG figure over one step axis: loss, metrics and results of evaluations, a panel for each name, learning rate and
/// world size, with a mark for each change of the group and each step that was skipped; steps that were given up are
/// pale. Throws kFailedPrecondition (exit 1) where no step was
/// committed.
std::string report_figure(const RunReport& report);

}  // namespace pliant::cli
