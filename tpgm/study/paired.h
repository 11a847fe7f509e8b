// Compares rows on the same test images: what differs by more than chance.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tpgm {

/// Which images of the tests the runs of a row classified correctly.
class Hits {
 public:
  /// Nothing is known: no difference can be tested.
  Hits() = default;
  /// Reads the predictions of the runs, each with its seed. Unknown if one has none, or none with labels, which
  /// older versions did not write.
  explicit Hits(const std::vector<std::pair<std::string, std::filesystem::path>>& runs);

  bool known() const { return !seeds_.empty(); }
  size_t seeds() const { return seeds_.size(); }

  /// For each image of a test 0 or 1, or −1 if it has no label or could not be read.
  using Images = std::vector<int8_t>;
  void add(const std::string& seed, std::vector<std::pair<std::string, Images>> tests);

 private:
  friend class Pairs;
  struct Seed {
    std::string seed;
    std::vector<std::pair<std::string, Images>> tests;
  };
  std::vector<Seed> seeds_;
};

/// A mean over tests and seeds with its uncertainty, in points.
struct Estimate {
  double points = std::numeric_limits<double>::quiet_NaN();
  double error = 0;    ///< standard error
  double freedom = 0;  ///< degrees of freedom of `error`

  /// The half-width of the 95 % interval: `error` times the quantile of Student's t.
  double interval() const;
  /// True if the interval does not contain 0.
  bool significant() const { return std::abs(points) > interval(); }
};

/// The accuracy over these tests; nothing if it is not known for one of them.
///
/// Its variance has two parts, which are added with the degrees of freedom of Welch and Satterthwaite. That of the
/// images is the variance over the images of a test of their hits (means over seeds). That of the seeds is the
/// variance over seeds of the accuracy. What differs by image and seed is in both, which makes intervals rather too
/// wide. One seed says nothing of other seeds: only the first part is left then.
std::optional<Estimate> accuracy_of(const Hits& row, const std::vector<std::string>& tests);

/// `after` minus `before` in the same way, with the difference of each image in the place of its hit; nothing also
/// if they have other numbers of images, or other seeds. For one seed and one test this is the Wald interval of paired
/// shares, close to McNemar's test. Runs are paired by their seeds; one run stands beside all seeds of the other row.
std::optional<Estimate> paired_difference(const Hits& before, const Hits& after,
                                          const std::vector<std::string>& tests);

/// The 97.5 % quantile of Student's t.
double student_quantile(double freedom);

}  // namespace tpgm
