// What a table of results says, in a paragraph: whichever way the numbers came out.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tpgm/study/results.h"

namespace tpgm {

/// What a row is to the others.
enum class RowKind { kZeroShot, kPretrained, kFt, kWise, kTpgm, kTpgmC, kOther };

struct SummaryRow {
  std::string name;
  RowKind kind = RowKind::kOther;
  std::vector<Score> scores;    ///< of all rows the same tests
  std::vector<int64_t> images;  ///< of each test
  /// Accuracy on selection data, by which one of several rows of a kind is chosen; NaN: none, then the first.
  double selection = std::numeric_limits<double>::quiet_NaN();
};

/// The accuracy over tests that are (or are not) in-distribution, and how exactly it is known.
struct Average {
  double mean = std::numeric_limits<double>::quiet_NaN();  ///< NaN: there is no such test
  double error = 0;  ///< standard error of the mean: over seeds, or of one seed by the number of images
};
Average average_of(const SummaryRow& row, bool id);

/// The row among those of `kind` that is the best on selection data; null without any.
const SummaryRow* chosen(const std::vector<SummaryRow>& rows, RowKind kind);

/// In about a hundred words: what fine-tuning changed, in distribution and out of it; how TPGM and TPGM-C, as
/// chosen on selection data, stand beside it, better or worse; then WISE, by the best point of its curve out
/// of distribution that is not below ours in it, or else by the nearest; which rows are best; and what is
/// noise: below two standard errors of a difference. Says nothing of what is not there. One row, or none with
/// numbers: empty.
std::string summary(const std::vector<SummaryRow>& rows);

}  // namespace tpgm
