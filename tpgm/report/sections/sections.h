// The sections of a report about runs. Each says in a sentence what is missing where the runs have no data
// for it.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/models/classifier.h"
#include "tpgm/study/run_set.h"
#include "tpgm/train/setup.h"

#include "tpgm/report/page.h"

namespace tpgm {

/// What a run began from: its anchor, and its tests.
struct Origin {
  std::shared_ptr<Classifier> model;  ///< with the anchor's weights, on the CPU; null: see trouble
  std::vector<TestSet> tests;         ///< empty: the data are gone
  std::vector<std::string> classes;
  std::string trouble;                ///< why something is missing, for a sentence
  std::vector<std::string> warnings;  ///< of the data
};

/// Opens what the runs' recipes name. Runs that began alike share one.
class Origins {
 public:
  const Origin& of(const FinishedRun& run);

 private:
  std::deque<std::pair<Settings, Origin>> opened_;
};

/// One row of each method, for figures in which all of them would not be told apart: of WISE the ratio
/// nearest to a half, of others (TPGM-C is one beside TPGM) the best on selection data.
std::vector<const ReportRow*> main_rows(const RunSet& runs);

/// The plane of ID and OOD accuracy, to which the page adds the summary in words.
Section plane_section(const RunSet& runs);
Section distance_section(const RunSet& runs, Origins& origins);
Section ratio_section(const RunSet& runs, Origins& origins);
Section radius_section(const RunSet& runs, Origins& origins);
Section training_section(const RunSet& runs);
Section image_section(const RunSet& runs, Origins& origins);
/// A few images of each test with their classes, in distribution first, as a reader needs them to know what
/// ID and OOD mean here. Of the same classes in each test, where it has them.
Block example_images(const RunSet& runs, Origins& origins);

}  // namespace tpgm
