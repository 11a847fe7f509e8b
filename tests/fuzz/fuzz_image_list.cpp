// A list of images with labels.
#include "tests/fuzz/support.h"
#include "tpgm/data/sources/list.h"

using namespace tpgm;

FUZZ(bytes) {
  fuzz::parse_or_refuse(bytes.size(), [&] {
    const Samples samples = parse_image_list(bytes, "/images");
    fuzz::demand(samples.size() > 0, "a list that is not refused has images");
    int64_t largest = 0;
    for (int64_t i = 0; i < samples.size(); ++i) {
      largest = std::max(largest, samples.label(i));
      fuzz::demand(samples.label(i) >= 0, "an image has a label");
      fuzz::demand(!samples.name(i).empty() &&
                       samples.name(i).find_first_of(std::string_view("\n\0", 2)) == std::string_view::npos,
                   "an image has a path");
      fuzz::demand(!samples.place(i).empty(), "an image has a place");
    }
    fuzz::demand(static_cast<int64_t>(samples.classes.size()) == largest + 1, "every label is a class");
  });
}
