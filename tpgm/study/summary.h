// Summarizes a table of results in a paragraph, whichever method is better.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tpgm/study/results.h"

namespace tpgm {

/// The role of a row in the comparison. kRandomHead is the pre-trained model under a fresh head that was not
/// trained: its accuracy is chance, so that nothing is compared with it.
enum class RowKind { kZeroShot, kPretrained, kRandomHead, kFt, kWise, kTpgm, kTpgmC, kOther };

struct SummaryRow {
  std::string name;
  RowKind kind = RowKind::kOther;
  std::vector<Score> scores;    ///< the same tests for all rows
  std::vector<int64_t> images;  ///< of each test
  /// Accuracy on selection data, by which chosen() chooses one of several rows of a kind. NaN for all: the
  /// first.
  double selection = std::numeric_limits<double>::quiet_NaN();
  Hits hits = {};  ///< may be unknown
};

/// The mean accuracy over the tests that are (or are not) in-distribution, with its standard error.
struct Average {
  double mean = std::numeric_limits<double>::quiet_NaN();  ///< NaN without such tests
  double error = 0;  ///< standard error of the mean: over seeds, or for one seed from the number of images
};
Average average_of(const SummaryRow& row, bool id);

/// The row of the kind with the best accuracy on selection data; null without any.
const SummaryRow* chosen(const std::vector<SummaryRow>& rows, RowKind kind);

/// A paragraph of about a hundred words:
///   - what fine-tuning changed, in distribution and out of distribution;
///   - TPGM and TPGM-C, as chosen on selection data, compared with it;
///   - WISE: the point of its curve with the best OOD accuracy whose ID accuracy is not below that of TPGM, or
///     else the nearest point;
///   - the best rows, and how many others are within noise of them;
///   - what noise is: the 95 % interval of paired_difference(), or two standard errors where hits are not known.
/// A difference that is noise is not named as a difference.
/// Leaves out rows that are not there. Empty if there is only one row, or none with numbers.
std::string summary(const std::vector<SummaryRow>& rows);

}  // namespace tpgm
